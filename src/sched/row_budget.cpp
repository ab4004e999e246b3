#include "sched/row_budget.h"

#include <algorithm>
#include <bit>

namespace quarrel {
namespace {

constexpr std::int64_t kNanos = 1000;  // a microsecond
constexpr std::int64_t kLongestStep = 3'600'000'000;
// Prompts without end would let the cost of decoding grow stale: now and then it is measured again.
constexpr std::int32_t kMixedStepsInARow = 64;

// Rises fast and falls slowly: a budget that is too small costs less than a gap that is too long.
std::int64_t cautious(std::int64_t known, std::int64_t seen) noexcept {
  return seen > known ? known + (seen - known) / 2 : known - (known - seen) / 8;
}

constexpr std::int64_t power(std::size_t size) noexcept { return std::int64_t{1} << size; }

}  // namespace

std::size_t RowBudget::size_of(std::int32_t rows) noexcept {
  const auto width = static_cast<std::size_t>(std::bit_width(static_cast<std::uint32_t>(std::max(1, rows))));
  return std::min(width, kSizes) - 1;
}

std::int64_t RowBudget::decode_nanos(std::int32_t decode_rows) const noexcept {
  for (std::size_t i = size_of(decode_rows) + 1; i-- > 0;) {
    if (decode_nanos_[i] > 0) return decode_nanos_[i];
  }
  return 0;
}

// What a larger size would cost by the line through a known size and half of it, or in proportion.
std::int64_t RowBudget::extrapolated(std::size_t known, std::size_t size) const noexcept {
  const std::int64_t cost = prefill_nanos_[known];
  const std::int64_t half = known > 0 ? prefill_nanos_[known - 1] : 0;
  const std::int64_t slope = half > 0 && half < cost ? cost - half : cost / 2;  // of half as many rows
  return cost + slope * (power(size - known + 1) - 2);
}

// What a size would cost by the line through two that are known, below and above it.
std::int64_t RowBudget::between(std::size_t below, std::size_t size, std::size_t above) const noexcept {
  const std::int64_t low = prefill_nanos_[below];
  const std::int64_t rise = std::max<std::int64_t>(0, prefill_nanos_[above] - low);
  return low + rise / (power(above) - power(below)) * (power(size) - power(below));
}

// Of so many rows, known or guessed. From what more rows cost in proportion, which is hopeful, but what is hoped for is
// tried and then known; though no less than fewer rows cost.
std::int64_t RowBudget::prefill_nanos(std::size_t size) const noexcept {
  if (prefill_nanos_[size] > 0) return prefill_nanos_[size];
  std::size_t below = size;
  while (below > 0 && prefill_nanos_[below - 1] == 0) --below;
  for (std::size_t above = size + 1; above < kSizes; ++above) {
    if (prefill_nanos_[above] == 0) continue;
    const std::int64_t least = below > 0 ? prefill_nanos_[below - 1] : 1;
    return std::max(least, prefill_nanos_[above] >> (above - size));
  }
  return below > 0 ? extrapolated(below - 1, size) : 0;
}

// The most rows, up to `most`, that cost no more than so much; 0: none do. A smaller size that seems to cost more than
// a larger one had a bad moment.
std::int64_t RowBudget::rows_within(std::int64_t nanos, std::int64_t most) const noexcept {
  for (std::size_t size = kSizes - 1; size-- > 0;) {
    if (power(size) > most) continue;
    const std::int64_t cost = prefill_nanos(size);
    if (cost > nanos) continue;
    const std::int64_t next = prefill_nanos(size + 1);
    const std::int64_t more = next > nanos ? power(size) * (nanos - cost) / (next - cost) : power(size);
    return std::min(most, power(size) + more);
  }
  return 0;
}

std::int32_t RowBudget::prefill_rows(std::int32_t decode_rows, std::int32_t room) const noexcept {
  if (decode_rows == 0 || room <= 0) return room;
  const std::int64_t decode = decode_nanos(decode_rows);
  if (decode == 0 || mixed_steps_ >= kMixedStepsInARow) return 0;
  const std::int64_t most = std::min<std::int64_t>(room, std::int64_t{2} * tried_rows_);
  const std::int64_t limit = std::max(gap_factor_ * decode, unnoticed_nanos_);
  const std::int64_t aimed = limit * 3 / 4 - decode;
  const std::int64_t bearable = limit * 15 / 16 - decode;
  if (prefill_nanos(0) == 0) return static_cast<std::int32_t>(std::clamp<std::int64_t>(aimed / decode, 1, most));
  return affordable(aimed, bearable, most);
}

std::int32_t RowBudget::paced_rows(std::int64_t pace_us, std::int32_t decode_rows, std::int32_t room) const noexcept {
  if (room <= 0) return room;
  const std::int64_t pace = std::clamp<std::int64_t>(pace_us, 1, kLongestStep) * kNanos;
  const std::int64_t most = std::min<std::int64_t>(room, std::int64_t{2} * seen_rows_);
  // While nothing is known, a row is thought to cost as much as a step of the others.
  if (prefill_nanos(0) == 0) return static_cast<std::int32_t>(std::min<std::int64_t>(gap_factor_ - 1, most));
  const std::int64_t own = decode_rows > 0 ? decode_nanos(decode_rows) : 0;
  const std::int64_t limit = (gap_factor_ - 1) * pace;
  return affordable(limit * 3 / 4 - own, limit * 15 / 16 - own, most);
}

std::int32_t RowBudget::affordable(std::int64_t aimed, std::int64_t bearable, std::int64_t most) const noexcept {
  std::int64_t one = prefill_nanos(0);
  for (const std::int64_t cost : prefill_nanos_) one = cost > 0 ? std::min(one, cost) : one;
  const std::int64_t worth = one + one / 2;
  std::int64_t rows = rows_within(std::max(aimed, one > bearable ? worth : std::min(worth, bearable)), most);
  // Whether more rows than that cost more at all is not known before they are tried.
  if (one > aimed && rows > 0 && prefill_nanos_[size_of(static_cast<std::int32_t>(rows)) + 1] == 0) rows *= 2;
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(rows, 1, most));
}

void RowBudget::learn(std::int32_t rows, std::int64_t nanos) noexcept {
  const std::size_t size = std::min(size_of(rows), kSizes - 2);
  std::int64_t& low = prefill_nanos_[size];
  std::int64_t& high = prefill_nanos_[size + 1];
  const std::int64_t beyond = rows - power(size);
  if (beyond == 0 || low == 0 || high == 0) {
    // What lies between two sizes is reported to the nearer one, in proportion.
    const bool up = beyond > 0 && low != 0 && high == 0;
    const std::int64_t seen = nanos / rows * power(up ? size + 1 : size);
    std::int64_t& known = up ? high : low;
    known = std::max<std::int64_t>(1, known == 0 ? seen : cautious(known, beyond == 0 ? nanos : seen));
  } else {
    const std::int64_t expected = low + (high - low) * beyond / power(size);
    const std::int64_t change = cautious(expected, nanos) - expected;
    const std::int64_t sixteenths = 16 * beyond / power(size);
    low = std::max<std::int64_t>(1, low + change * (16 - sixteenths) / 16);
    high = std::max<std::int64_t>(1, high + change * sixteenths / 16);
  }
  // Fewer rows never cost more: those that seemed to had a bad moment, such as the first step of all, which reads the
  // weights from the disk.
  const std::int64_t most = beyond == 0 || high == 0 ? low : high;
  for (std::size_t i = 0; i < size; ++i) prefill_nanos_[i] = std::min(prefill_nanos_[i], most);
  // Sizes that are thought too expensive are not tried again: that must not last forever. Larger ones come down to what
  // these rows predict: soon to the line between these and still larger ones, slowly to the line through fewer.
  std::size_t larger = kSizes;
  for (std::size_t i = kSizes; i-- > (beyond == 0 ? size + 1 : size + 2);) {
    std::int64_t& cost = prefill_nanos_[i];
    if (cost == 0) continue;
    std::int64_t cheaper = std::max(cost - cost / 256, std::min(cost, extrapolated(size, i)));
    if (larger < kSizes) cheaper = std::min(cheaper, std::max(cost - cost / 64, between(size, i, larger)));
    cost = cheaper;
    larger = i;
  }
  for (std::size_t i = 0; i < size; ++i) prefill_nanos_[i] -= prefill_nanos_[i] / 256;
}

void RowBudget::note(std::int32_t decode_rows, std::int32_t prefill_rows, std::int64_t micros) noexcept {
  const std::int64_t nanos = std::clamp<std::int64_t>(micros, 1, kLongestStep) * kNanos;
  if (prefill_rows == 0) {
    std::int64_t& known = decode_nanos_[size_of(decode_rows)];
    known = known == 0 ? nanos : known + (nanos - known) / 4;
    mixed_steps_ = 0;
    return;
  }
  seen_rows_ = std::max(seen_rows_, prefill_rows);
  if (decode_rows > 0) {
    ++mixed_steps_;
    tried_rows_ = std::max(tried_rows_, prefill_rows);
  }
  learn(prefill_rows, std::max<std::int64_t>(1, nanos - (decode_rows > 0 ? decode_nanos(decode_rows) : 0)));
}

}  // namespace quarrel
