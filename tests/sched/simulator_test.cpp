#include "sched/simulator.h"

#include <gtest/gtest.h>

#include "sched/simulator_configs.h"

namespace quarrel::sim {
namespace {

// A million steps in all, or a third of that where each is ten times as slow. A failure names the seed that brings it
// back.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kSeeds = 3;
#else
constexpr std::uint64_t kSeeds = 10;
#endif

class SchedulerMachines : public testing::TestWithParam<NamedConfig> {};

TEST_P(SchedulerMachines, EveryAnswerIsRightAndNothingIsLost) {
  std::uint64_t follows = 0;
  std::uint64_t displaced = 0;
  std::int64_t branches_cancelled = 0;
  std::int64_t prompts_handed_on = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "configuration " << GetParam().name << ", seed " << seed);
    const std::int64_t steps = 100'000 / static_cast<std::int64_t>(simulator_configs().size()) + 1;
    Simulator simulator(seeded(GetParam().config, seed, steps));
    ASSERT_EQ(simulator.run(), "");
    const SimulatorReport& report = simulator.report();
    EXPECT_GT(report.answered, 20);
    EXPECT_GT(report.cut_short, 5);
    EXPECT_LE(report.counters.most_preemptions, 3);
    follows += report.counters.follows;
    displaced += report.counters.displaced;
    branches_cancelled += report.branches_cancelled;
    prompts_handed_on += report.prompts_handed_on;
  }
  // What is to be tested did happen.
  EXPECT_EQ(follows > 0, GetParam().config.scheduler.prefix_cache);
  EXPECT_GT(displaced, 0U);
  EXPECT_GT(branches_cancelled, 100);
  EXPECT_GT(prompts_handed_on, 10);
}

TEST(SchedulerSimulation, AnyMachine) {
  for (std::uint64_t seed = 1; seed <= 30 * kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "random machine, seed " << seed);
    Simulator simulator(seeded(random_config(seed), seed, 1000));
    ASSERT_EQ(simulator.run(), "");
    EXPECT_LE(simulator.report().counters.most_preemptions, 3);
  }
}

INSTANTIATE_TEST_SUITE_P(Configs, SchedulerMachines, testing::ValuesIn(simulator_configs()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace quarrel::sim
