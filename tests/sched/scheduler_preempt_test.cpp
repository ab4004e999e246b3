// A higher priority does not wait behind lower ones that run: who is preempted, and who is not.
#include <gtest/gtest.h>

#include "sched/driver.h"

namespace quarrel {
namespace {

using sim::Driver;
using sim::tokens_from;

SchedulerConfig machine(std::int32_t blocks, std::int32_t sequences) {
  return {.block_tokens = 4,
          .groups = {{.blocks = blocks}},
          .context = 128,
          .max_rows = 64,
          .max_sequences = sequences,
          .ageing_us = 1'000'000};
}

// With so few slots that states compete for them, and no snapshots beside them.
SchedulerConfig recurrent_machine(std::int32_t slots) {
  SchedulerConfig config = machine(64, 4);
  config.recurrent = true;
  config.state_slots = slots;
  config.max_snapshots = 0;
  return config;
}

SchedRequest request(TokenId first, std::int32_t prompt, std::int32_t answer, Priority priority,
                     std::int32_t branches = 1) {
  return {.prompt = tokens_from(first, prompt), .max_tokens = answer, .branches = branches, .priority = priority};
}

TEST(SchedulerPreempt, ALowerPriorityGivesItsPlaceAndGoesOnLater) {
  Driver driver(machine(64, 1));
  const RequestId batch = driver.submit(request(0, 10, 20, Priority::batch));
  for (int i = 0; i < 3; ++i) driver.step();
  const RequestId quick = driver.submit(request(100, 6, 2, Priority::interactive));
  ASSERT_TRUE(driver.make_plan());
  EXPECT_EQ(driver.rows_of(quick), 6);
  EXPECT_EQ(driver.rows_of(batch), 0);
  driver.finish_step();
  while (driver.tokens_of(quick) < 2) ASSERT_TRUE(driver.step());
  EXPECT_EQ(driver.tokens_of(batch), 3);
  ASSERT_TRUE(driver.make_plan());
  EXPECT_EQ(driver.plan.rows[0].position, 12);  // its blocks were still there
  driver.finish_step();
  driver.run();
  EXPECT_EQ(driver.tokens_of(batch), 20);
  EXPECT_EQ(driver.scheduler.counters().priority_preemptions, 1U);
  EXPECT_EQ(driver.scheduler.counters().preemptions, 1U);
  driver.expect_all_free();
}

TEST(SchedulerPreempt, ForWantOfBlocksTheYoungestGoesAndNoMoreThanItTakes) {
  Driver driver(machine(24, 8));
  const RequestId old_one = driver.submit(request(0, 24, 60, Priority::normal));
  const RequestId young = driver.submit(request(100, 24, 60, Priority::normal));
  driver.step();
  driver.step();  // seven blocks each
  const RequestId quick = driver.submit(request(200, 44, 2, Priority::interactive));
  driver.step();
  EXPECT_EQ(driver.rows_of(old_one), 1);
  EXPECT_EQ(driver.rows_of(young), 0);
  EXPECT_EQ(driver.scheduler.counters().running, 2);
  EXPECT_EQ(driver.scheduler.counters().priority_preemptions, 1U);
  driver.run();
  EXPECT_EQ(driver.tokens_of(quick), 2);
  EXPECT_EQ(driver.tokens_of(young), 60);
  EXPECT_EQ(driver.scheduler.counters().vain_preemptions, 0U);
  driver.expect_all_free();
}

TEST(SchedulerPreempt, TheLowestGoesBeforeTheYoungest) {
  Driver driver(machine(64, 2));
  const RequestId batch = driver.submit(request(0, 8, 60, Priority::batch));
  driver.step();
  const RequestId normal = driver.submit(request(100, 8, 60, Priority::normal));
  driver.step();
  driver.step();
  driver.submit(request(200, 8, 2, Priority::interactive));
  driver.step();
  EXPECT_EQ(driver.rows_of(batch), 0);
  EXPECT_GT(driver.rows_of(normal), 0);
}

TEST(SchedulerPreempt, ForWantOfASlot) {
  Driver driver(recurrent_machine(2));
  driver.submit(request(0, 8, 40, Priority::interactive));
  const RequestId batch = driver.submit(request(100, 8, 40, Priority::batch));
  driver.step();
  driver.step();
  const RequestId quick = driver.submit(request(200, 8, 2, Priority::normal));
  driver.step();
  EXPECT_EQ(driver.rows_of(batch), 0);
  driver.run();
  EXPECT_EQ(driver.tokens_of(quick), 2);
  EXPECT_EQ(driver.tokens_of(batch), 40);
  EXPECT_EQ(driver.scheduler.counters().priority_preemptions, 1U);
  driver.expect_all_free();
}

// A prompt has ended in two branches, whose state is one until the next step copies it: the one with the copy goes.
TEST(SchedulerPreempt, AStateThatIsStillToBeCopiedIsNotTaken) {
  Driver driver(recurrent_machine(3));
  driver.submit(request(0, 8, 40, Priority::interactive));
  const RequestId batch = driver.submit(request(100, 8, 40, Priority::batch, 2));
  driver.step();
  ASSERT_EQ(driver.scheduler.counters().running, 3);
  const RequestId quick = driver.submit(request(200, 8, 2, Priority::normal));
  driver.step();
  EXPECT_EQ(driver.scheduler.counters().priority_preemptions, 1U);
  EXPECT_EQ(driver.scheduler.counters().running, 3);
  driver.run();
  EXPECT_EQ(driver.tokens_of(quick), 2);
  for (std::int32_t branch = 0; branch < 2; ++branch) EXPECT_EQ(driver.tokens_of(batch, branch), 40);
  EXPECT_EQ(driver.scheduler.counters().vain_preemptions, 0U);
  driver.expect_all_free();
}

// One runs, has waited for so many periods, and another comes: whether it is preempted.
bool preemptible(Priority runs, int periods, Priority comes) {
  Driver driver(machine(64, 1));
  const RequestId first = driver.submit(request(0, 8, 40, runs));
  driver.step();
  driver.now_us += periods * 1'000'000;
  driver.submit(request(100, 8, 2, comes));
  EXPECT_TRUE(driver.make_plan());
  const bool gave_way = driver.rows_of(first) == 0;
  EXPECT_EQ(driver.scheduler.counters().priority_preemptions, gave_way ? 1U : 0U);
  driver.finish_step();
  driver.run();
  EXPECT_EQ(driver.tokens_of(first), 40);
  return gave_way;
}

TEST(SchedulerPreempt, AgeProtects) {
  EXPECT_TRUE(preemptible(Priority::batch, 0, Priority::normal));
  EXPECT_TRUE(preemptible(Priority::batch, 0, Priority::interactive));
  EXPECT_FALSE(preemptible(Priority::batch, 1, Priority::normal));
  EXPECT_TRUE(preemptible(Priority::batch, 1, Priority::interactive));
  EXPECT_FALSE(preemptible(Priority::batch, 2, Priority::interactive));
  EXPECT_FALSE(preemptible(Priority::normal, 1, Priority::interactive));
}

TEST(SchedulerPreempt, NobodyGivesWayToAnEqualOrALower) {
  for (const Priority runs : {Priority::interactive, Priority::normal, Priority::batch}) {
    EXPECT_FALSE(preemptible(runs, 0, runs));
    EXPECT_FALSE(preemptible(runs, 0, Priority::batch));
  }
}

TEST(SchedulerPreempt, NobodyGoesIfThatWereNotEnough) {
  Driver driver(machine(24, 8));
  const RequestId quick = driver.submit(request(0, 60, 30, Priority::interactive));
  const RequestId batch = driver.submit(request(100, 10, 30, Priority::batch));
  for (int i = 0; i < 4; ++i) driver.step();
  ASSERT_EQ(driver.scheduler.counters().running, 2);
  const RequestId waits = driver.submit(request(200, 44, 2, Priority::interactive));
  const std::uint64_t searches = driver.scheduler.counters().searches;
  for (int i = 0; i < 4; ++i) {
    driver.step();
    EXPECT_EQ(driver.rows_of(batch), 1);
    EXPECT_EQ(driver.rows_of(quick), 1);
  }
  EXPECT_EQ(driver.scheduler.counters().preemptions, 0U);
  EXPECT_EQ(driver.scheduler.counters().searches, searches + 1);  // nothing was freed: it is not tried again
  driver.run();
  EXPECT_EQ(driver.tokens_of(waits), 2);
  EXPECT_EQ(driver.scheduler.counters().vain_preemptions, 0U);
}

// The second of two becomes the next only when the first has started: its turn is the next plan.
TEST(SchedulerPreempt, OneThatDidNotFitBeforeItWasTheNextMakesWayToo) {
  Driver driver(machine(24, 8));
  const RequestId batch = driver.submit(request(0, 24, 30, Priority::batch));
  driver.step();
  driver.step();
  driver.submit(request(100, 16, 30, Priority::interactive));
  const RequestId second = driver.submit(request(200, 44, 1, Priority::interactive));
  driver.step();
  EXPECT_EQ(driver.rows_of(batch), 1);
  EXPECT_EQ(driver.scheduler.counters().running, 2);
  driver.step();
  EXPECT_EQ(driver.rows_of(batch), 0);
  EXPECT_EQ(driver.scheduler.counters().priority_preemptions, 1U);
  driver.run();
  EXPECT_EQ(driver.tokens_of(second), 1);
}

TEST(SchedulerPreempt, WhatAPromptWouldStillHaveWantedIsRoom) {
  SchedulerConfig config = machine(24, 8);
  config.max_rows = 8;
  Driver driver(config);
  const RequestId quick = driver.submit(request(0, 4, 30, Priority::interactive));
  driver.step();
  driver.step();
  const RequestId batch = driver.submit(request(100, 60, 1, Priority::batch));
  driver.step();
  ASSERT_EQ(driver.scheduler.counters().running, 2);
  ASSERT_LE(driver.scheduler.counters().groups[0].used, 6);  // of the fifteen blocks of its prompt it has a few
  driver.submit(request(200, 40, 1, Priority::interactive));
  driver.step();
  EXPECT_EQ(driver.scheduler.counters().priority_preemptions, 1U);
  EXPECT_EQ(driver.rows_of(quick), 1);
  EXPECT_EQ(driver.rows_of(batch), 0);
}

TEST(SchedulerPreempt, BlocksThatVictimsShareAreFreedWithTheLastOfThem) {
  Driver driver(machine(24, 8));
  const RequestId quick = driver.submit(request(0, 4, 30, Priority::interactive));
  driver.submit(request(100, 40, 30, Priority::batch, 2));
  for (int i = 0; i < 3; ++i) driver.step();
  ASSERT_EQ(driver.scheduler.counters().groups[0].used, 2 + 12);
  const RequestId waits = driver.submit(request(200, 56, 1, Priority::interactive));  // 15 blocks
  driver.step();
  EXPECT_EQ(driver.scheduler.counters().priority_preemptions, 2U);
  EXPECT_EQ(driver.scheduler.counters().running, 2);
  EXPECT_EQ(driver.rows_of(quick), 1);
  driver.run();
  EXPECT_EQ(driver.tokens_of(waits), 1);
  driver.expect_all_free();
}

TEST(SchedulerPreempt, WhatItSharesWithAVictimIsNoRoom) {
  for (const std::int32_t length : {66, 74}) {  // seven blocks of its own, or nine; eight are there
    Driver driver(machine(24, 8));
    driver.submit(request(500, 20, 30, Priority::interactive));
    driver.submit(request(0, 40, 30, Priority::batch));
    driver.step();
    driver.step();
    ASSERT_EQ(driver.scheduler.counters().groups[0].used, 6 + 11);
    driver.submit(request(0, length, 1, Priority::interactive));
    driver.step();
    EXPECT_EQ(driver.scheduler.counters().priority_preemptions, length == 66 ? 1U : 0U);
    driver.run();
    EXPECT_EQ(driver.scheduler.counters().vain_preemptions, 0U);
    driver.expect_all_free();
  }
}

TEST(SchedulerPreempt, AfterThreeTimesItStays) {
  Driver driver(machine(64, 1));
  const RequestId batch = driver.submit(request(0, 8, 40, Priority::batch));
  driver.step();
  for (int i = 0; i < 3; ++i) {
    const RequestId quick = driver.submit(request(100, 8, 1, Priority::interactive));
    driver.step();
    EXPECT_EQ(driver.tokens_of(quick), 1);
    driver.step();
    driver.step();
  }
  EXPECT_EQ(driver.scheduler.counters().most_preemptions, 3);
  const RequestId last = driver.submit(request(100, 8, 1, Priority::interactive));
  while (driver.tokens_of(batch) < 40) {
    ASSERT_TRUE(driver.step());
    EXPECT_EQ(driver.rows_of(last), 0);
  }
  driver.run();
  EXPECT_EQ(driver.tokens_of(last), 1);
  EXPECT_EQ(driver.scheduler.counters().preemptions, 3U);
}

TEST(SchedulerPreempt, APauseLeavesEverybodyWhereHeIs) {
  Driver driver(machine(64, 1));
  const RequestId batch = driver.submit(request(0, 8, 10, Priority::batch));
  driver.step();
  driver.scheduler.pause();
  driver.submit(request(100, 8, 1, Priority::interactive));
  driver.step();
  EXPECT_EQ(driver.rows_of(batch), 1);
  EXPECT_EQ(driver.scheduler.counters().priority_preemptions, 0U);
}

}  // namespace
}  // namespace quarrel
