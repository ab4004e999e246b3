#include "server/resume_point.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>

#include "base/error.h"

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

std::string new_resume_id() {
  std::array<unsigned char, kIdDigits / 2> bytes{};
  std::size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t count = ::getrandom(bytes.data() + have, bytes.size() - have, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail(ErrorKind::io, "the system gives no random bytes");
    have += static_cast<std::size_t>(count);
  }
  std::string id;
  for (const unsigned char byte : bytes) fmt::format_to(std::back_inserter(id), "{:02x}", byte);
  return id;
}

}  // namespace quarrel
