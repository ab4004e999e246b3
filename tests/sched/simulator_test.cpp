#include "sched/simulator.h"

#include <gtest/gtest.h>

#include "sched/simulator_configs.h"

namespace quarrel::sim {
namespace {

// 10^5 steps in all; a failure names the seed that brings it back.
class SchedulerSimulation : public testing::TestWithParam<NamedConfig> {};

TEST_P(SchedulerSimulation, EveryAnswerIsRightAndNothingIsLost) {
  constexpr int kSeeds = 5;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "configuration " << GetParam().name << ", seed " << seed);
    SimulatorConfig config = GetParam().config;
    config.seed = seed;
    config.steps = 100'000 / kSeeds / static_cast<std::int64_t>(simulator_configs().size()) + 1;
    Simulator simulator(config);
    ASSERT_EQ(simulator.run(), "");
    const SimulatorReport& report = simulator.report();
    EXPECT_GT(report.answered, 20);
    if (getenv("DBG")) printf("%s stay %ld ans %ld cut %ld q %zu preempt %lu stalls %lu shifts %lu hit %lu miss %lu steps %lu aborted %lu gen %lu prompt %lu refused %lu\n", GetParam().name.c_str(), report.longest_stay, report.answered, report.cut_short, report.largest_queue, report.counters.preemptions, report.counters.stalls, report.counters.shifts, report.counters.cache_hit_tokens, report.counters.cache_miss_tokens, report.counters.steps, report.counters.aborted_steps, report.counters.generated_rows, report.counters.prompt_rows, report.counters.refused);
  }
}

INSTANTIATE_TEST_SUITE_P(Configs, SchedulerSimulation, testing::ValuesIn(simulator_configs()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace quarrel::sim
