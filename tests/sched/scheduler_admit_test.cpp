// When a branch that waits is tried, and what it must find to start.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "sched/driver.h"

namespace quarrel {
namespace {

using sim::Driver;
using sim::tokens_from;

SchedulerConfig dense(std::int32_t blocks, std::int32_t sequences = 8) {
  return {
      .block_tokens = 4, .groups = {{.blocks = blocks}}, .context = 128, .max_rows = 64, .max_sequences = sequences};
}

std::vector<std::int32_t> told_ahead(const Driver& driver, RequestId id) {
  std::vector<std::int32_t> told;
  for (const SchedEvent& event : driver.events) {
    if (event.kind == SchedEvent::Kind::waiting && event.request == id) told.push_back(event.ahead);
  }
  return told;
}

TEST(SchedulerAdmit, WhoAskedIsToldHowManyWouldStartBefore) {
  SchedulerConfig config = dense(64, 1);
  config.ageing_us = 1'000'000'000;
  Driver driver(config);
  driver.micros = [](const StepPlan&) { return std::int64_t{300'000}; };
  const auto patient = [](TokenId first, bool asks) -> SchedRequest {
    return {.prompt = tokens_from(first, 8), .max_tokens = 4, .priority = Priority::batch, .tell_reading = asks};
  };
  const RequestId runs = driver.submit({.prompt = tokens_from(0, 8), .max_tokens = 8, .tell_reading = true});
  const RequestId silent = driver.submit(patient(100, false));
  const RequestId second = driver.submit(patient(200, true));
  const RequestId third = driver.submit(patient(300, true));
  driver.step();
  EXPECT_EQ(told_ahead(driver, second), (std::vector<std::int32_t>{1}));
  EXPECT_EQ(told_ahead(driver, third), (std::vector<std::int32_t>{2}));
  const RequestId urgent = driver.submit({.prompt = tokens_from(400, 8), .max_tokens = 4});
  driver.run();
  EXPECT_EQ(told_ahead(driver, second), (std::vector<std::int32_t>{1, 2, 1, 0}));
  EXPECT_EQ(told_ahead(driver, third), (std::vector<std::int32_t>{2, 3, 2, 1, 0}));
  for (const RequestId id : {runs, silent, urgent}) EXPECT_TRUE(told_ahead(driver, id).empty());
}

TEST(SchedulerAdmit, AQueueThatMovesQuicklyIsToldNowAndThen) {
  Driver driver(dense(64, 1));  // steps of a millisecond
  std::vector<RequestId> asked;
  for (int i = 0; i < 20; ++i) {
    asked.push_back(driver.submit({.prompt = tokens_from(100 * i, 8), .max_tokens = 4, .tell_reading = true}));
  }
  driver.run();
  EXPECT_EQ(told_ahead(driver, asked.back()), (std::vector<std::int32_t>{18}));
}

TEST(SchedulerAdmit, AHeadThatDoesNotFitIsTriedAgainOnlyWhenSomethingWasFreed) {
  Driver driver(dense(24));
  const RequestId runs = driver.submit({.prompt = tokens_from(0, 40), .max_tokens = 30});
  driver.step();
  driver.step();
  const RequestId waits = driver.submit({.prompt = tokens_from(100, 60), .max_tokens = 1});
  const std::uint64_t before = driver.scheduler.counters().searches;
  while (driver.tokens_of(runs) < 30) {
    ASSERT_TRUE(driver.step());
    EXPECT_EQ(driver.rows_of(waits), 0);
  }
  EXPECT_EQ(driver.scheduler.counters().searches, before + 1);
  driver.step();
  EXPECT_EQ(driver.tokens_of(waits), 1);
}

// One ends in the step in which another forks: as many run as before, but there is more room.
TEST(SchedulerAdmit, RoomIsNoticedThoughAsManyRun) {
  Driver driver(dense(24));
  const RequestId ends = driver.submit({.prompt = tokens_from(0, 40), .max_tokens = 3});
  driver.step();
  driver.step();
  const RequestId forks = driver.submit({.prompt = tokens_from(100, 8), .max_tokens = 30, .branches = 2});
  const RequestId waits = driver.submit({.prompt = tokens_from(200, 40), .max_tokens = 1});
  driver.step();
  EXPECT_EQ(driver.tokens_of(ends), 3);
  EXPECT_EQ(driver.tokens_of(forks), 1);
  EXPECT_EQ(driver.rows_of(waits), 0);
  EXPECT_EQ(driver.scheduler.counters().running, 2);
  driver.step();
  EXPECT_GT(driver.rows_of(waits), 0);
}

// Short requests of a higher priority take its place.
void preempt_twice(Driver& driver, RequestId patient) {
  driver.step();
  for (int i = 0; i < 2; ++i) {
    while (driver.rows_of(patient) == 0) ASSERT_TRUE(driver.step());
    driver.submit({.prompt = tokens_from(200, 8), .max_tokens = 1});
    driver.step();
    EXPECT_EQ(driver.rows_of(patient), 0);
  }
  EXPECT_EQ(driver.scheduler.counters().preemptions, 2U);
}

// Twice preempted, it starts again only where there is room for all it may ever need.
TEST(SchedulerAdmit, WhoWasPreemptedTwiceWaitsForRoomForItsWholeAnswer) {
  SchedulerConfig config = dense(24, 2);
  config.ageing_us = 1'000'000'000;
  Driver driver(config);
  const RequestId other = driver.submit({.prompt = tokens_from(0, 8), .max_tokens = 40});
  const RequestId patient =
      driver.submit({.prompt = tokens_from(100, 8), .max_tokens = 72, .priority = Priority::batch});
  ASSERT_NO_FATAL_FAILURE(preempt_twice(driver, patient));
  // Twenty blocks in all: the other one must end first, though there is room for a beginning.
  while (driver.tokens_of(other) < 40) {
    ASSERT_TRUE(driver.step());
    EXPECT_EQ(driver.rows_of(patient), 0);
    EXPECT_GE(driver.scheduler.counters().groups[0].free + driver.scheduler.counters().groups[0].cached, 8);
  }
  driver.run();
  EXPECT_EQ(driver.tokens_of(patient), 72);
  EXPECT_EQ(driver.scheduler.counters().preemptions, 2U);
  driver.expect_all_free();
}

// Room for a whole context it would have only alone.
TEST(SchedulerAdmit, AnAnswerWithoutABoundWaitsForWhatItIsLikelyToNeed) {
  SchedulerConfig config = dense(64, 2);
  config.ageing_us = 1'000'000'000;
  Driver driver(config);
  const RequestId other = driver.submit({.prompt = tokens_from(0, 8), .max_tokens = 40});
  const RequestId patient =
      driver.submit({.prompt = tokens_from(100, 8), .max_tokens = -1, .priority = Priority::batch});
  ASSERT_NO_FATAL_FAILURE(preempt_twice(driver, patient));
  while (driver.rows_of(patient) == 0) ASSERT_TRUE(driver.step());
  EXPECT_LT(driver.tokens_of(other), 40) << "it runs beside the other one";
  driver.run();
  driver.expect_all_free();
}

TEST(SchedulerAdmit, OnlyOneRunsExemptAtATime) {
  SchedulerConfig config = dense(64, 2);
  config.ageing_us = 1'000'000'000;
  Driver driver(config);
  std::vector<RequestId> batch;
  for (TokenId i = 0; i < 2; ++i) {
    batch.push_back(driver.submit({.prompt = tokens_from(100 * i, 8), .max_tokens = 40, .priority = Priority::batch}));
  }
  for (int i = 0; i < 3; ++i) {
    while (driver.rows_of(batch[0]) == 0 || driver.rows_of(batch[1]) == 0) ASSERT_TRUE(driver.step());
    for (TokenId each = 0; each < 2; ++each)
      driver.submit({.prompt = tokens_from(500 + 100 * each, 8), .max_tokens = 1});
    while (driver.scheduler.counters().waiting > 0) ASSERT_TRUE(driver.step());
  }
  EXPECT_EQ(driver.scheduler.counters().preemptions, 6U);
  int steps = 0;
  for (; driver.tokens_of(batch[0]) < 40; ++steps) {
    ASSERT_TRUE(driver.step());
    EXPECT_EQ(driver.rows_of(batch[1]), 0);
  }
  EXPECT_GT(steps, 10);
  // It stands before everybody; others may run beside it.
  driver.run();
  EXPECT_EQ(driver.tokens_of(batch[1]), 40);
  EXPECT_EQ(driver.scheduler.counters().most_preemptions, 3);
}

}  // namespace
}  // namespace quarrel
