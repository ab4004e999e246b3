#include "sched/simulator.h"

#include <gtest/gtest.h>

#include "sched/simulator_configs.h"

namespace quarrel::sim {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::int64_t kSteps = 100'000;
#else
constexpr std::int64_t kSteps = 1'000'000;
#endif

// So many steps in all; a failure names the seed that brings it back.
class SchedulerSimulation : public testing::TestWithParam<NamedConfig> {};

TEST_P(SchedulerSimulation, EveryAnswerIsRightAndNothingIsLost) {
  constexpr int kSeeds = 10;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "configuration " << GetParam().name << ", seed " << seed);
    const auto steps = kSteps / kSeeds / static_cast<std::int64_t>(simulator_configs().size()) + 1;
    Simulator simulator(seeded(GetParam().config, seed, steps));
    ASSERT_EQ(simulator.run(), "");
    const SimulatorReport& report = simulator.report();
    EXPECT_GT(report.answered, 20);
    EXPECT_GT(report.cut_short, 5);
    EXPECT_LE(report.counters.most_preemptions, 3);
  }
}

INSTANTIATE_TEST_SUITE_P(Configs, SchedulerSimulation, testing::ValuesIn(simulator_configs()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace quarrel::sim
