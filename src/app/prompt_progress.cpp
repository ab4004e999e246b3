#include "app/prompt_progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace quarrel {
namespace {

constexpr std::chrono::milliseconds kPatience{500};
constexpr std::chrono::milliseconds kPause{100};

}  // namespace

std::string PromptProgress::update(std::size_t done, std::size_t total, int columns, Clock::time_point now) {
  if (finished_ || now - start_ < kPatience || (!shown_.empty() && now - drawn_ < kPause)) return {};
  std::string text = total == 0 ? std::string("reading the prompt")
                                : fmt::format("reading the prompt: {} of {} tokens", std::min(done, total), total);
  // One row at most: what has wrapped could not be erased.
  text.resize(std::min(text.size(), static_cast<std::size_t>(std::max(columns - 1, 0))));
  if (text.empty() || text == shown_) return {};
  drawn_ = now;
  shown_ = std::move(text);
  return "\r" + palette_.paint(Style::notice, shown_) + "\x1b[K";
}

std::string PromptProgress::finish() {
  finished_ = true;
  return std::exchange(shown_, {}).empty() ? "" : "\r\x1b[K";
}

}  // namespace quarrel
