#include "sched/simulator.h"

#include <gtest/gtest.h>

#include "sched/simulator_configs.h"
#include "support/sanitized.h"

namespace quarrel::sim {
namespace {

// A million steps in all, half of them with two in flight; or a third of that where each is ten times as slow. A
// failure names the seed that brings it back.
constexpr std::uint64_t kSeeds = test::kSanitized ? 3 : 10;

class SchedulerMachines : public testing::TestWithParam<std::tuple<NamedConfig, std::int32_t>> {};

TEST_P(SchedulerMachines, EveryAnswerIsRightAndNothingIsLost) {
  const auto& [named, steps_in_flight] = GetParam();
  std::uint64_t prefix_waits = 0;
  std::uint64_t priority_preemptions = 0;
  std::uint64_t wasted = 0;
  std::uint64_t waits = 0;
  std::int64_t no_memory = 0;
  std::int64_t vectors = 0;
  std::int64_t branches_cancelled = 0;
  std::int64_t prompts_handed_on = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "configuration " << named.name << ", seed " << seed);
    const std::int64_t steps = 50'000 / static_cast<std::int64_t>(simulator_configs().size()) + 1;
    Simulator simulator(seeded(with_steps(named.config, steps_in_flight), seed, steps));
    ASSERT_EQ(simulator.run(), "");
    const SimulatorReport& report = simulator.report();
    EXPECT_GT(report.answered, 20);
    EXPECT_GT(report.cut_short, 5);
    EXPECT_LE(report.counters.most_preemptions, 3);
    prefix_waits += report.counters.prefix_waits;
    priority_preemptions += report.counters.priority_preemptions;
    branches_cancelled += report.branches_cancelled;
    prompts_handed_on += report.prompts_handed_on;
    wasted += report.counters.wasted_rows;
    waits += report.counters.waits;
    no_memory += report.no_memory;
    vectors += report.vectors;
  }
  // What is to be tested did happen.
  const SchedulerConfig& scheduler = named.config.scheduler;
  EXPECT_EQ(prefix_waits > 0, scheduler.prefix_cache && !scheduler.whole_texts);
  EXPECT_EQ(waits > 0, steps_in_flight > 1);
  EXPECT_GT(branches_cancelled, 50);
  EXPECT_GT(wasted, 10U);
  EXPECT_GT(no_memory, 10);
  EXPECT_GT(vectors, 5);
  if (scheduler.whole_texts) return;
  EXPECT_GT(priority_preemptions, 0U);
  EXPECT_GT(prompts_handed_on, 10);
}

TEST(SchedulerSimulation, AnyMachine) {
  for (std::uint64_t seed = 1; seed <= 15 * kSeeds; ++seed) {
    for (const std::int32_t steps_in_flight : {1, 2}) {
      SCOPED_TRACE(testing::Message() << "random machine, seed " << seed << ", in flight " << steps_in_flight);
      Simulator simulator(seeded(with_steps(random_config(seed), steps_in_flight), seed, 1000));
      ASSERT_EQ(simulator.run(), "");
      EXPECT_LE(simulator.report().counters.most_preemptions, 3);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Configs, SchedulerMachines,
                         testing::Combine(testing::ValuesIn(simulator_configs()), testing::Values(1, 2)),
                         [](const auto& each) {
                           return std::get<0>(each.param).name + (std::get<1>(each.param) > 1 ? "TwoInFlight" : "");
                         });

}  // namespace
}  // namespace quarrel::sim
