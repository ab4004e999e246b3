// What the load generator asks and what became of it. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace quarrel::load {

// A prompt of its own nonce and seed, so that an answer that belongs to somebody else cannot pass for the right one.
struct Question {
  std::string prompt = {};
  std::uint64_t seed = 0;
  int output = 64;  // tokens wanted
};

struct Outcome {
  unsigned status = 0;       // of HTTP; 0: the connection failed
  bool whole = false;        // it came to its end as the protocol has it
  bool retry_after = false;  // a refusal said when to come back
  std::string text = {};
  std::string error = {};
  std::uint64_t prompt_tokens = 0, tokens = 0;
  double begun = 0.0;             // seconds since the run's start
  double first = 0.0;             // seconds to the first piece of text
  double total = 0.0;             // to the end
  std::vector<double> gaps = {};  // seconds between pieces
};

// `words` common English words after a nonce; the same for the same number.
Question make_question(std::uint64_t number, int words, int output);

}  // namespace quarrel::load
