// The CPU device computes without denormals and to the nearest, on every thread and whatever the program around has
// set; that program's own mode is as it was after each step.
#include "backend/cpu/float_mode.h"

#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>

#include "backend/cpu/cpu_backend.h"
#include "ops/harness.h"

namespace quarrel::test {
namespace {

constexpr std::uint32_t kFlags = 0x3f;  // what has happened, as against what is to happen

// A mode for the thread that runs the test.
class HostMode {
 public:
  explicit HostMode(std::uint32_t mode) : before_(_mm_getcsr()) { _mm_setcsr(mode); }
  ~HostMode() { _mm_setcsr(before_); }
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
    OpBench bench(device);
    const Activation in = bench.input(random_grid(4, 32, 1));
    const std::uint32_t before = _mm_getcsr();
    std::atomic<int> wrong{0};
    bench.run(StepPlan().add(0, 4, {}), in, [&](Backend&) {
      const auto look = [&] { wrong += (_mm_getcsr() & ~kFlags) == kFloatMode ? 0 : 1; };
      look();
      dynamic_cast<CpuDevice&>(device.device).pool().run([&](int, int) { look(); });
    });
    EXPECT_EQ(wrong.load(), 0);
    EXPECT_EQ(_mm_getcsr() & ~kFlags, before & ~kFlags);
  });
}

TEST(FloatMode, IsGivenBackAfterAStepThatFails) {
  for_each_cpu_device([](const DeviceUnderTest& device) {
    OpBench bench(device);
    const Activation in = bench.input(random_grid(4, 32, 1));
    const HostMode mode(0x5f80);  // towards positive infinity
    EXPECT_THROW(bench.run(StepPlan().add(0, 4, {}), in, [](Backend&) { throw std::runtime_error("midway"); }),
                 std::runtime_error);
    EXPECT_EQ(_mm_getcsr() & ~kFlags, 0x5f80u);
  });
}

TEST(FloatMode, DenormalsAreZeroOnEveryWorker) {
  for_each_cpu_device([](const DeviceUnderTest& device) {
    OpBench bench(device);
    Floats x(6, 32);
    Floats weight(64, 32);
    for (std::size_t i = 0; i < 6; ++i) x.at(i, i) = i < 3 ? 1e-39f : 1e-20f;
    std::ranges::fill(weight.values, 1e-19f);  // times 1e-20: below the smallest normal number
    const Activation out = bench.activation(64);
    const LinearOp op{.in = bench.input(x), .weight = bench.matrix(weight), .out = out};
    const Floats y = bench.run(StepPlan().add(0, 6, {}), out, [&](Backend& b) { b.linear(op); });
    for (const float value : y.values) ASSERT_EQ(value, 0.0f);
  });
}

// Rounding that somebody has changed elsewhere in the program must not be seen in the bits.
TEST(FloatMode, TheHostsRoundingDoesNotMatter) {
  for_each_cpu_device([](const DeviceUnderTest& device) {
    OpBench bench(device);
    const Floats x = random_grid(5, 96, 3);
    const std::vector<float> gain = random_grid(1, 96, 4).values;
    const Activation out = bench.activation(40);
    const LinearOp op{.in = bench.input(x),
                      .before = {.kind = NormKind::rms, .epsilon = 1e-5f, .weight = bench.vector(gain)},
                      .weight = bench.matrix(random_grid(40, 96, 5)),
                      .out = out};
    const auto run = [&] { return bench.run(StepPlan().add(0, 5, {}), out, [&](Backend& b) { b.linear(op); }).values; };
    const std::vector<float> expected = run();
    for (const std::uint32_t mode : {0x3f80u, 0x5f80u, 0x7f80u}) {  // down, up, towards zero
      const HostMode host(mode);
      EXPECT_EQ(run(), expected) << mode;
      EXPECT_EQ(_mm_getcsr() & ~kFlags, mode);
    }
  });
}

}  // namespace
}  // namespace quarrel::test
