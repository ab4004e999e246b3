#include "sched/row_budget.h"

#include <algorithm>
#include <bit>

namespace quarrel {
namespace {

constexpr std::int64_t kNanos = 1000;  // a microsecond
constexpr std::int64_t kLongestStep = 3'600'000'000;
// Prompts without end would let the cost of decoding grow stale: now and then it is measured again.
constexpr std::int32_t kMixedStepsInARow = 64;
// Fewer rows than this measure the fixed cost of a step, not their own.
constexpr std::int32_t kTellingRows = 16;

// Rises fast and falls slowly: a budget that is too small costs less than a gap that is too long.
std::int64_t cautious(std::int64_t known, std::int64_t seen) noexcept {
  if (known == 0) return seen;
  return seen > known ? known + (seen - known) / 2 : known - (known - seen) / 8;
}

}  // namespace

std::size_t RowBudget::bucket(std::int32_t decode_rows) noexcept {
  const auto width = static_cast<std::size_t>(std::bit_width(static_cast<std::uint32_t>(std::max(1, decode_rows))));
  return std::min(width, kBuckets) - 1;
}

std::int64_t RowBudget::decode_nanos(std::int32_t decode_rows) const noexcept {
  const std::size_t own = bucket(decode_rows);
  for (std::size_t i = own + 1; i-- > 0;) {
    if (decode_nanos_[i] > 0) return decode_nanos_[i];
  }
  return 0;
}

std::int32_t RowBudget::prefill_rows(std::int32_t decode_rows, std::int32_t room) const noexcept {
  if (decode_rows == 0 || room <= 0) return room;
  const std::int64_t decode = decode_nanos(decode_rows);
  if (decode == 0 || mixed_steps_ >= kMixedStepsInARow) return 0;
  const std::int64_t row = std::max<std::int64_t>(1, row_nanos_ > 0 ? row_nanos_ : decode);
  const std::int64_t spare = decode * (gap_factor_ * 3 - 4) / 4;
  const std::int64_t rows = std::clamp<std::int64_t>(spare / row, 1, std::int64_t{2} * proven_rows_);
  return static_cast<std::int32_t>(std::min<std::int64_t>(rows, room));
}

void RowBudget::note(std::int32_t decode_rows, std::int32_t prefill_rows, std::int64_t micros) noexcept {
  const std::int64_t nanos = std::clamp<std::int64_t>(micros, 1, kLongestStep) * kNanos;
  if (prefill_rows == 0) {
    std::int64_t& known = decode_nanos_[bucket(decode_rows)];
    known = known == 0 ? nanos : known + (nanos - known) / 4;
    mixed_steps_ = 0;
    return;
  }
  if (decode_rows == 0) {
    if (prefill_rows >= kTellingRows) row_nanos_ = cautious(row_nanos_, nanos / prefill_rows);
    return;
  }
  ++mixed_steps_;
  const std::int64_t decode = decode_nanos(decode_rows);
  row_nanos_ =
      std::max<std::int64_t>(1, cautious(row_nanos_, std::max<std::int64_t>(1, nanos - decode) / prefill_rows));
  if (nanos > decode * gap_factor_) {
    proven_rows_ = std::max(1, prefill_rows / 2);
  } else {
    proven_rows_ = std::max(proven_rows_, prefill_rows);
  }
}

}  // namespace quarrel
