// The generations of one request, one a prompt, as if they were one. Whoever holds it sees to it that nobody else
// changes it meanwhile; what it asks of a generation may be asked from any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "session/generation.h"

namespace quarrel {

class Generations {
 public:
  void add(Generation generation) { each_.push_back(std::move(generation)); }
  // Of the prompt with this number; the first is 0.
  std::span<const TokenId> prompt(std::size_t number) const { return each_[number].prompt(); }

  void cancel() {
    for (Generation& generation : each_) generation.cancel();
  }

  // Tokens of all; they run side by side, so the longest time of each kind counts.
  Usage usage() const {
    Usage all;
    for (const Generation& generation : each_) {
      const Usage one = generation.usage();
      all.prompt_tokens += one.prompt_tokens;
      all.cached_tokens += one.cached_tokens;
      all.generated_tokens += one.generated_tokens;
      all.queue_seconds = std::max(all.queue_seconds, one.queue_seconds);
      all.prompt_seconds = std::max(all.prompt_seconds, one.prompt_seconds);
      all.generate_seconds = std::max(all.generate_seconds, one.generate_seconds);
    }
    return all;
  }

 private:
  std::vector<Generation> each_;
};

}  // namespace quarrel
