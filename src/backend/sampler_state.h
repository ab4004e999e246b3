// What sampling remembers of one answer from token to token: its parameters, how many tokens it has drawn, mirostat's
// mu, and how often each token occurred. Counts are updated token by token, so that a step costs the same however long
// the text is. Owned by the backend that computes `sample`, one per lane; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/sampling.h"
#include "backend/step.h"

namespace quarrel {

// How often tokens occurred, as a list with an index by token. A token whose counts are zero is removed from both.
class TokenCounts {
 public:
  std::span<const TokenCount> list() const noexcept { return counts_; }
  void clear() noexcept;
  // Makes room for this many more tokens, so that `add` allocates nothing.
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
  // Forgets everything and starts again with the text so far.
  void start(const LaneStart& start);
  // For a backend that samples elsewhere than on the host. First whether, and by what, logits change before the choice;
  // of the biases those of a token follow each other, in their order.
  bool changes_logits() const noexcept;
  const SamplingParams& params() const noexcept { return request_.params; }
  // What penalties count, `unseen` tokens after those that are known; what each of these adds to its own counts.
  std::size_t counted_tokens() const noexcept { return counts_.list().size(); }
  void copy_counts(std::int32_t unseen, std::vector<TokenCount>& counts) const;
  TokenCount added_by_token() const noexcept { return {.recent = counts_recent_, .answered = counts_answered_}; }
  // Then whether the token is that of the largest logit.
  bool is_greedy() const noexcept { return !(request_.params.temperature > 0.0f); }
  float mirostat_mu() const noexcept { return request_.mirostat_mu; }
  // Or what a draw from the logits takes, `ahead` tokens after the next one.
  struct Draw {
    double random = 0.0;
    double temperature = 1.0;
    bool mirostat = false;   // and then the others do not count
    std::int32_t top_k = 0;  // less than the vocabulary; 0: all tokens
    float typical_p = 1.0f;
    float top_p = 1.0f;
    float min_p = 0.0f;
  };
  Draw draw(std::size_t vocabulary, std::uint64_t ahead) const noexcept;
  // What decides the next token; valid until the next call. It makes room, too.
  const SampleRequest& request(std::span<const std::uint64_t> mask, std::int32_t top);
  // Room for one more token: after it `accept` allocates nothing. It must come before each.
  void make_room();
  // Records the result.
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
