#include "app/device_watch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <vector>

#include <nlohmann/json.hpp>

#include "app/progress_bar.h"

namespace quarrel {

void DeviceWatch::look(const Device& device, Clock::time_point now) {
  if (looks_ > 0 && now - looked_at_ < kEvery) return;
  looked_at_ = now;
  const std::optional<DeviceState> state = device.state();
  if (!state) return;
  ++looks_;
  const auto add = [](RunningMean& mean, const std::optional<double>& value) {
    if (value) mean.add(*value);
  };
  add(clock_hz_, state->clock_hz);
  add(memory_clock_hz_, state->memory_clock_hz);
  if (now - begun_at_ >= kSettled) {
    has_settled_ = true;
    add(busy_, state->busy);
    add(watts_, state->watts);
  }
  memory_used_ = std::max(memory_used_, state->memory_used);
  memory_total_ = state->memory_total;
  missing_ = state->missing;
}

std::string DeviceWatch::text() const {
  std::vector<std::string> parts;
  if (busy_.count() > 0) parts.push_back(fmt::format("busy {:.0f} %", 100.0 * busy_.mean()));
  if (watts_.count() > 0) parts.push_back(fmt::format("{:.0f} W", watts_.mean()));
  if (clock_hz_.count() > 0) parts.push_back(fmt::format("{:.0f} MHz", clock_hz_.mean() / 1e6));
  if (memory_clock_hz_.count() > 0) parts.push_back(fmt::format("memory {:.0f} MHz", memory_clock_hz_.mean() / 1e6));
  parts.push_back(fmt::format("{} of {} used", human_bytes(memory_used_), human_bytes(memory_total_)));
  std::string text = fmt::format("{}", fmt::join(parts, ", "));
  if (!missing_.empty()) {
    text += fmt::format("; the rest is not known: {}", missing_);
  } else if (!has_settled_) {
    text += "; too short to tell load and power";
  }
  return text;
}

nlohmann::ordered_json DeviceWatch::json() const {
  const auto mean = [](const RunningMean& value) -> nlohmann::ordered_json {
    if (value.count() == 0) return nullptr;
    return value.mean();
  };
  nlohmann::ordered_json json{
      {"busy", mean(busy_)},   {"clock_hz", mean(clock_hz_)}, {"memory_clock_hz", mean(memory_clock_hz_)},
      {"watts", mean(watts_)}, {"memory_used", memory_used_}, {"memory_total", memory_total_}};
  if (!missing_.empty()) json["missing"] = missing_;
  return json;
}

}  // namespace quarrel
