// Which of a request's branches answered best: those that came to an end before those that were cut short, and among
// these the one with the highest mean log-probability, as the model gives it before any sampling parameter. It reads
// the events of one request as they come, on one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/request.h"

namespace quarrel {

class BestOf {
 public:
  explicit BestOf(std::int32_t branches);

  // False: the event is of a branch that has ended, and does not count.
  bool take(const TokenEvent& event);
  // The branch ends here, whatever the engine has computed of it in the meantime: its text reached a stop string.
  void end(std::int32_t branch, FinishReason reason);

  bool open(std::int32_t branch) const { return tallies_.at(static_cast<std::size_t>(branch)).open; }
  bool done() const noexcept { return open_ == 0; }  // every branch has ended
  FinishReason reason(std::int32_t branch) const { return tallies_.at(static_cast<std::size_t>(branch)).reason; }
  // Of the answer's tokens, a stop token included. An answer without tokens is less likely than any other.
  double mean_logprob(std::int32_t branch) const;

  // The best `count` branches, best first. Answers that failed come last, before them those that were cancelled or
  // timed out; equal ones are ordered by number.
  std::vector<std::int32_t> best(std::int32_t count) const;

 private:
  struct Tally {
    double logprobs = 0.0;
    std::int64_t tokens = 0;
    FinishReason reason = FinishReason::failed;
    bool open = true;
  };

  std::vector<Tally> tallies_;  // [branch]
  std::int32_t open_;
};

}  // namespace quarrel
