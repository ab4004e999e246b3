// A hundred thousand requests (fewer in builds that are not optimised) from four threads, every one of them cancelled,
// at once or branch by branch: while it waits, while it runs, or just after its end. Nothing of them may stay behind,
// and nobody after them may notice.
#include "engine/cancel_storm.h"

#include <gtest/gtest.h>

namespace quarrel::test {
namespace {

using storm::expect_a_storm_to_pass;

#if defined(NDEBUG)
constexpr std::size_t kEach = 25'000;
#elif defined(__SANITIZE_THREAD__)
constexpr std::size_t kEach = 500;  // two thousand take it longer than the others all of them
#else
constexpr std::size_t kEach = 5'000;  // a build for debugging, or for the other sanitizers
#endif

// Fewer blocks than the sequences would fill.
const Setting kScarce{.sequences = 12, .cache_tokens = 384};
const Setting kTwoInFlight{.sequences = 12, .cache_tokens = 384, .steps_in_flight = 2, .late = true};

TEST(CancelStorm, ADenseModel) { expect_a_storm_to_pass("llama", kEach, kScarce); }

TEST(CancelStorm, ARecurrentModel) { expect_a_storm_to_pass("granitehybrid", kEach / 10, kScarce); }

TEST(CancelStorm, TwoStepsInFlight) { expect_a_storm_to_pass("llama", kEach / 10, kTwoInFlight); }

TEST(CancelStorm, TwoStepsInFlightOfARecurrentModel) {
  expect_a_storm_to_pass("granitehybrid", kEach / 10, kTwoInFlight);
}

}  // namespace
}  // namespace quarrel::test
