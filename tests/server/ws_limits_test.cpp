// What WebSockets are held to, and what is counted for their broadcasts.
#include <gtest/gtest.h>

#include "server/ws_hub.h"
#include "server/ws_session.h"

namespace quarrel {
namespace {

using namespace std::chrono_literals;

TEST(MessageRate, LetsThroughWhatItSaysAndTwoSecondsInStore) {
  Clock::time_point now{};
  MessageRate rate(10.0, now);
  int taken = 0;
  for (int i = 0; i < 100; ++i) taken += rate.take(now) ? 1 : 0;
  EXPECT_EQ(taken, 20);
  for (int i = 0; i < 1000; ++i) {
    now += 10ms;  // ten times as fast as it may
    taken += rate.take(now) ? 1 : 0;
  }
  EXPECT_NEAR(taken, 20 + 100, 1);
  now += 1h;
  taken = 0;
  for (int i = 0; i < 100; ++i) taken += rate.take(now) ? 1 : 0;
  EXPECT_EQ(taken, 20);
}

TEST(MessageRate, ASlowOneLetsOneThrough) {
  Clock::time_point now{};
  MessageRate rate(0.1, now);
  EXPECT_TRUE(rate.take(now));
  EXPECT_FALSE(rate.take(now + 9s));
  EXPECT_TRUE(rate.take(now + 11s));
}

RequestFacts facts(const char* route, std::uint64_t key) {
  Caller caller;
  caller.key = key;
  return {.route = route, .caller = std::make_shared<const Caller>(caller)};
}

TEST(Activity, CountsTheWorkOfEachKey) {
  Activity activity;
  activity.begun(facts("POST /v1/completions", 1));
  activity.begun(facts("WS /ws", 2));
  activity.begun(facts("GET /ws", 2));  // an open connection is no work
  activity.begun(facts("", 2));
  activity.tokens(facts("WS /ws", 2), {.tokens = 3, .answers = 1});
  EXPECT_EQ(activity.of(1).running, 1u);
  EXPECT_EQ(activity.of(2).running, 1u);
  EXPECT_EQ(activity.of(2).tokens, 3u);
  EXPECT_EQ(activity.of(2).requests, 0u) << "it has not ended";
  RequestFacts answered = facts("WS /ws", 2);
  answered.model = "toy";
  activity.ended(answered);
  activity.ended(facts("GET /ws", 2));
  activity.ended(facts("POST /v1/completions", 1));  // it was for no model
  EXPECT_EQ(activity.of(2).running, 0u);
  EXPECT_EQ(activity.of(2).requests, 1u);
  EXPECT_EQ(activity.of(1).requests, 0u);
  EXPECT_EQ(activity.of(1).running, 0u);
  EXPECT_EQ(activity.of(3).running, 0u);
}

}  // namespace
}  // namespace quarrel
