// The simulation at length: 10^7 steps over fresh seeds, or QUARREL_SOAK_STEPS of them.
#include <gtest/gtest.h>

#include <charconv>

#include "base/environment.h"
#include "sched/simulator_configs.h"

namespace quarrel::sim {
namespace {

TEST(SchedulerSoak, EveryAnswerIsRightAndNothingIsLost) {
  std::int64_t wanted = 10'000'000;
  if (const auto text = environment("QUARREL_SOAK_STEPS")) {
    ASSERT_EQ(std::from_chars(text->data(), text->data() + text->size(), wanted).ec, std::errc{}) << *text;
  }
  constexpr std::int64_t kStepsASeed = 5000;
  std::int64_t done = 0;
  for (std::uint64_t seed = 1000; done < wanted; ++seed) {
    {
      SCOPED_TRACE(testing::Message() << "random machine, seed " << seed);
      Simulator simulator(seeded(random_config(seed), seed, kStepsASeed));
      ASSERT_EQ(simulator.run(), "");
      done += simulator.report().steps;
    }
    for (const NamedConfig& named : simulator_configs()) {
      SCOPED_TRACE(testing::Message() << "configuration " << named.name << ", seed " << seed);
      Simulator simulator(seeded(named.config, seed, kStepsASeed));
      ASSERT_EQ(simulator.run(), "");
      done += simulator.report().steps;
    }
  }
}

}  // namespace
}  // namespace quarrel::sim
