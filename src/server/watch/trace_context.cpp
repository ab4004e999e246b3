#include "server/watch/trace_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <random>

namespace quarrel {
namespace {

constexpr std::size_t kTraceAt = 3, kTraceDigits = 32, kSpanAt = 36, kSpanDigits = 16, kFlagsAt = 53, kLength = 55;

bool is_digit(char c) noexcept { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

bool is_id(std::string_view digits) noexcept {
  return std::ranges::all_of(digits, is_digit) && digits.find_first_not_of('0') != std::string_view::npos;
}

std::uint64_t random_bits() {
  thread_local std::mt19937_64 random{[] {
    std::random_device source;
    std::seed_seq seed{source(), source(), source(), source()};
    return std::mt19937_64(seed);
  }()};
  std::uint64_t number = 0;
  while (number == 0) number = random();
  return number;
}

}  // namespace

std::string TraceContext::header() const { return fmt::format("00-{}-{}-{}", trace, span, sampled ? "01" : "00"); }

std::optional<TraceContext> read_traceparent(std::string_view header) {
  if (header.size() < kLength) return std::nullopt;
  const std::string_view version = header.substr(0, 2);
  if (!std::ranges::all_of(version, is_digit) || version == "ff") return std::nullopt;
  if (header.size() > kLength && (version == "00" || header[kLength] != '-')) return std::nullopt;
  if (header[2] != '-' || header[kSpanAt - 1] != '-' || header[kFlagsAt - 1] != '-') return std::nullopt;
  const std::string_view trace = header.substr(kTraceAt, kTraceDigits);
  const std::string_view span = header.substr(kSpanAt, kSpanDigits);
  const std::string_view flags = header.substr(kFlagsAt, 2);
  if (!is_id(trace) || !is_id(span) || !std::ranges::all_of(flags, is_digit)) return std::nullopt;
  const char low = flags[1];
  const int bits = low <= '9' ? low - '0' : low - 'a' + 10;
  return TraceContext{.trace = std::string(trace), .span = std::string(span), .sampled = (bits & 1) != 0};
}

TraceContext new_span(std::string_view traceparent) {
  if (const std::optional<TraceContext> asking = read_traceparent(traceparent)) {
    return {.trace = asking->trace, .span = new_span_id(), .parent = asking->span, .sampled = asking->sampled};
  }
  return {.trace = fmt::format("{:016x}{:016x}", random_bits(), random_bits()), .span = new_span_id()};
}

std::string new_span_id() { return fmt::format("{:016x}", random_bits()); }

}  // namespace quarrel
