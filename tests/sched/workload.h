// Requests that a simulation invents, and the answers they must get: a text's next token is a function of all its
// tokens, so what a request is answered does not depend on who else runs, and is known before it is submitted.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/token.h"
#include "sched/request.h"

namespace quarrel::sim {

// A small generator of its own, so that a seed means the same everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() noexcept;
  std::int32_t below(std::int32_t bound) noexcept;  // [0, bound)
  std::int32_t between(std::int32_t low, std::int32_t high) noexcept { return low + below(high - low + 1); }
  bool chance(std::int32_t per_mille) noexcept { return below(1000) < per_mille; }

 private:
  std::uint64_t state_;
};

// The prefix that ends with a token, as one number: its tokens, their classes, their places, and the salt.
std::uint64_t extend_hash(std::uint64_t before, TokenId token, bool generated) noexcept;
std::uint64_t first_hash(std::uint64_t salt) noexcept;
TokenId sample(std::uint64_t hash, std::int32_t branch, std::int32_t vocabulary) noexcept;

// One text as it should be at this moment.
struct Text {
  std::uint64_t salt = 0;
  std::vector<TokenId> tokens = {};
  std::int32_t prompt_end = 0;
  std::vector<std::uint64_t> hashes = {};  // [token]: of the prefix that ends with it

  void append(TokenId token);
  void drop(std::int32_t keep, std::int32_t dropped);
  std::int32_t length() const noexcept { return static_cast<std::int32_t>(tokens.size()); }
};
Text make_text(const SchedRequest& request);

struct Answer {
  std::vector<TokenId> tokens = {};
  std::vector<std::int32_t> shifts = {};  // how much each dropped
  FinishReason reason = FinishReason::length;
};
// What a branch is answered if nothing ends it early; `longest` is the scheduler's.
Answer expected_answer(const SchedRequest& request, std::int32_t branch, std::int32_t longest, std::int32_t vocabulary);

struct WorkloadConfig {
  std::int32_t vocabulary = 40;
  std::int32_t shared_prompts = 4;
  std::int32_t longest_prompt = 80;
  std::int32_t longest_answer = 40;
  std::int32_t branches = 3;
  // Scores, deadlines, shifts, pins, masks, rows of the other class, no cache: each so often.
  std::int32_t special_per_mille = 150;
  std::int32_t vectors_per_mille = 50;  // texts that become vectors, pooled or not
  bool whole_texts = false;             // nothing is continued
};

class Workload {
 public:
  Workload(const WorkloadConfig& config, std::uint64_t seed);
  SchedRequest next(std::int64_t now_us, std::int32_t longest);
  // The next requests begin alike, with a text that nobody has seen; or as they like again.
  void gather();
  void disperse() { gathered_.clear(); }
  // A conversation that may be continued by a later request.
  void remember(std::span<const TokenId> prompt, std::span<const TokenId> answer);

 private:
  std::vector<TokenId> random_tokens(std::int32_t count);

  WorkloadConfig config_;
  Random random_;
  std::vector<std::vector<TokenId>> shared_;
  std::vector<std::vector<TokenId>> past_;
  std::size_t oldest_ = 0;
  std::vector<TokenId> gathered_;  // what requests of a crowd begin with
};

}  // namespace quarrel::sim
