// How busy a GPU was, how fast its clocks ran and what it drew while something was measured on it.
#pragma once

#include <chrono>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "app/statistics.h"
#include "backend/backend.h"
#include "base/clock.h"

namespace quarrel {

class DeviceWatch {
 public:
  DeviceWatch() : DeviceWatch(Clock::now()) {}
  explicit DeviceWatch(Clock::time_point now) : begun_at_(now) {}

  // Asks the device, unless it was asked a moment ago. Devices on the host tell nothing.
  void look(const Device& device, Clock::time_point now = Clock::now());

  bool has_seen() const noexcept { return looks_ > 0; }
  // "busy 97 %, 512 W, 1980 MHz, memory 3201 MHz, 18.2 GB of 150.1 GB used"; without the driver's library it says so.
  std::string text() const;
  nlohmann::ordered_json json() const;

 private:
  static constexpr std::chrono::milliseconds kEvery{100};
  // Load and power are means of the second before: earlier they tell of what was before.
  static constexpr std::chrono::seconds kSettled{1};

  Clock::time_point begun_at_;
  Clock::time_point looked_at_ = {};
  int looks_ = 0;
  bool has_settled_ = false;  // it looked when load and power told of what is measured
  RunningMean busy_, clock_hz_, memory_clock_hz_, watts_;
  std::size_t memory_used_ = 0;  // at most
  std::size_t memory_total_ = 0;
  std::string missing_;
};

}  // namespace quarrel
