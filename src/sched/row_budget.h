// How many rows of prompts a step may carry beside its decode rows, so that nobody who is being answered waits longer
// than a few times the usual for the next token. Learned from the microseconds of the steps before; integers only.
#pragma once

#include <array>
#include <cstdint>

namespace quarrel {

class RowBudget {
 public:
  // A step with prefill should take at most gap_factor times one without; three quarters of that are aimed at.
  explicit RowBudget(std::int32_t gap_factor) : gap_factor_(gap_factor) {}

  // At most `room` rows; without decode rows all of it. Zero when a step of decode rows alone should be measured first.
  std::int32_t prefill_rows(std::int32_t decode_rows, std::int32_t room) const noexcept;
  // What a step has taken.
  void note(std::int32_t decode_rows, std::int32_t prefill_rows, std::int64_t micros) noexcept;

  std::int64_t row_nanos() const noexcept { return row_nanos_; }
  // Of a step of so many decode rows alone; 0: not known.
  std::int64_t decode_nanos(std::int32_t decode_rows) const noexcept;

 private:
  static constexpr std::size_t kBuckets = 16;
  static std::size_t bucket(std::int32_t decode_rows) noexcept;

  std::int32_t gap_factor_;
  std::array<std::int64_t, kBuckets> decode_nanos_ = {};  // by the logarithm of the decode rows
  std::int64_t row_nanos_ = 0;                            // a row of prefill; 0: not known
  std::int32_t proven_rows_ = 8;                          // of prefill that have kept within the gap
  std::int32_t mixed_steps_ = 0;                          // since decode rows ran alone
};

}  // namespace quarrel
