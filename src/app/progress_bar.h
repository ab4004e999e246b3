// Shows how far something is, on standard error: a bar that never runs backwards on a terminal; elsewhere, where it
// ends up in a log, a plain line at once and then one every ten seconds at most. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace quarrel {

// "104.9 MB": three or four digits and a decimal unit.
std::string human_bytes(std::uint64_t bytes);
// "850ms", "3.2s", "2m05s".
std::string human_duration(double seconds);

// What is counted, and so how numbers are shown.
enum class ProgressUnit { bytes, items };

class ProgressBar {
 public:
  using Clock = std::chrono::steady_clock;
  using Now = std::function<Clock::time_point()>;  // a seam for tests

  explicit ProgressBar(ProgressUnit unit = ProgressUnit::bytes, Now now = Clock::now);
  // Ends the line of an unfinished bar, so that what follows begins on one of its own.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // `total` of 0: unknown. Another label begins another bar. `rates`: shown instead of what a second brings.
  void show(std::string_view label, std::uint64_t done, std::uint64_t total, std::string_view rates = {});

 private:
  void begin(std::string_view label);
  void end_line();
  std::string bar_line(std::uint64_t total, double elapsed, std::string_view rates) const;
  std::string amount(std::uint64_t value) const;

  const ProgressUnit unit_;
  const Now now_;
  const bool terminal_;
  std::string label_;
  std::uint64_t done_ = 0;
  Clock::time_point last_line_{};  // when a plain one was last written, whatever its label
  bool open_ = false;
  bool finished_ = false;
  Clock::time_point start_;
};

}  // namespace quarrel
