// Whether a step follows the rules. Steps come from our own engine, but on every backend a wrong one must end in an
// error and not in another request's memory: each backend has a checker and calls it before it touches anything. One
// thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"

namespace quarrel {

class StepCheck {
 public:
  void set_limits(const StepLimits& limits, std::int32_t vocabulary);
  void set_cache(const CacheConfig& cache, std::int32_t block_tokens);

  // Throws Error(internal) that names the rule. Changes nothing that later steps could notice.
  void check(const Step& step);
  // The lanes of a checked step have begun: from now on they hold what it said.
  void lanes_started(const Step& step) noexcept;
  // The step was accepted: the next one may refer to tokens by its outputs.
  void taken(const Step& step) noexcept;
  // An accepted step failed: the next one must not refer to its tokens.
  void lost() noexcept { last_sampled_.clear(); }

 private:
  enum class LaneUse : std::uint8_t { none, sampling, pooling };

  void check_lanes(const Step& step);
  void check_rows(const Step& step);
  void check_token(std::int32_t token) const;
  void check_tables(const StepSequence& sequence) const;
  void check_row_blocks(const StepSequence& sequence, std::int32_t position) const;
  void check_states(const Step& step);
  void check_copies(const Step& step) const;
  void check_outputs(const Step& step);
  void check_output(const Step& step, const StepOutput& output);
  LaneUse use_of(std::int32_t lane) const noexcept;

  StepLimits limits_{.rows = 0, .outputs = 0, .sequences = 0, .lanes = 0, .context = 0};
  std::int32_t vocabulary_ = 0;
  std::int32_t block_tokens_ = 1;
  std::vector<std::int32_t> blocks_;   // of each KV group
  std::vector<std::int32_t> windows_;  // of each KV group
  std::int32_t state_slots_ = 0;

  std::vector<LaneUse> lanes_;         // after the steps taken so far
  std::vector<LaneUse> next_lanes_;    // and once the lanes of the step at hand have begun
  std::vector<bool> last_sampled_;     // by output of the step before
  std::vector<std::uint8_t> marked_;   // of lanes or sequences, while they are looked through
  std::vector<std::int32_t> writers_;  // by state slot: the sequence that writes it, -1 for none
};

}  // namespace quarrel
