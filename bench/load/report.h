// Outcomes to numbers, and numbers to a line for people or JSON for programs. Pure.
#pragma once

#include <span>
#include <string>

#include <nlohmann/json.hpp>

#include "load/process_watch.h"
#include "load/question.h"

namespace quarrel::load {

struct Percentiles {
  double p50 = 0.0, p95 = 0.0, p99 = 0.0;
};
Percentiles percentiles(std::vector<double> values);

struct Summary {
  std::size_t asked = 0, answered = 0, refused = 0, honest = 0, failed = 0;  // honest: refusals with Retry-After
  std::size_t differing = 0;                                                 // answers that are not what they are alone
  std::size_t streaming_at_once = 0;  // at most: answers of which some had come, and not all
  bool compared = false;
  double seconds = 0.0;
  std::uint64_t tokens = 0;                      // of answers that came whole
  double tokens_per_second = 0.0;                // the same
  double prompt_tokens = 0.0;                    // on average
  Percentiles first = {}, gap = {}, total = {};  // seconds
  std::string first_error = {};
  ProcessUse before = {}, after = {};
  std::uint64_t most_resident = 0;
};

Summary summarize(std::span<const Outcome> outcomes, double seconds);
std::string text_of(const Summary& summary);
nlohmann::ordered_json json_of(const Summary& summary);

}  // namespace quarrel::load
