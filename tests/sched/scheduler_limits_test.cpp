// Who may wait, how long one who may not is sent away for, and times at the edge of what there is.
#include <gtest/gtest.h>

#include <limits>

#include "sched/driver.h"

namespace quarrel {
namespace {

using sim::Driver;
using sim::tokens_from;

SchedulerConfig small() {
  return {.block_tokens = 4, .groups = {{.blocks = 64}}, .context = 128, .max_rows = 64, .max_sequences = 8};
}

SubmitStatus ask(Driver& driver, std::uint64_t key, std::int32_t tokens = 2) {
  return driver.scheduler.submit({.prompt = tokens_from(0, tokens), .max_tokens = 3, .key = key}, driver.now_us).status;
}

TEST(SchedulerLimits, NoneMeansThatAnyNumberMayWait) {
  SchedulerConfig config = small();
  config.queue_limit = 0;
  config.queue_token_limit = 0;
  Driver driver(config);
  for (int i = 0; i < 2000; ++i) ASSERT_EQ(ask(driver, static_cast<std::uint64_t>(i), 100), SubmitStatus::accepted);
  EXPECT_EQ(driver.scheduler.counters().waiting, 2000);
  driver.run();
  EXPECT_EQ(driver.scheduler.counters().finished, 2000U);
  driver.expect_all_free();
}

TEST(SchedulerLimits, OneKeyCannotFillTheQueueForAll) {
  SchedulerConfig config = small();
  config.queue_limit = 6;
  config.key_queue_limit = 4;
  Driver driver(config);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(ask(driver, 1), SubmitStatus::accepted);
  const SubmitResult refused = driver.scheduler.submit({.prompt = {1}, .key = 1}, driver.now_us);
  EXPECT_EQ(refused.status, SubmitStatus::queue_full);
  EXPECT_GT(refused.retry_after_us, 0);
  EXPECT_EQ(ask(driver, 2), SubmitStatus::accepted);
  EXPECT_EQ(ask(driver, 3), SubmitStatus::accepted);
  EXPECT_EQ(ask(driver, 4), SubmitStatus::queue_full);  // all places are taken
  driver.step();                                        // all run: nobody waits
  EXPECT_EQ(ask(driver, 1), SubmitStatus::accepted);
  driver.run();
  driver.expect_all_free();
}

TEST(SchedulerLimits, WhoWouldBeRefusedWhateverHeAsksIsToldBeforehand) {
  SchedulerConfig config = small();
  config.queue_limit = 3;
  config.key_queue_limit = 2;
  Driver driver(config);
  EXPECT_EQ(driver.scheduler.admits(1, driver.now_us).status, SubmitStatus::accepted);
  EXPECT_EQ(driver.scheduler.counters().waiting, 0) << "asking takes no place";
  for (int i = 0; i < 2; ++i) EXPECT_EQ(ask(driver, 1), SubmitStatus::accepted);
  const SubmitResult refused = driver.scheduler.admits(1, driver.now_us);
  EXPECT_EQ(refused.status, SubmitStatus::queue_full);
  EXPECT_GT(refused.retry_after_us, 0);
  EXPECT_EQ(driver.scheduler.counters().refused, 1U);
  EXPECT_EQ(driver.scheduler.admits(2, driver.now_us).status, SubmitStatus::accepted);
  EXPECT_EQ(ask(driver, 2), SubmitStatus::accepted);
  EXPECT_EQ(driver.scheduler.admits(3, driver.now_us).status, SubmitStatus::queue_full);
  driver.run();
  EXPECT_EQ(driver.scheduler.admits(1, driver.now_us).status, SubmitStatus::accepted);
  driver.scheduler.pause(true);
  EXPECT_EQ(driver.scheduler.admits(1, driver.now_us).status, SubmitStatus::draining);
  driver.expect_all_free();
}

TEST(SchedulerLimits, WhatContinuesACallMayWaitBesideAFullQueue) {
  SchedulerConfig config = small();
  config.queue_limit = 1;
  config.key_queue_limit = 1;
  Driver driver(config);
  EXPECT_EQ(ask(driver, 1), SubmitStatus::accepted);
  EXPECT_EQ(ask(driver, 1), SubmitStatus::queue_full);
  EXPECT_EQ(
      driver.scheduler.submit({.prompt = {1}, .max_tokens = 1, .key = 1, .continues = true}, driver.now_us).status,
      SubmitStatus::accepted);
  EXPECT_EQ(ask(driver, 2), SubmitStatus::queue_full);
  driver.run();
  EXPECT_EQ(driver.scheduler.counters().finished, 2U);
  driver.expect_all_free();
}

TEST(SchedulerLimits, OfOneKeyTokensAreCountedToo) {
  SchedulerConfig config = small();
  config.key_queue_token_limit = 100;
  Driver driver(config);
  EXPECT_EQ(ask(driver, 1, 120), SubmitStatus::accepted);  // a single one may always wait
  EXPECT_EQ(ask(driver, 1, 1), SubmitStatus::queue_full);
  EXPECT_EQ(ask(driver, 2, 60), SubmitStatus::accepted);
  EXPECT_EQ(ask(driver, 2, 41), SubmitStatus::queue_full);
  EXPECT_EQ(ask(driver, 2, 40), SubmitStatus::accepted);
  driver.run();
  EXPECT_EQ(ask(driver, 2, 100), SubmitStatus::accepted);
}

// What was cancelled while it waited counts no more.
TEST(SchedulerLimits, WhoLeavesTheQueueMakesRoomForHisKey) {
  SchedulerConfig config = small();
  config.key_queue_limit = 1;
  Driver driver(config);
  const RequestId id = driver.submit({.prompt = {1}, .key = 5});
  EXPECT_EQ(ask(driver, 5), SubmitStatus::queue_full);
  driver.scheduler.cancel(id);
  EXPECT_EQ(ask(driver, 5), SubmitStatus::accepted);
}

TEST(SchedulerLimits, AnIdleHourDoesNotCountAsWaiting) {
  SchedulerConfig config = small();
  config.queue_limit = 2;
  Driver driver(config);
  const auto one_ends = [&] {
    driver.submit({.prompt = {1, 2}, .max_tokens = 3});
    driver.run();
  };
  for (int i = 0; i < 8; ++i) one_ends();  // one every three milliseconds
  for (int i = 0; i < 3; ++i) {
    driver.now_us += std::int64_t{3600} * 1'000'000;
    one_ends();
  }
  for (int i = 0; i < 2; ++i) driver.submit({.prompt = {1, 2}, .max_tokens = 3});
  const SubmitResult result = driver.scheduler.submit({.prompt = {1}}, driver.now_us);
  ASSERT_EQ(result.status, SubmitStatus::queue_full);
  EXPECT_NEAR(static_cast<double>(result.retry_after_us), 3000, 1500);
}

TEST(SchedulerLimits, ADeadlineAtTheEndOfTimeIsNone) {
  constexpr std::int64_t kEndOfTime = std::numeric_limits<std::int64_t>::max();
  Driver driver(small());
  const RequestId never = driver.submit({.prompt = {1, 2}, .max_tokens = 30, .deadline_us = kEndOfTime});
  const RequestId soon = driver.submit({.prompt = {1, 2}, .max_tokens = 30, .deadline_us = 5000});
  const RequestId almost = driver.submit({.prompt = {1, 2}, .max_tokens = 30, .deadline_us = kEndOfTime - 1});
  for (int i = 0; i < 10; ++i) driver.step();
  const RequestId next = driver.submit({.prompt = {1, 2}, .max_tokens = 30, .deadline_us = driver.now_us + 3000});
  driver.run();
  EXPECT_EQ(driver.end_of(never), FinishReason::length);
  EXPECT_EQ(driver.end_of(soon), FinishReason::timeout);
  EXPECT_EQ(driver.end_of(almost), FinishReason::length);
  EXPECT_EQ(driver.end_of(next), FinishReason::timeout);
  driver.expect_all_free();
}

}  // namespace
}  // namespace quarrel
