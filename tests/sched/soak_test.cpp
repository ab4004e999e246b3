// The simulation at length: 10^7 steps over fresh seeds, or QUARREL_SOAK_STEPS of them, with one step in flight and as
// many with two.
#include <gtest/gtest.h>

#include <charconv>

#include "base/environment.h"
#include "sched/simulator_configs.h"

namespace quarrel::sim {
namespace {

class SchedulerSoak : public testing::TestWithParam<std::int32_t> {};

TEST_P(SchedulerSoak, EveryAnswerIsRightAndNothingIsLost) {
  std::int64_t wanted = 10'000'000;
  if (const auto text = environment("QUARREL_SOAK_STEPS")) {
    ASSERT_EQ(std::from_chars(text->data(), text->data() + text->size(), wanted).ec, std::errc{}) << *text;
  }
  constexpr std::int64_t kStepsASeed = 5000;
  std::int64_t done = 0;
  for (std::uint64_t seed = 1000; done < wanted; ++seed) {
    {
      SCOPED_TRACE(testing::Message() << "random machine, seed " << seed);
      Simulator simulator(seeded(with_steps(random_config(seed), GetParam()), seed, kStepsASeed));
      ASSERT_EQ(simulator.run(), "");
      done += simulator.report().steps;
    }
    for (const NamedConfig& named : simulator_configs()) {
      SCOPED_TRACE(testing::Message() << "configuration " << named.name << ", seed " << seed);
      Simulator simulator(seeded(with_steps(named.config, GetParam()), seed, kStepsASeed));
      ASSERT_EQ(simulator.run(), "");
      done += simulator.report().steps;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(InFlight, SchedulerSoak, testing::Values(1, 2));

}  // namespace
}  // namespace quarrel::sim
