#include "server/resume_point.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/secure_random.h"

namespace quarrel {
namespace {

constexpr std::size_t kIdDigits = 32;

bool is_id(std::string_view text) noexcept {
  return text.size() == kIdDigits &&
         std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace

std::string to_text(const ResumePoint& point) { return fmt::format("{}:{}", point.id, point.event); }

std::optional<ResumePoint> read_resume_point(std::string_view text) noexcept {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos || !is_id(text.substr(0, colon))) return std::nullopt;
  const std::string_view digits = text.substr(colon + 1);
  ResumePoint point;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), point.event);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  point.id = text.substr(0, colon);
  return point;
}

std::string new_resume_id() { return hex_of(random_bytes<kIdDigits / 2>()); }

}  // namespace quarrel
