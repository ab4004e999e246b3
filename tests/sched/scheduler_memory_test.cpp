// Who holds what: forks, preemption, failed steps, failed allocations, and that all of it comes back.
#include <gtest/gtest.h>

#include <new>
#include <set>

#include "sched/driver.h"
#include "support/failing_allocation.h"

namespace quarrel {
namespace {

using sim::Driver;
using sim::tokens_from;

SchedulerConfig dense(std::int32_t blocks) {
  return {.block_tokens = 4, .groups = {{.blocks = blocks}}, .context = 128, .max_rows = 64, .max_sequences = 8};
}

TEST(SchedulerMemory, BranchesShareFullBlocksAndCopyTheLast) {
  SchedulerConfig config = dense(64);
  config.recurrent = true;
  config.state_slots = 10;
  Driver driver(config);
  const RequestId id = driver.submit({.prompt = tokens_from(0, 10), .max_tokens = 3, .branches = 3});
  ASSERT_TRUE(driver.make_plan());
  ASSERT_EQ(driver.plan.outputs.size(), 3U);
  for (std::int32_t branch = 0; branch < 3; ++branch) {
    EXPECT_EQ(driver.plan.outputs[static_cast<std::size_t>(branch)].row, 9);
    EXPECT_EQ(driver.plan.outputs[static_cast<std::size_t>(branch)].branch, branch);
  }
  const std::vector<std::int32_t> prompt = driver.table_of(id);
  const std::int32_t state = driver.plan.sequences[0].state_out;
  driver.finish_step();
  ASSERT_TRUE(driver.make_plan());
  ASSERT_EQ(driver.plan.sequences.size(), 3U);
  EXPECT_EQ(driver.plan.generated_rows, 3);
  std::set<std::int32_t> last;
  std::set<std::int32_t> states;
  for (std::int32_t branch = 0; branch < 3; ++branch) {
    const std::vector<std::int32_t> table = driver.table_of(id, branch);
    ASSERT_EQ(table.size(), 3U);
    EXPECT_EQ(table[0], prompt[0]);
    EXPECT_EQ(table[1], prompt[1]);
    last.insert(table[2]);
    states.insert(driver.sequence_of(id, branch)->state_in);
  }
  EXPECT_EQ(last.size(), 3U);
  EXPECT_EQ(states.size(), 3U);
  ASSERT_EQ(driver.plan.block_copies.size(), 2U);
  ASSERT_EQ(driver.plan.slot_copies.size(), 2U);
  for (const BlockCopy& copy : driver.plan.block_copies) {
    EXPECT_EQ(copy.from, prompt[2]);
    EXPECT_TRUE(last.contains(copy.to));
  }
  for (const SlotCopy& copy : driver.plan.slot_copies) EXPECT_EQ(copy.from, state);
  driver.finish_step();
  ASSERT_TRUE(driver.make_plan());
  EXPECT_TRUE(driver.plan.block_copies.empty() && driver.plan.slot_copies.empty());
  driver.finish_step();
  driver.run();
  for (std::int32_t branch = 0; branch < 3; ++branch) {
    EXPECT_EQ(driver.end_of(id, branch), FinishReason::length);
    EXPECT_EQ(driver.tokens_of(id, branch), 3);
  }
  driver.expect_all_free();
}

TEST(SchedulerMemory, APromptOfFullBlocksForksWithoutCopies) {
  Driver driver(dense(64));
  driver.submit({.prompt = tokens_from(0, 12), .max_tokens = 3, .branches = 3});
  driver.step();
  ASSERT_TRUE(driver.make_plan());
  EXPECT_EQ(driver.plan.sequences.size(), 3U);
  EXPECT_TRUE(driver.plan.block_copies.empty());
  driver.finish_step();
  driver.run();
  driver.expect_all_free();
}

TEST(SchedulerMemory, BranchesWithoutRoomRunLater) {
  SchedulerConfig config = dense(64);
  config.max_sequences = 2;
  Driver driver(config);
  const RequestId id = driver.submit({.prompt = tokens_from(0, 10), .max_tokens = 5, .branches = 4});
  driver.run();
  for (std::int32_t branch = 0; branch < 4; ++branch) EXPECT_EQ(driver.tokens_of(id, branch), 5);
  driver.expect_all_free();
}

TEST(SchedulerMemory, AFailedStepIsPlannedAgainWithItsCopies) {
  Driver driver(dense(64));
  driver.submit({.prompt = tokens_from(0, 10), .max_tokens = 8, .branches = 3});
  driver.step();
  ASSERT_TRUE(driver.make_plan());
  const StepPlan before = driver.plan;
  ASSERT_EQ(before.block_copies.size(), 2U);
  driver.abort_step();
  driver.collect();
  ASSERT_TRUE(driver.make_plan());
  EXPECT_EQ(driver.plan.rows.size(), 1U);  // half of three: it may have been too much
  ASSERT_EQ(driver.plan.block_copies.size(), 2U);
  EXPECT_EQ(driver.plan.block_copies[1].to, before.block_copies[1].to);
  driver.finish_step();
  driver.run();
  EXPECT_EQ(driver.tokens_of(1, 2), 8);
  EXPECT_EQ(driver.scheduler.counters().aborted_steps, 1U);
  driver.expect_all_free();
}

TEST(SchedulerMemory, AFailedStepTakesRecurrentTextsBackToTheirSnapshot) {
  SchedulerConfig config = dense(64);
  config.recurrent = true;
  config.state_slots = 12;
  Driver driver(config);
  const RequestId id = driver.submit({.prompt = tokens_from(0, 10), .max_tokens = 8});
  for (int i = 0; i < 4; ++i) driver.step();
  ASSERT_TRUE(driver.make_plan());
  driver.abort_step();
  driver.collect();
  ASSERT_TRUE(driver.make_plan());
  EXPECT_EQ(driver.plan.rows[0].position, 8);
  EXPECT_EQ(driver.plan.generated_rows, 0);
  driver.finish_step();
  driver.run();
  EXPECT_EQ(driver.tokens_of(id), 8);
  driver.expect_all_free();
}

TEST(SchedulerMemory, AFailedStepTakesStatesWithItThatWereStillToBeCopied) {
  SchedulerConfig config = dense(64);
  config.recurrent = true;
  config.state_slots = 12;
  Driver driver(config);
  const RequestId id = driver.submit({.prompt = {5}, .max_tokens = 4, .branches = 3});
  ASSERT_TRUE(driver.make_plan());
  driver.abort_step();  // from here on a row a step, then two
  driver.step();
  ASSERT_TRUE(driver.make_plan());
  ASSERT_EQ(driver.plan.sequences.size(), 2U);
  ASSERT_EQ(driver.plan.slot_copies.size(), 2U);  // the third branch is not in this step, but its copy is
  driver.abort_step();
  driver.collect();
  while (driver.make_plan()) {
    if (driver.sequence_of(id, 2) != nullptr && driver.tokens_of(id, 2) == 1 && driver.plan.rows[0].position == 0) {
      EXPECT_EQ(driver.sequence_of(id, 2)->state_in, -1);  // it begins again
    }
    EXPECT_TRUE(driver.plan.slot_copies.empty());
    driver.finish_step();
  }
  for (std::int32_t branch = 0; branch < 3; ++branch) EXPECT_EQ(driver.tokens_of(id, branch), 4);
  driver.expect_all_free();
}

TEST(SchedulerMemory, TheYoungestOfTheLowestPriorityGivesItsBlocks) {
  // Three texts of 14 tokens, which grow by as many: there are blocks for two and a half.
  Driver driver(dense(17));
  const RequestId old_batch =
      driver.submit({.prompt = tokens_from(0, 14), .max_tokens = 14, .priority = Priority::batch});
  const RequestId young_batch =
      driver.submit({.prompt = tokens_from(100, 14), .max_tokens = 14, .priority = Priority::batch});
  const RequestId quick =
      driver.submit({.prompt = tokens_from(200, 14), .max_tokens = 14, .priority = Priority::interactive});
  driver.step();
  ASSERT_EQ(driver.scheduler.counters().running, 3);
  while (driver.scheduler.counters().preemptions == 0) ASSERT_TRUE(driver.step());
  EXPECT_EQ(driver.rows_of(quick), 1);
  EXPECT_EQ(driver.rows_of(old_batch), 1);
  EXPECT_EQ(driver.rows_of(young_batch), 0);
  driver.run();
  for (const RequestId id : {old_batch, young_batch, quick}) {
    EXPECT_EQ(driver.end_of(id), FinishReason::length);
    EXPECT_EQ(driver.tokens_of(id), 14);
  }
  driver.expect_all_free();
}

TEST(SchedulerMemory, RecomputedAnswersKeepTheirClass) {
  SchedulerConfig config = dense(64);
  config.recurrent = true;
  config.state_slots = 2;
  config.max_sequences = 2;
  Driver driver(config);
  const RequestId id = driver.submit({.prompt = tokens_from(0, 9), .max_tokens = 20});
  for (int i = 0; i < 6; ++i) driver.step();
  ASSERT_TRUE(driver.make_plan());
  driver.abort_step();  // its state is lost, and no snapshot was kept
  ASSERT_TRUE(driver.make_plan());
  EXPECT_EQ(driver.plan.generated_rows, 0);
  while (driver.plan.sequences[0].length < 9) {
    driver.finish_step();
    ASSERT_TRUE(driver.make_plan());
  }
  EXPECT_TRUE(driver.plan.outputs.empty());
  driver.finish_step();
  ASSERT_TRUE(driver.make_plan());
  EXPECT_EQ(driver.plan.rows[0].position, 9);
  EXPECT_EQ(driver.plan.generated_rows, static_cast<std::int32_t>(driver.plan.rows.size()));
  driver.finish_step();
  driver.run();
  EXPECT_EQ(driver.tokens_of(id), 20);
}

// Its prompt goes at a row a step, while decoders want blocks and younger prompts, all shorter, want the row.
TEST(SchedulerMemory, TheBestAdvancesInEveryStepWhateverTheRest) {
  SchedulerConfig config = dense(33);
  Driver driver(config);
  driver.micros = [](const StepPlan& plan) {
    std::int64_t micros = 1000;
    for (std::size_t i = 0; i < plan.owners.size(); ++i)
      micros += plan.sequences[i].length < 70 ? 2000 * (plan.owners[i].rows - 1) : 10;
    return micros + 2500 * static_cast<std::int64_t>(plan.rows.size() - static_cast<std::size_t>(plan.generated_rows));
  };
  for (TokenId i = 0; i < 4; ++i) {
    driver.submit({.prompt = tokens_from(i * 100, 8), .max_tokens = 100, .priority = Priority::batch});
  }
  for (int i = 0; i < 6; ++i) driver.step();
  const RequestId quick =
      driver.submit({.prompt = tokens_from(1000, 60), .max_tokens = 20, .priority = Priority::interactive});
  while (driver.rows_of(quick) == 0) ASSERT_TRUE(driver.step());
  int idle = 0;
  for (int steps = 0; driver.tokens_of(quick) < 20; ++steps) {
    if (steps % 2 == 0)
      driver.scheduler.submit({.prompt = {3, steps}, .priority = Priority::interactive}, driver.now_us);
    ASSERT_TRUE(driver.step());
    idle += driver.rows_of(quick) == 0 ? 1 : 0;
  }
  EXPECT_LE(idle, 2);  // decode rows are measured alone now and then
  EXPECT_GT(driver.scheduler.counters().preemptions, 0U);
  EXPECT_EQ(driver.scheduler.counters().best_stalls, 0U);
}

TEST(SchedulerMemory, APromptStartsWhenThereIsRoomForAllOfIt) {
  Driver driver(dense(24));
  const RequestId first = driver.submit({.prompt = tokens_from(0, 60), .max_tokens = 8});
  const RequestId second = driver.submit({.prompt = tokens_from(100, 50), .max_tokens = 8});
  driver.step();
  EXPECT_EQ(driver.scheduler.counters().running, 1);  // 15 blocks of 24 are spoken for, 13 are wanted
  driver.run();
  EXPECT_EQ(driver.scheduler.counters().preemptions, 0U);
  EXPECT_EQ(driver.tokens_of(first), 8);
  EXPECT_EQ(driver.tokens_of(second), 8);
}

TEST(SchedulerMemory, AHundredThousandCancelledRequestsLeaveNothing) {
  SchedulerConfig config = dense(256);
  config.groups.push_back({.blocks = 64, .window = 10});
  config.recurrent = true;
  config.state_slots = 24;
  Scheduler scheduler(config);
  StepPlan plan;
  std::vector<SchedEvent> events;
  std::vector<TokenId> sampled;
  std::int64_t now = 1;
  std::uint64_t ends = 0;
  for (int i = 0; i < 100'000; ++i) {
    const SubmitResult result =
        scheduler.submit({.prompt = tokens_from(i % 7, 5 + i % 40), .max_tokens = 30, .branches = 1 + i % 3}, now);
    ASSERT_EQ(result.status, SubmitStatus::accepted);
    // It goes while it waits, while its first step is in flight, or some steps later.
    if (i % 4 == 0) scheduler.cancel(result.id);
    for (int step = 0; step < i % 4; ++step) {
      if (scheduler.plan(now, plan) != PlanStatus::planned) break;
      if (i % 4 == 1) scheduler.cancel(result.id);
      sampled.assign(plan.outputs.size(), 3);
      now += 100;
      scheduler.commit({.micros = 100, .sampled = sampled}, now);
    }
    scheduler.cancel(result.id);
    scheduler.take_events(events);
    for (const SchedEvent& event : events) ends += event.kind == SchedEvent::Kind::finished ? 1U : 0U;
  }
  EXPECT_EQ(ends, 33'334U + 2 * 33'333U + 3 * 33'333U);
  EXPECT_FALSE(scheduler.check().has_value());
  scheduler.clear_cache();
  const SchedulerCounters counters = scheduler.counters();
  EXPECT_EQ(counters.slots_used + counters.running + counters.waiting + counters.returning, 0);
  for (const GroupCounters& group : counters.groups) EXPECT_EQ(group.free, group.total);
}

TEST(SchedulerMemory, WhatAPromptFindsInTheCacheIsNoRoomForTheRestOfIt) {
  Driver driver(dense(24));
  driver.submit({.prompt = tokens_from(0, 41), .max_tokens = 1});
  driver.run();  // ten blocks are known and idle
  driver.submit({.prompt = tokens_from(500, 45), .max_tokens = 20});
  driver.step();
  driver.step();  // twelve are held, two free
  const RequestId id = driver.submit({.prompt = tokens_from(0, 56), .max_tokens = 1});
  for (int i = 0; i < 5; ++i) driver.step();
  EXPECT_EQ(driver.scheduler.counters().running, 1);
  driver.run();
  EXPECT_EQ(driver.scheduler.counters().preemptions, 0U);
  EXPECT_EQ(driver.tokens_of(id), 1);
}

TEST(SchedulerMemory, ADayOfWorkLeavesNoMoreMemoryTakenThanAnHour) {
  SchedulerConfig config = dense(48);
  config.queue_limit = 20;
  Scheduler scheduler(config);
  StepPlan plan;
  std::vector<SchedEvent> events;
  std::vector<TokenId> sampled;
  std::int64_t now = 1;
  std::uint64_t key = 0;
  std::vector<std::int64_t> taken;
  for (int hour = 0; hour < 12; ++hour) {
    for (int i = 0; i < 3000; ++i) {
      ++key;  // everybody is somebody else
      scheduler.submit({.prompt = tokens_from(i % 17, 1 + i % 60), .max_tokens = 1 + i % 30, .key = key}, now);
      if (scheduler.plan(now, plan) != PlanStatus::planned) continue;
      sampled.assign(plan.outputs.size(), 3);
      now += 100;
      scheduler.commit({.micros = 100, .sampled = sampled}, now);
      scheduler.take_events(events);
    }
    while (scheduler.plan(now, plan) == PlanStatus::planned) {
      sampled.assign(plan.outputs.size(), 3);
      scheduler.commit({.micros = 100, .sampled = sampled}, ++now);
      scheduler.take_events(events);
    }
    taken.push_back(test::live_bytes());
  }
  EXPECT_LE(taken.back(), taken[2] + 4096);
}

TEST(SchedulerMemory, WhenMemoryRunsOutInSubmitNothingHasHappened) {
  Driver driver(dense(64));
  const auto request = [] {
    return SchedRequest{.prompt = tokens_from(0, 30), .max_tokens = 4, .stop_tokens = {1, 2}, .branches = 3, .key = 9};
  };
  driver.submit(request());
  int failures = 0;
  for (int allowed = 0;; ++allowed) {
    SchedRequest next = request();
    const SchedulerCounters before = driver.scheduler.counters();
    test::fail_allocations_after(allowed);
    SubmitResult result;
    bool failed = false;
    try {
      result = driver.scheduler.submit(std::move(next), 1);
    } catch (const std::bad_alloc&) {
      failed = true;
    }
    test::fail_no_allocation();
    driver.collect();
    if (!failed) {
      EXPECT_EQ(result.status, SubmitStatus::accepted);
      break;
    }
    ++failures;
    EXPECT_EQ(driver.scheduler.counters().waiting, before.waiting);
    EXPECT_EQ(driver.scheduler.counters().waiting_tokens, before.waiting_tokens);
  }
  EXPECT_GT(failures, 5);
  driver.run();
  EXPECT_EQ(driver.scheduler.counters().finished, 2U);
  driver.expect_all_free();
}

TEST(SchedulerMemory, WhenMemoryRunsOutInPlanItIsPlannedLater) {
  int failures = 0;
  for (int allowed = 0; allowed < 40; ++allowed) {
    SchedulerConfig config = dense(64);
    config.recurrent = true;
    config.state_slots = 12;
    Driver driver(config);
    const RequestId id = driver.submit({.prompt = tokens_from(0, 30), .max_tokens = 70, .branches = 3});
    for (int round = 0; round < 30; ++round) {
      test::fail_allocations_after(allowed);
      driver.status = PlanStatus::nothing;
      try {
        driver.status = driver.scheduler.plan(driver.now_us, driver.plan);
      } catch (const std::bad_alloc&) {
        ++failures;
        driver.plan = {};
      }
      test::fail_no_allocation();
      driver.note_planned();
      if (driver.in_flight() > 0) driver.finish_step();
      if (round % 3 == 2) driver.step();
    }
    driver.run();
    for (std::int32_t branch = 0; branch < 3; ++branch) EXPECT_EQ(driver.tokens_of(id, branch), 70);
    driver.expect_all_free();
  }
  EXPECT_GT(failures, 20);
}

}  // namespace
}  // namespace quarrel
