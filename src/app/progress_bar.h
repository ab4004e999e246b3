// Shows how far something is, on standard error: a bar that never runs backwards on a terminal, a plain line now and
// then elsewhere. One thread.
#pragma once

#include <chrono>
#include <cstdint>
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
  explicit ProgressBar(ProgressUnit unit = ProgressUnit::bytes);
  // Ends the line of an unfinished bar, so that what follows begins on one of its own.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // `total` of 0: unknown. Another label begins another bar.
  void show(std::string_view label, std::uint64_t done, std::uint64_t total);

 private:
  void begin(std::string_view label);
  void end_line();
  std::string bar_line(std::uint64_t total, double elapsed) const;
  std::string amount(std::uint64_t value) const;

  const ProgressUnit unit_;
  const bool terminal_;
  std::string label_;
  std::uint64_t done_ = 0;
  int tenths_ = -1;  // how many tenths a plain line has told of
  bool open_ = false;
  bool finished_ = false;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace quarrel
