// The CPU device computes without denormals and to the nearest, on every thread and whatever the program around has
// set; that program's own mode is as it was after each step.
#include "backend/cpu/float_mode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>

#include "backend/cpu/cpu_backend.h"
#include "ops/harness.h"

namespace quarrel::test {
namespace {

// How another part of the program may have told the thread to round: down, up, towards zero.
#if defined(__x86_64__)
constexpr std::uint32_t kHostModes[] = {0x3f80, 0x5f80, 0x7f80};
#else
constexpr std::uint32_t kHostModes[] = {2u << 22, 1u << 22, 3u << 22};
#endif
constexpr std::uint32_t kUpwards = kHostModes[1];

std::uint32_t control() { return float_control() & ~kFloatFlags; }

// A mode for the thread that runs the test.
class HostMode {
 public:
  explicit HostMode(std::uint32_t mode) : before_(float_control()) { set_float_control(mode); }
  ~HostMode() { set_float_control(before_); }
  HostMode(const HostMode&) = delete;
  HostMode& operator=(const HostMode&) = delete;

 private:
  std::uint32_t before_;
};

void for_each_cpu_device(const std::function<void(const DeviceUnderTest&)>& test) {
  for_each_device([&](const DeviceUnderTest& device) {
    if (dynamic_cast<CpuDevice*>(&device.device) != nullptr) test(device);
  });
}

TEST(FloatMode, HoldsOnEveryWorkerDuringAStep) {
  for_each_cpu_device([](const DeviceUnderTest& device) {
    OpFixture fixture(device);
    const Activation in = fixture.input(random_matrix(4, 32, 1));
    const std::uint32_t before = control();
    std::atomic<int> wrong{0};
    fixture.run(StepPlan().add(0, 4, {}), in, [&](Backend&) {
      const auto look = [&] { wrong += control() == kFloatMode ? 0 : 1; };
      look();
      dynamic_cast<CpuDevice&>(device.device).pool().run([&](int, int) { look(); });
    });
    EXPECT_EQ(wrong.load(), 0);
    EXPECT_EQ(control(), before);
  });
}

TEST(FloatMode, IsGivenBackAfterAStepThatFails) {
  for_each_cpu_device([](const DeviceUnderTest& device) {
    OpFixture fixture(device);
    const Activation in = fixture.input(random_matrix(4, 32, 1));
    const HostMode mode(kUpwards);
    EXPECT_THROW(fixture.run(StepPlan().add(0, 4, {}), in, [](Backend&) { throw std::runtime_error("midway"); }),
                 std::runtime_error);
    EXPECT_EQ(control(), kUpwards);
  });
}

TEST(FloatMode, DenormalsAreZeroOnEveryWorker) {
  for_each_cpu_device([](const DeviceUnderTest& device) {
    OpFixture fixture(device);
    Floats x(6, 32);
    Floats weight(64, 32);
    for (std::size_t i = 0; i < 6; ++i) x.at(i, i) = i < 3 ? 1e-39f : 1e-20f;
    std::ranges::fill(weight.values, 1e-19f);  // times 1e-20: below the smallest normal number
    const Activation out = fixture.activation(64);
    const LinearOp op{.in = fixture.input(x), .weight = fixture.matrix(weight), .out = out};
    const Floats y = fixture.run(StepPlan().add(0, 6, {}), out, [&](Backend& b) { b.linear(op); });
    for (const float value : y.values) ASSERT_EQ(value, 0.0f);
  });
}

// Rounding that somebody has changed elsewhere in the program must not be seen in the bits.
TEST(FloatMode, TheHostsRoundingDoesNotMatter) {
  for_each_cpu_device([](const DeviceUnderTest& device) {
    OpFixture fixture(device);
    const Floats x = random_matrix(5, 96, 3);
    const std::vector<float> gain = random_matrix(1, 96, 4).values;
    const Activation out = fixture.activation(40);
    const LinearOp op{.in = fixture.input(x),
                      .before = {.kind = NormKind::rms, .epsilon = 1e-5f, .weight = fixture.vector(gain)},
                      .weight = fixture.matrix(random_matrix(40, 96, 5)),
                      .out = out};
    const auto run = [&] {
      return fixture.run(StepPlan().add(0, 5, {}), out, [&](Backend& b) { b.linear(op); }).values;
    };
    const std::vector<float> expected = run();
    for (const std::uint32_t mode : kHostModes) {
      const HostMode host(mode);
      EXPECT_EQ(run(), expected) << mode;
      EXPECT_EQ(control(), mode);
    }
  });
}

}  // namespace
}  // namespace quarrel::test
