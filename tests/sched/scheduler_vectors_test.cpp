// Texts that become vectors: pooled into one or row by row, in chunks or, for an encoder, whole. And texts whose rows
// are of the class of answers.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "base/error.h"
#include "sched/driver.h"

namespace quarrel {
namespace {

using sim::Driver;
using sim::tokens_from;

SchedulerConfig decoder() {
  return {.block_tokens = 4, .groups = {{.blocks = 64}}, .context = 128, .max_rows = 16, .max_sequences = 8};
}

SchedulerConfig encoder() {
  return {.block_tokens = 4,
          .groups = {{.blocks = 64}},
          .context = 128,
          .max_rows = 40,
          .max_outputs = 32,
          .max_sequences = 4,
          .whole_texts = true};
}

SchedRequest pooled(TokenId first, std::int32_t count) {
  return {.prompt = tokens_from(first, count), .max_tokens = 0, .pooled = true};
}

SchedRequest rows_of_text(TokenId first, std::int32_t count) {
  return {.prompt = tokens_from(first, count), .max_tokens = 0, .prompt_outputs = PromptOutputs::vectors};
}

TEST(SchedulerVectors, APooledTextIsGatheredInOneLaneOverItsChunks) {
  for (const std::int32_t steps_in_flight : {1, 2}) {
    SchedulerConfig config = decoder();
    config.steps_in_flight = steps_in_flight;
    Driver driver(config);
    const RequestId id = driver.submit(pooled(0, 40));
    std::int32_t lane = -1;
    std::vector<std::int32_t> rows;
    while (driver.make_plan() || driver.in_flight() > 0) {
      if (driver.status == PlanStatus::planned) {
        if (rows.empty()) {
          ASSERT_EQ(driver.plan.lane_starts.size(), 1U);
          lane = driver.plan.lane_starts[0].lane;
        } else {
          EXPECT_TRUE(driver.plan.lane_starts.empty());
        }
        EXPECT_EQ(driver.plan.sequences[0].lane, lane);
        rows.push_back(driver.rows_of(id));
        ASSERT_EQ(driver.plan.outputs.size(), rows.size() == 3 ? 1U : 0U);
        if (rows.size() == 3) {
          EXPECT_EQ(driver.plan.outputs[0].kind, PlanOutput::Kind::pooled);
          EXPECT_EQ(driver.plan.outputs[0].row, 7);
          EXPECT_EQ(driver.plan.outputs[0].lane, lane);
        }
      }
      if (driver.in_flight() == static_cast<std::size_t>(steps_in_flight) || driver.status != PlanStatus::planned) {
        driver.finish_step();
      }
    }
    EXPECT_EQ(rows, (std::vector<std::int32_t>{16, 16, 8}));
    EXPECT_EQ(driver.end_of(id), FinishReason::length);
    EXPECT_EQ(driver.tokens_of(id), 0);
    EXPECT_EQ(driver.scheduler.counters().lanes_used, 0);
    driver.expect_all_free();
  }
}

// What a lane has gathered by then is lost or doubtful: keys and values alone are not enough to go on.
TEST(SchedulerVectors, APooledTextWhoseStepFailedBeginsAgain) {
  Driver driver(decoder());
  const RequestId id = driver.submit(pooled(0, 40));
  const RequestId plain = driver.submit({.prompt = tokens_from(100, 40), .max_tokens = 2});
  driver.step();
  driver.step();
  ASSERT_TRUE(driver.make_plan());
  ASSERT_GT(driver.plan.rows[0].position, 0);
  driver.abort_step();
  std::int32_t next = 0;
  std::int32_t plain_rows = 0;
  while (driver.make_plan()) {
    plain_rows += driver.rows_of(plain);
    for (const StepRow& row : driver.plan.rows) {
      if (driver.plan.owners[static_cast<std::size_t>(row.sequence)].request != id) continue;
      EXPECT_EQ(row.position, next++);
    }
    driver.finish_step();
  }
  EXPECT_EQ(next, 40);
  EXPECT_LT(plain_rows, 40);
  EXPECT_EQ(driver.end_of(id), FinishReason::length);
  driver.expect_all_free();
}

TEST(SchedulerVectors, EveryRowIsAnOutputAndNoneComesFromTheCache) {
  SchedulerConfig config = decoder();
  config.max_outputs = 12;
  Driver driver(config);
  driver.submit({.prompt = tokens_from(0, 40), .max_tokens = 1});
  driver.run();  // the cache has the text
  for (const bool whole : {false, true}) {
    const RequestId id = driver.submit(whole ? pooled(0, 40) : rows_of_text(0, 40));
    std::int32_t next = 0;
    std::int32_t outputs = 0;
    while (driver.make_plan()) {
      EXPECT_LE(driver.plan.outputs.size(), 12U);
      for (const StepRow& row : driver.plan.rows) EXPECT_EQ(row.position, next++);
      for (const PlanOutput& output : driver.plan.outputs) {
        EXPECT_EQ(output.kind, whole ? PlanOutput::Kind::pooled : PlanOutput::Kind::vector);
        EXPECT_EQ(driver.plan.rows[static_cast<std::size_t>(output.row)].position, whole ? 39 : outputs);
        ++outputs;
      }
      driver.finish_step();
    }
    EXPECT_EQ(next, 40);
    EXPECT_EQ(outputs, whole ? 1 : 40);
    EXPECT_EQ(driver.end_of(id), FinishReason::length);
  }
  driver.expect_all_free();
}

TEST(SchedulerVectors, VectorsShareTheStepWithAnswers) {
  Driver driver(decoder());
  const RequestId answer = driver.submit({.prompt = tokens_from(0, 4), .max_tokens = 30});
  for (int i = 0; i < 3; ++i) driver.step();
  const RequestId id = driver.submit(pooled(100, 30));
  while (driver.scheduler.counters().finished == 0) {
    ASSERT_TRUE(driver.step());
    EXPECT_EQ(driver.rows_of(answer), 1);
  }
  EXPECT_EQ(driver.end_of(id), FinishReason::length);
  driver.run();
  EXPECT_EQ(driver.tokens_of(answer), 30);
}

TEST(SchedulerVectors, WhatCannotBeMeantIsRefused) {
  Scheduler scheduler(decoder());
  const auto refused = [](Scheduler& by, SchedRequest request) {
    return by.submit(std::move(request), 1).status == SubmitStatus::malformed;
  };
  SchedRequest request = pooled(0, 8);
  EXPECT_FALSE(refused(scheduler, request));
  request.max_tokens = 1;
  EXPECT_TRUE(refused(scheduler, request));
  request.max_tokens = -1;
  EXPECT_TRUE(refused(scheduler, request));
  request = pooled(0, 8);
  request.branches = 2;
  EXPECT_TRUE(refused(scheduler, request));
  request = pooled(0, 8);
  request.prompt_outputs = PromptOutputs::scores;
  EXPECT_TRUE(refused(scheduler, request));
  request = rows_of_text(0, 8);
  EXPECT_FALSE(refused(scheduler, request));
  request.max_tokens = 3;
  EXPECT_TRUE(refused(scheduler, request));
  Scheduler whole(encoder());
  EXPECT_FALSE(refused(whole, pooled(0, 8)));
  EXPECT_TRUE(refused(whole, {.prompt = {1, 2}, .max_tokens = 4}));
  EXPECT_TRUE(refused(whole, {.prompt = {1, 2}}));
  EXPECT_TRUE(refused(whole, {.prompt = {1, 2}, .max_tokens = 0, .prompt_outputs = PromptOutputs::scores}));
  SchedulerConfig recurrent = encoder();
  recurrent.recurrent = true;
  recurrent.state_slots = 8;
  EXPECT_THROW(Scheduler{recurrent}, Error);
}

TEST(SchedulerWholeTexts, TextsShareAStepButNoneIsDivided) {
  Driver driver(encoder());
  std::vector<RequestId> ids;
  for (TokenId i = 0; i < 4; ++i) ids.push_back(driver.submit(pooled(100 * i, 15)));
  ASSERT_TRUE(driver.make_plan());
  EXPECT_EQ(driver.plan.sequences.size(), 2U);  // a third would be 45 rows of 40
  EXPECT_EQ(driver.plan.rows.size(), 30U);
  EXPECT_EQ(driver.plan.outputs.size(), 2U);
  EXPECT_EQ(driver.rows_of(ids[0]), 15);
  EXPECT_EQ(driver.rows_of(ids[1]), 15);
  driver.finish_step();
  EXPECT_EQ(driver.scheduler.counters().finished, 2U);
  driver.run();
  for (const RequestId id : ids) EXPECT_EQ(driver.end_of(id), FinishReason::length);
  EXPECT_EQ(driver.scheduler.counters().steps, 2U);
  driver.expect_all_free();
}

TEST(SchedulerWholeTexts, AShortOneFillsWhatALongOneLeaves) {
  Driver driver(encoder());
  const RequestId first = driver.submit(pooled(0, 30));
  const RequestId second = driver.submit(pooled(100, 20));
  const RequestId third = driver.submit(pooled(200, 10));
  ASSERT_TRUE(driver.make_plan());
  EXPECT_EQ(driver.rows_of(first), 30);
  EXPECT_EQ(driver.rows_of(second), 0);
  EXPECT_EQ(driver.rows_of(third), 10);
  driver.finish_step();
  ASSERT_TRUE(driver.make_plan());
  EXPECT_EQ(driver.rows_of(second), 20);
  driver.finish_step();
  driver.expect_all_free();
}

TEST(SchedulerWholeTexts, WhatFitsIntoNoStepIsRefused) {
  Driver driver(encoder());
  SubmitResult result = driver.scheduler.submit(pooled(0, 41), 1);
  EXPECT_EQ(result.status, SubmitStatus::too_long);
  EXPECT_EQ(result.limit, 40);
  result = driver.scheduler.submit(rows_of_text(0, 33), 1);
  EXPECT_EQ(result.status, SubmitStatus::too_long);
  EXPECT_EQ(result.limit, 32);  // outputs
  driver.submit(rows_of_text(0, 32));
  driver.submit(pooled(0, 40));
  driver.run();
  EXPECT_EQ(driver.scheduler.counters().finished, 2U);
  SchedulerConfig windowed = encoder();
  windowed.groups.push_back({.blocks = 5, .window = 4});  // a row sees those behind it too: all must be there at once
  EXPECT_EQ(Scheduler(windowed).longest(), 20);
}

TEST(SchedulerWholeTexts, AfterAFailureOneGoesAloneHoweverLong) {
  Driver driver(encoder());
  for (TokenId i = 0; i < 2; ++i) driver.submit(pooled(100 * i, 20));
  ASSERT_TRUE(driver.make_plan());
  EXPECT_EQ(driver.plan.sequences.size(), 2U);
  for (int failures = 0; failures < 4; ++failures) {
    driver.abort_step();
    ASSERT_TRUE(driver.make_plan());
    EXPECT_EQ(driver.plan.rows.size(), 20U);
    EXPECT_EQ(driver.plan.lane_starts.size(), 1U);
  }
  driver.finish_step();
  driver.run();
  EXPECT_EQ(driver.scheduler.counters().finished, 2U);
  driver.expect_all_free();
}

// A text takes a microsecond a row; others on the device have steps of ten.
TEST(SchedulerWholeTexts, PaceLimitsAStepToWhatOthersBearOrOneText) {
  Driver driver(encoder());
  driver.micros = [](const StepPlan& plan) { return static_cast<std::int64_t>(plan.rows.size()); };
  driver.pace_us = 10;
  for (int round = 0; round < 20; ++round) {
    for (TokenId i = 0; i < 4; ++i) driver.submit(pooled(100 * i, 7));
    driver.step();
    driver.step();
  }
  driver.run();
  for (TokenId i = 0; i < 4; ++i) driver.submit(pooled(100 * i, 7));
  driver.submit(pooled(1000, 38));
  ASSERT_TRUE(driver.make_plan());
  EXPECT_EQ(driver.plan.sequences.size(), 3U);  // three quarters of 30 microseconds
  driver.finish_step();
  std::int32_t longest = 0;
  while (driver.make_plan()) {
    longest = std::max(longest, static_cast<std::int32_t>(driver.plan.rows.size()));
    if (driver.plan.rows.size() > 22) {
      EXPECT_EQ(driver.plan.sequences.size(), 1U);
    }
    driver.finish_step();
  }
  EXPECT_EQ(longest, 38);  // it could not be divided, and was alone
  driver.expect_all_free();
}

TEST(SchedulerWholeTexts, AHigherPriorityGoesFirst) {
  Driver driver(encoder());
  std::vector<RequestId> batch;
  for (TokenId i = 0; i < 6; ++i) {
    SchedRequest request = pooled(100 * i, 30);
    request.priority = Priority::batch;
    batch.push_back(driver.submit(request));
  }
  driver.step();
  SchedRequest urgent = pooled(1000, 30);
  urgent.priority = Priority::interactive;
  const RequestId quick = driver.submit(urgent);
  ASSERT_TRUE(driver.make_plan());
  EXPECT_EQ(driver.rows_of(quick), 30);
  driver.finish_step();
  driver.run();
  for (const RequestId id : batch) EXPECT_EQ(driver.end_of(id), FinishReason::length);
  driver.expect_all_free();
}

// A decoder's prompt beside somebody else's stream: no decode rows of its own, and yet no step that is too long.
TEST(SchedulerVectors, PaceLimitsPromptsWithoutDecodeRowsToo) {
  SchedulerConfig config = decoder();
  config.context = 2000;
  config.groups = {{.blocks = 600}};
  config.max_rows = 512;
  Driver driver(config);
  driver.micros = [](const StepPlan& plan) { return 1000 + 100 * static_cast<std::int64_t>(plan.rows.size()); };
  driver.pace_us = 5000;
  driver.submit(pooled(0, 1900));
  std::vector<std::size_t> rows;
  while (driver.make_plan()) {
    rows.push_back(driver.plan.rows.size());
    EXPECT_LE(driver.micros(driver.plan), 3 * 5000);
    driver.finish_step();
  }
  EXPECT_GE(*std::max_element(rows.begin(), rows.end()), 80U);  // three quarters of fifteen milliseconds
  driver.pace_us = 0;
  driver.submit(pooled(0, 1900));
  ASSERT_TRUE(driver.make_plan());
  EXPECT_EQ(driver.plan.rows.size(), 512U);
}

TEST(SchedulerVectors, APromptMayBeComputedLikeAnAnswer) {
  Driver driver(decoder());
  driver.submit({.prompt = tokens_from(0, 12), .max_tokens = 1});
  driver.run();
  const RequestId id = driver.submit(
      {.prompt = tokens_from(0, 12), .max_tokens = 3, .prompt_outputs = PromptOutputs::scores, .generated = true});
  ASSERT_TRUE(driver.make_plan());
  EXPECT_EQ(driver.plan.rows.size(), 12U);  // what the cache has is of the other class
  EXPECT_EQ(driver.plan.generated_rows, 12);
  ASSERT_EQ(driver.plan.outputs.size(), 12U);
  for (std::size_t i = 0; i < 11; ++i) {
    EXPECT_EQ(driver.plan.outputs[i].kind, PlanOutput::Kind::score);
    EXPECT_EQ(driver.plan.outputs[i].score, static_cast<TokenId>(i + 1));
  }
  EXPECT_EQ(driver.plan.outputs[11].kind, PlanOutput::Kind::sample);
  driver.finish_step();
  driver.run();
  EXPECT_EQ(driver.tokens_of(id), 3);
  driver.expect_all_free();
}

}  // namespace
}  // namespace quarrel
