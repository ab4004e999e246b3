// How many prompt rows a step may carry beside its decode rows, so that nobody waits for the next token longer than a
// few times the usual, or longer than anybody would notice. Learned from the microseconds of earlier steps; integers
// only.
//
// Prompt rows have a fixed cost (weights are unpacked for one as for fifty) and a cost per row. So the cost of 1, 2, 4,
// 8 … of them is remembered, and interpolated in between. If the first row alone takes nearly all the time that a step
// may take, more rows cost hardly more: then half as much time again is allowed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace quarrel {

class RowBudget {
 public:
  // A step with prefill should take at most gap_factor times one without, or `unnoticed_us` where that is more; the aim
  // is three quarters of that.
  RowBudget(std::int32_t gap_factor, std::int64_t unnoticed_us)
      : gap_factor_(gap_factor), unnoticed_nanos_(unnoticed_us * 1000) {}

  // At most `room` rows; all of it without decode rows. Zero if a step of only decode rows should be measured first.
  std::int32_t prefill_rows(std::int32_t decode_rows, std::int32_t room) const noexcept;
  // At most `room` rows, and at least one, for a step that other models on the device wait for, whose own steps take
  // `pace_us`. With its decode rows it should take at most gap_factor - 1 times that.
  std::int32_t paced_rows(std::int64_t pace_us, std::int32_t decode_rows, std::int32_t room) const noexcept;
  // What a step has taken.
  void note(std::int32_t decode_rows, std::int32_t prefill_rows, std::int64_t micros) noexcept;

  // Of a step of so many decode rows alone; 0: not known.
  std::int64_t decode_nanos(std::int32_t decode_rows) const noexcept;

 private:
  static constexpr std::size_t kSizes = 24;  // powers of two of rows
  static std::size_t size_of(std::int32_t rows) noexcept;
  std::int64_t prefill_nanos(std::size_t size) const noexcept;
  std::int64_t extrapolated(std::size_t known, std::size_t size) const noexcept;
  std::int64_t between(std::size_t below, std::size_t size, std::size_t above) const noexcept;
  std::int64_t rows_within(std::int64_t nanos, std::int64_t most) const noexcept;
  std::int32_t affordable(std::int64_t aimed, std::int64_t bearable, std::int64_t most) const noexcept;
  void learn(std::int32_t rows, std::int64_t nanos) noexcept;

  std::int32_t gap_factor_;
  std::int64_t unnoticed_nanos_;
  std::array<std::int64_t, kSizes> decode_nanos_ = {};   // of 2^i decode rows and up to twice as many; 0: not known
  std::array<std::int64_t, kSizes> prefill_nanos_ = {};  // of 2^i rows of prefill; 0: not known
  std::int32_t tried_rows_ = 8;                          // the most rows of prefill that stood beside decode rows
  std::int32_t seen_rows_ = 8;                           // the most of any step
  std::int32_t mixed_steps_ = 0;                         // since decode rows ran alone
};

}  // namespace quarrel
