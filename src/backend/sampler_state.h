// What sampling remembers of one answer from token to token: its parameters, how many tokens it has drawn, mirostat's
// mu, and how often each token came. Counts are kept up as tokens come, so that a step costs the same however long the
// text is. Owned by whoever computes `sample`, one a lane; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "backend/sampling.h"
#include "backend/step.h"

namespace quarrel {

// How often tokens came, as a list and an index of it by token. A token that no longer counts leaves both.
class TokenCounts {
 public:
  std::span<const TokenCount> list() const noexcept { return counts_; }
  void clear() noexcept;
  // Makes room for so many tokens more, so that `add` needs no memory.
  void reserve(std::size_t more);
  // Changes the counts of a token; neither may fall below zero.
  void add(TokenId id, std::int32_t recent, std::int32_t answered) noexcept;

 private:
  std::size_t home(TokenId id) const noexcept;
  std::size_t find(TokenId id) const noexcept;  // its place in index_, or that of the gap where it would be
  void erase(std::size_t slot) noexcept;

  std::vector<TokenCount> counts_;
  std::vector<std::int32_t> index_;  // a power of two, at most half full: places in counts_; -1: a gap
};

class SamplerState {
 public:
  // Forgets all else and begins where the text has got to.
  void start(const LaneStart& start);
  // Whether the next token is the largest logit as it came, were there no mask.
  bool is_greedy() const noexcept;
  // What a draw needs that takes no more than the logits as they come and this, were there no mask, `ahead` tokens
  // after the next one; none where it takes more, or where top-k leaves more than `most` tokens.
  struct Draw {
    double random = 0.0;
    double temperature = 1.0;
    std::int32_t top_k = 0;  // 0: from all tokens, and the next two do not count
    float top_p = 1.0f;
    float min_p = 0.0f;
  };
  std::optional<Draw> draw_from_logits(std::size_t vocabulary, std::size_t most, std::uint64_t ahead) const noexcept;
  // What decides the next token; good until the next call. After it `accept` needs no memory.
  const SampleRequest& request(std::span<const std::uint64_t> mask, std::int32_t top);
  // Takes note of what became of it.
  void accept(const SampleResult& result) noexcept;

 private:
  void count(TokenId id, bool in_answer) noexcept;

  SampleRequest request_;
  bool counts_recent_ = false;
  bool counts_answered_ = false;
  TokenCounts counts_;
  std::vector<TokenId> window_;  // the recent tokens, where there is a limit to them: a ring once it is full
  std::size_t oldest_ = 0;       // of `window_`
};

}  // namespace quarrel
