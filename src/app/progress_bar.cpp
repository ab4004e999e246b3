#include "app/progress_bar.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "app/terminal.h"

namespace quarrel {
namespace {

constexpr int kWidestBar = 40;
constexpr std::chrono::seconds kBetweenLines{10};

}  // namespace

std::string human_bytes(std::uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits{"B", "kB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 999.95 && unit + 1 < kUnits.size()) {
    value /= 1000.0;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string human_duration(double seconds) {
  if (seconds < 1.0) return fmt::format("{:.0f}ms", seconds * 1000.0);
  if (seconds < 60.0) return fmt::format("{:.1f}s", seconds);
  const auto whole = static_cast<std::int64_t>(seconds);
  return fmt::format("{}m{:02}s", whole / 60, whole % 60);
}

ProgressBar::ProgressBar(ProgressUnit unit, Now now)
    : unit_(unit), now_(std::move(now)), terminal_(moves_cursor(Stream::error)) {}

ProgressBar::~ProgressBar() { end_line(); }

void ProgressBar::show(std::string_view label, std::uint64_t done, std::uint64_t total, std::string_view rates) {
  if (label != label_ || start_ == Clock::time_point{}) begin(label);
  if (finished_) return;
  done_ = std::max(done_, total > 0 ? std::min(done, total) : done);
  finished_ = total > 0 && done_ == total;
  const Clock::time_point now = now_();
  if (terminal_) {
    const double elapsed = std::chrono::duration<double>(now - start_).count();
    write_error("\r" + bar_line(total, elapsed, rates) + "\x1b[K");
    open_ = true;
    if (finished_) end_line();
    return;
  }
  if (last_line_ != Clock::time_point{} && now - last_line_ < kBetweenLines) return;
  last_line_ = now;
  std::string line = label_;
  if (total > 0) line += fmt::format(": {} of {}", amount(done_), amount(total));
  if (done_ > 0 && !rates.empty()) line += fmt::format("{} {}", total > 0 ? "," : ":", rates);
  write_error(line + "\n");
}

std::string ProgressBar::amount(std::uint64_t value) const {
  return unit_ == ProgressUnit::bytes ? human_bytes(value) : fmt::format("{}", value);
}

void ProgressBar::begin(std::string_view label) {
  end_line();
  label_ = label;
  done_ = 0;
  finished_ = false;
  start_ = now_();
}

void ProgressBar::end_line() {
  if (open_) write_error("\n");
  open_ = false;
}

std::string ProgressBar::bar_line(std::uint64_t total, double elapsed, std::string_view rates) const {
  const double rate = elapsed > 0.2 ? static_cast<double>(done_) / elapsed : 0.0;
  if (total == 0 && done_ == 0) return label_;
  if (total == 0) return fmt::format("{} {}{}{}", label_, amount(done_), rates.empty() ? "" : " ", rates);
  const double share = static_cast<double>(done_) / static_cast<double>(total);
  std::string numbers = fmt::format(" {:3.0f}% {}/{}", share * 100.0, amount(done_), amount(total));
  if (!rates.empty()) {
    numbers += fmt::format(" {}", rates);
  } else if (rate > 0.0 && done_ < total) {
    numbers += fmt::format(" {}/s {}", amount(static_cast<std::uint64_t>(rate)),
                           human_duration(static_cast<double>(total - done_) / rate));
  }
  const int room = terminal_columns(Stream::error) - static_cast<int>(label_.size() + numbers.size()) - 4;
  const int width = std::min(room, kWidestBar);
  if (width < 5) return label_ + numbers;
  const int full = static_cast<int>(share * width);
  return fmt::format("{} [{}{}]{}", label_, std::string(static_cast<std::size_t>(full), '='),
                     std::string(static_cast<std::size_t>(width - full), ' '), numbers);
}

}  // namespace quarrel
