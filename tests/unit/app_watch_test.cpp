// What is told of a device's load while something is measured on it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/device_watch.h"
#include "base/error.h"

namespace quarrel {
namespace {

// In a state that a test chooses.
class StatedDevice final : public Device {
 public:
  explicit StatedDevice(std::optional<DeviceState> state) : state_(std::move(state)) {}
  std::string_view name() const noexcept override { return "stated"; }
  std::string description() const override { return "stated"; }
  KvType default_kv_type() const noexcept override { return KvType::f16; }
  bool supports(ActivationPrecision) const noexcept override { return true; }
  std::size_t memory_available() const override { return 0; }
  std::size_t memory_total() const override { return 0; }
  std::unique_ptr<Backend> make_backend(const BackendOptions&) override {
    fail(ErrorKind::unsupported, "it computes nothing");
  }
  std::optional<DeviceState> state() const override { return state_; }

 private:
  const std::optional<DeviceState> state_;
};

TEST(DeviceWatch, HostsHaveNoState) {
  DeviceWatch watch;
  watch.look(StatedDevice(std::nullopt));
  EXPECT_FALSE(watch.has_seen());
}

// A mean over the last second says nothing of what began just now.
TEST(DeviceWatch, LoadAndPowerAreOnlyToldOfWhatTakesASecond) {
  DeviceWatch watch;
  watch.look(StatedDevice(DeviceState{.busy = 0.5,
                                      .clock_hz = 1980e6,
                                      .memory_clock_hz = 3201e6,
                                      .watts = 600.0,
                                      .memory_used = 2'000'000'000,
                                      .memory_total = 150'000'000'000}));
  ASSERT_TRUE(watch.has_seen());
  EXPECT_EQ(watch.text(), "1980 MHz, memory 3201 MHz, 2.0 GB of 150.0 GB used; too short to tell load and power");
  const auto json = watch.json();
  EXPECT_TRUE(json["busy"].is_null());
  EXPECT_TRUE(json["watts"].is_null());
  EXPECT_DOUBLE_EQ(json["clock_hz"].get<double>(), 1980e6);
  EXPECT_EQ(json["memory_used"].get<std::uint64_t>(), 2'000'000'000u);
  EXPECT_FALSE(json.contains("missing"));
}

TEST(DeviceWatch, ThenTheyAreMeansOfTheWholeTime) {
  using std::chrono::milliseconds;
  const Clock::time_point begun = Clock::now();
  DeviceWatch watch(begun);
  const auto look = [&](milliseconds after, double busy, double watts) {
    watch.look(StatedDevice(DeviceState{.busy = busy, .watts = watts, .memory_used = 1, .memory_total = 2}),
               begun + after);
  };
  look(milliseconds(900), 0.0, 100.0);  // of what was before
  look(milliseconds(1000), 0.5, 500.0);
  look(milliseconds(1050), 0.0, 0.0);  // too soon after the one before
  look(milliseconds(1100), 1.0, 600.0);
  EXPECT_EQ(watch.text(), "busy 75 %, 550 W, 1 B of 2 B used");
  EXPECT_DOUBLE_EQ(watch.json()["busy"].get<double>(), 0.75);
  EXPECT_DOUBLE_EQ(watch.json()["watts"].get<double>(), 550.0);
}

// Some drivers tell a part.
TEST(DeviceWatch, WhatIsNotToldLeavesNoTrace) {
  const Clock::time_point begun = Clock::now();
  DeviceWatch watch(begun);
  watch.look(StatedDevice(DeviceState{.clock_hz = 1980e6, .memory_used = 1, .memory_total = 2}),
             begun + std::chrono::seconds(2));
  EXPECT_EQ(watch.text(), "1980 MHz, 1 B of 2 B used");
}

TEST(DeviceWatch, SaysWhyItKnowsLittle) {
  DeviceWatch watch;
  watch.look(StatedDevice(DeviceState{
      .memory_used = 1'000'000'000, .memory_total = 24'000'000'000, .missing = "libnvidia-ml.so.1 is not there"}));
  EXPECT_EQ(watch.text(), "1.0 GB of 24.0 GB used; the rest is not known: libnvidia-ml.so.1 is not there");
  EXPECT_EQ(watch.json()["missing"], "libnvidia-ml.so.1 is not there");
}

}  // namespace
}  // namespace quarrel
