// The shapes of load: so many clients one question after the other, questions that come at a rate whatever becomes of
// those before, a crowd of idle connections beside streams. Each runs its own io_context on the calling thread.
#pragma once

#include <vector>

#include "load/client.h"
#include "load/report.h"

namespace quarrel::load {

struct Load {
  int clients = 1;
  int requests = 16;               // of all clients together
  double rate = 0.0;               // above 0: questions a second, each on a connection of its own
  int words = 64;                  // of a prompt
  int output = 64;                 // tokens of an answer
  int idle = 0;                    // connections that only are there meanwhile
  std::uint64_t first_number = 0;  // of the questions
  int pid = 0;                     // of the server; 0: unknown
};

struct Run {
  std::vector<Question> questions;
  std::vector<Outcome> outcomes;  // of the same places
  std::size_t idle_lost = 0;      // idle connections that were not there at the end
  Summary summary;
};

Run run_load(const Target& target, const Load& load);

// Asks every question that was answered again, one after the other, and counts the answers that differ.
void compare_alone(const Target& target, Run& run);

}  // namespace quarrel::load
