// What is accepted, how it ends, and what is reported of it.
#include <gtest/gtest.h>

#include "base/error.h"
#include "sched/driver.h"

namespace quarrel {
namespace {

using sim::Driver;
using sim::tokens_from;

SchedulerConfig small() {
  return {.block_tokens = 4, .groups = {{.blocks = 64}}, .context = 128, .max_rows = 64, .max_sequences = 8};
}

TEST(SchedulerRequests, WhatCannotRunIsRefusedWithNumbers) {
  Driver driver(small());
  Scheduler& scheduler = driver.scheduler;
  EXPECT_EQ(scheduler.submit({}, 1).status, SubmitStatus::empty);
  SubmitResult result = scheduler.submit({.prompt = tokens_from(0, 128)}, 1);
  EXPECT_EQ(result.status, SubmitStatus::too_long);
  EXPECT_EQ(result.tokens, 129);
  EXPECT_EQ(result.limit, 128);
  EXPECT_EQ(scheduler.submit({.prompt = tokens_from(0, 127)}, 1).status, SubmitStatus::accepted);
  EXPECT_EQ(scheduler.submit({.prompt = tokens_from(0, 128), .max_tokens = 0}, 1).status, SubmitStatus::accepted);
  result = scheduler.submit({.prompt = tokens_from(0, 100), .max_tokens = 29, .overflow = Overflow::refuse}, 1);
  EXPECT_EQ(result.status, SubmitStatus::too_long);
  EXPECT_EQ(result.tokens, 129);
  const SchedRequest exact{.prompt = tokens_from(0, 100), .max_tokens = 28, .overflow = Overflow::refuse};
  EXPECT_EQ(scheduler.submit(exact, 1).status, SubmitStatus::accepted);
  EXPECT_EQ(scheduler.submit({.prompt = {1, -1}}, 1).status, SubmitStatus::malformed);
  EXPECT_EQ(scheduler.submit({.prompt = {1}, .branches = 0}, 1).status, SubmitStatus::malformed);
  EXPECT_EQ(scheduler.submit({.prompt = {1}, .branches = 1'000'000}, 1).status, SubmitStatus::malformed);
  EXPECT_EQ(scheduler.submit({.prompt = {1}, .max_tokens = -2}, 1).status, SubmitStatus::malformed);
  EXPECT_EQ(scheduler.submit({.prompt = {1}, .keep = -1}, 1).status, SubmitStatus::malformed);
  EXPECT_EQ(scheduler.submit({.prompt = {1}, .stop_tokens = tokens_from(0, 100'000)}, 1).status,
            SubmitStatus::malformed);
  EXPECT_EQ(scheduler.counters().refused, 9U);
  driver.run();
  driver.expect_all_free();
}

TEST(SchedulerRequests, TheBlocksMayLimitATextBeforeTheContext) {
  Driver driver({.block_tokens = 4, .groups = {{.blocks = 5}}, .context = 128, .max_rows = 64, .max_sequences = 8});
  EXPECT_EQ(driver.scheduler.longest(), 20);
  const RequestId id = driver.submit({.prompt = tokens_from(0, 10), .max_tokens = 100});
  driver.run();
  EXPECT_EQ(driver.end_of(id), FinishReason::context);
  EXPECT_EQ(driver.tokens_of(id), 10);
  // A window holds only itself, so its blocks do not limit the text.
  const SchedulerConfig window{
      .block_tokens = 4, .groups = {{.blocks = 4, .window = 8}}, .context = 128, .max_rows = 64};
  SchedulerConfig config = window;
  config.max_sequences = 4;
  EXPECT_EQ(Scheduler(config).longest(), 128);
}

TEST(SchedulerRequests, ImpossibleConfigurationsAreErrors) {
  EXPECT_THROW(Scheduler({.groups = {}}), Error);
  EXPECT_THROW(Scheduler({.groups = {{.blocks = 0}}}), Error);
  EXPECT_THROW(Scheduler({.groups = {{.blocks = 8}}, .max_rows = 4, .max_sequences = 8}), Error);
  EXPECT_THROW(Scheduler({.block_tokens = 1, .groups = {{.blocks = 1}}}), Error);
  EXPECT_THROW(Scheduler({.groups = {}, .recurrent = true}), Error);
}

TEST(SchedulerRequests, AnswersEndByStopTokenOrLength) {
  Driver driver(small());
  const RequestId stops = driver.submit({.prompt = {1, 2, 3}, .max_tokens = 5, .stop_tokens = {9, 7, 8}});
  const RequestId ends = driver.submit({.prompt = {1, 2, 3}, .max_tokens = 5, .stop_tokens = {6, 8}});
  const RequestId fills = driver.submit({.prompt = {1, 2, 3}});
  const RequestId silent = driver.submit({.prompt = {1, 2, 3}, .max_tokens = 0});
  driver.run();
  EXPECT_EQ(driver.end_of(stops), FinishReason::stop);
  EXPECT_EQ(driver.tokens_of(stops), 1);
  EXPECT_EQ(driver.end_of(ends), FinishReason::length);
  EXPECT_EQ(driver.tokens_of(ends), 5);
  EXPECT_EQ(driver.end_of(fills), FinishReason::context);
  EXPECT_EQ(driver.tokens_of(fills), 125);
  EXPECT_EQ(driver.end_of(silent), FinishReason::length);
  EXPECT_EQ(driver.tokens_of(silent), 0);
  driver.expect_all_free();
}

TEST(SchedulerRequests, AShiftForgetsTheOlderHalfBehindWhatIsKept) {
  Driver driver(small());
  const RequestId id =
      driver.submit({.prompt = tokens_from(100, 20), .max_tokens = 150, .overflow = Overflow::shift, .keep = 10});
  while (driver.tokens_of(id) < 108) ASSERT_TRUE(driver.step());
  ASSERT_EQ(driver.events.back().kind, SchedEvent::Kind::shifted);
  EXPECT_EQ(driver.events.back().dropped, 59);  // half of 128 - 10
  ASSERT_TRUE(driver.make_plan());
  // The ten kept tokens are prompt still, eight of them from the cache; then what is left of the answer.
  EXPECT_EQ(driver.plan.generated_rows, 0);
  ASSERT_EQ(driver.plan.rows.size(), 2U);
  EXPECT_EQ(driver.plan.rows[0].position, 8);
  EXPECT_EQ(driver.plan.rows[1].token, 109);
  driver.finish_step();
  ASSERT_TRUE(driver.make_plan());
  EXPECT_EQ(driver.plan.generated_rows, 59);
  EXPECT_EQ(driver.plan.outputs.size(), 1U);
  driver.finish_step();
  driver.run();
  EXPECT_EQ(driver.end_of(id), FinishReason::length);
  EXPECT_EQ(driver.tokens_of(id), 150);
  driver.expect_all_free();
}

TEST(SchedulerRequests, AFullQueueSaysWhenToComeBack) {
  SchedulerConfig config = small();
  config.queue_limit = 3;
  Driver driver(config);
  for (int i = 0; i < 3; ++i) driver.submit({.prompt = {1, 2}, .max_tokens = 3});
  SubmitResult result = driver.scheduler.submit({.prompt = {1}}, driver.now_us);
  EXPECT_EQ(result.status, SubmitStatus::queue_full);
  EXPECT_EQ(result.retry_after_us, 1'000'000);  // nothing has ended yet: a guess
  driver.run();
  for (int i = 0; i < 8; ++i) {
    driver.submit({.prompt = {1, 2}, .max_tokens = 3});
    driver.run();  // every three milliseconds one ends
  }
  for (int i = 0; i < 3; ++i) driver.submit({.prompt = {1, 2}, .max_tokens = 3});
  const std::int64_t first = driver.scheduler.submit({.prompt = {1}}, driver.now_us).retry_after_us;
  const std::int64_t second = driver.scheduler.submit({.prompt = {1}}, driver.now_us).retry_after_us;
  EXPECT_GT(second, first);  // not all at once
  // What was refused at the beginning is still being sent to its moments; a minute is the most.
  EXPECT_LE(second, 60'000'000);
  driver.now_us += 10'000'000;
  const SubmitResult later = driver.scheduler.submit({.prompt = {1}}, driver.now_us);
  EXPECT_EQ(later.status, SubmitStatus::queue_full);
  EXPECT_NEAR(static_cast<double>(later.retry_after_us), 3000, 1500);
}

TEST(SchedulerRequests, TheQueueIsLimitedInTokensToo) {
  SchedulerConfig config = small();
  config.queue_token_limit = 150;
  Driver driver(config);
  driver.submit({.prompt = tokens_from(0, 100), .max_tokens = 1});
  EXPECT_EQ(driver.scheduler.submit({.prompt = tokens_from(0, 51)}, 1).status, SubmitStatus::queue_full);
  driver.submit({.prompt = tokens_from(0, 50), .max_tokens = 1});
  EXPECT_EQ(driver.scheduler.counters().waiting_tokens, 150);
  driver.run();
  EXPECT_EQ(driver.scheduler.counters().waiting_tokens, 0);
  driver.submit({.prompt = tokens_from(0, 120), .max_tokens = 1});
}

TEST(SchedulerRequests, ADeadlineEndsARequestWhereverItIs) {
  SchedulerConfig config = small();
  config.max_sequences = 1;
  Driver driver(config);
  const RequestId runs = driver.submit({.prompt = {1, 2}, .deadline_us = 5000});
  const RequestId waits = driver.submit({.prompt = {1, 2}, .deadline_us = 3000});
  const RequestId stays = driver.submit({.prompt = {1, 2}, .max_tokens = 3});
  driver.run();
  EXPECT_EQ(driver.end_of(runs), FinishReason::timeout);
  EXPECT_EQ(driver.tokens_of(runs), 5);
  EXPECT_EQ(driver.end_of(waits), FinishReason::timeout);
  EXPECT_EQ(driver.tokens_of(waits), 0);
  EXPECT_EQ(driver.end_of(stays), FinishReason::length);
  driver.expect_all_free();
}

// A step takes 1000 µs.
TEST(SchedulerRequests, PatienceBeginsAnewWithTheStartAndWithEachToken) {
  SchedulerConfig config = small();
  config.max_sequences = 1;
  Driver driver(config);
  const RequestId runs = driver.submit({.prompt = {1, 2}, .max_tokens = 10, .patience_us = 1500});
  const RequestId waits = driver.submit({.prompt = {1, 2}, .max_tokens = 10, .patience_us = 5000});
  const RequestId starts = driver.submit({.prompt = {1, 2}, .max_tokens = 10, .patience_us = 10'500});
  driver.run();
  EXPECT_EQ(driver.end_of(runs), FinishReason::length) << "longer than its patience, but never without a token";
  EXPECT_EQ(driver.end_of(waits), FinishReason::timeout);
  EXPECT_EQ(driver.tokens_of(waits), 0);
  EXPECT_EQ(driver.end_of(starts), FinishReason::length) << "what it had waited does not count after its start";
  driver.expect_all_free();
}

TEST(SchedulerRequests, PatienceEndsWithoutATokenAndTheDeadlineStillCounts) {
  Driver driver(small());
  const RequestId stuck = driver.submit({.prompt = {1, 2}, .max_tokens = 10, .patience_us = 2500});
  const RequestId short_lived =
      driver.submit({.prompt = {1, 2}, .max_tokens = 10, .deadline_us = 3000, .patience_us = 2500});
  driver.step();
  driver.step();
  driver.now_us += 2400;
  driver.step();
  EXPECT_EQ(driver.end_of(short_lived), FinishReason::timeout);
  driver.now_us += 2600;
  driver.run();
  EXPECT_EQ(driver.end_of(stuck), FinishReason::timeout);
  EXPECT_EQ(driver.tokens_of(stuck), 3);
  driver.expect_all_free();
}

TEST(SchedulerRequests, CancellingInAStepFreesItsBlocksWhenTheStepIsOver) {
  Driver driver(small());
  const RequestId id = driver.submit({.prompt = tokens_from(0, 10), .branches = 2});
  driver.step();
  ASSERT_TRUE(driver.make_plan());
  EXPECT_TRUE(driver.scheduler.cancel(id));
  EXPECT_FALSE(driver.scheduler.cancel(id));
  EXPECT_FALSE(driver.scheduler.cancel(12345));
  EXPECT_GT(driver.scheduler.counters().groups[0].used, 0);
  driver.collect();
  driver.finish_step();
  EXPECT_EQ(driver.end_of(id, 0), FinishReason::cancelled);
  EXPECT_EQ(driver.end_of(id, 1), FinishReason::cancelled);
  EXPECT_EQ(driver.tokens_of(id), 1);  // none of the step in which it went
  EXPECT_EQ(driver.scheduler.counters().groups[0].used, 0);
  driver.expect_all_free();
}

TEST(SchedulerRequests, ScoresAreWantedOfEveryPromptRowOnce) {
  SchedulerConfig config = small();
  config.max_rows = 8;
  Driver driver(config);
  const std::vector<TokenId> prompt = tokens_from(50, 21);
  driver.submit({.prompt = prompt, .max_tokens = 1});
  driver.run();
  driver.submit({.prompt = prompt, .max_tokens = 1, .branches = 1, .prompt_outputs = PromptOutputs::scores});
  std::vector<TokenId> scored;
  std::size_t sampled = 0;
  while (driver.make_plan()) {
    for (const PlanOutput& output : driver.plan.outputs) {
      if (output.score >= 0) {
        EXPECT_EQ(driver.plan.rows[static_cast<std::size_t>(output.row)].token + 1, output.score);
        scored.push_back(output.score);
      } else {
        ++sampled;
      }
    }
    driver.finish_step();
  }
  EXPECT_EQ(scored, tokens_from(51, 20));  // although the cache has the whole prompt
  EXPECT_EQ(sampled, 1U);
}

TEST(SchedulerRequests, CommitsOfOtherStepsAreRefused) {
  Driver driver(small());
  EXPECT_THROW(driver.scheduler.commit({}, 1), Error);
  EXPECT_THROW(driver.scheduler.abort_step(), Error);
  driver.submit({.prompt = {1}, .max_tokens = 1});
  ASSERT_TRUE(driver.make_plan());
  StepPlan second;
  EXPECT_THROW(driver.scheduler.plan(1, second), Error);
  EXPECT_THROW(driver.scheduler.commit({}, 1), Error);  // no results
  driver.finish_step();
  driver.expect_all_free();
}

}  // namespace
}  // namespace quarrel
