// Two steps in flight: the second is planned while the first runs, and what is learned late costs a row, never a text.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/error.h"
#include "sched/driver.h"

namespace quarrel {
namespace {

using sim::Driver;
using sim::tokens_from;

SchedulerConfig dense(std::int32_t blocks = 64) {
  return {.block_tokens = 4,
          .groups = {{.blocks = blocks}},
          .context = 128,
          .max_rows = 64,
          .max_sequences = 8,
          .steps_in_flight = 2};
}

SchedulerConfig hybrid() {
  SchedulerConfig config = dense();
  config.recurrent = true;
  config.state_slots = 16;
  return config;
}

TokenId token_of(const Driver& driver, RequestId id) {
  for (const StepRow& row : driver.plan.rows) {
    if (driver.plan.owners[static_cast<std::size_t>(row.sequence)].request == id) return row.token;
  }
  ADD_FAILURE() << "request " << id << " has no row";
  return 0;
}

TEST(SchedulerFlight, ARowNamesItsTokenByTheOutputThatSamplesIt) {
  Driver driver(dense());
  const RequestId other = driver.submit({.prompt = tokens_from(50, 6), .max_tokens = 4});
  const RequestId id = driver.submit({.prompt = tokens_from(0, 10), .max_tokens = 3});
  ASSERT_TRUE(driver.make_plan());
  ASSERT_EQ(driver.plan.outputs.size(), 2U);
  std::vector<RequestId> samples;
  for (const PlanOutput& output : driver.plan.outputs) samples.push_back(output.request);
  ASSERT_TRUE(driver.make_plan());
  for (const RequestId each : {other, id}) {
    const auto output = std::find(samples.begin(), samples.end(), each) - samples.begin();
    EXPECT_EQ(token_of(driver, each), ~static_cast<TokenId>(output));
  }
  EXPECT_EQ(driver.sequence_of(id)->length, 11);
  EXPECT_EQ(driver.plan.generated_rows, 2);
  StepPlan third;
  EXPECT_THROW(driver.scheduler.plan(driver.now_us, third), Error);  // two are all there may be
  driver.finish_step();
  EXPECT_EQ(driver.tokens_of(id), 1);
  // Of the next token it is known that it is the last: no row comes after it.
  ASSERT_TRUE(driver.make_plan());
  EXPECT_EQ(driver.rows_of(id), 1);
  driver.finish_step();
  ASSERT_TRUE(driver.make_plan());
  EXPECT_EQ(driver.rows_of(id), 0);
  EXPECT_EQ(driver.rows_of(other), 1);
  driver.run();
  EXPECT_EQ(driver.tokens_of(id), 3);
  EXPECT_EQ(driver.tokens_of(other), 4);
  EXPECT_EQ(driver.scheduler.counters().wasted_rows, 0U);
  driver.expect_all_free();
}

TEST(SchedulerFlight, OneStepInFlightIsTheRuleUnlessTwoAreAskedFor) {
  SchedulerConfig config = dense();
  config.steps_in_flight = 1;
  Driver driver(config);
  driver.submit({.prompt = tokens_from(0, 10), .max_tokens = 3});
  ASSERT_TRUE(driver.make_plan());
  StepPlan second;
  EXPECT_THROW(driver.scheduler.plan(driver.now_us, second), Error);
  config.steps_in_flight = 3;
  EXPECT_THROW(Scheduler{config}, Error);
}

TEST(SchedulerFlight, WhatIsSampledLastMayOnlyBeWaitedFor) {
  Driver driver(dense());
  const RequestId id = driver.submit({.prompt = tokens_from(0, 10), .max_tokens = 1});
  ASSERT_TRUE(driver.make_plan());
  EXPECT_FALSE(driver.make_plan());
  EXPECT_EQ(driver.status, PlanStatus::wait);
  driver.finish_step();
  EXPECT_EQ(driver.end_of(id), FinishReason::length);
  EXPECT_FALSE(driver.make_plan());
  EXPECT_EQ(driver.status, PlanStatus::nothing);
}

// The last place of the context is not run past either: there the text ends or shifts, which is decided by commit.
TEST(SchedulerFlight, NoRowStandsBehindTheContext) {
  for (const Overflow overflow : {Overflow::stop, Overflow::shift}) {
    Driver driver(dense());
    const RequestId id =
        driver.submit({.prompt = tokens_from(0, 120), .max_tokens = 30, .overflow = overflow, .keep = 4});
    while (driver.make_plan() || driver.in_flight() > 0) {
      for (const StepSequence& sequence : driver.plan.sequences) EXPECT_LE(sequence.length, 127);
      if (driver.in_flight() == 2 || driver.status != PlanStatus::planned) driver.finish_step();
    }
    EXPECT_EQ(driver.tokens_of(id), overflow == Overflow::stop ? 8 : 30);
    EXPECT_EQ(driver.scheduler.counters().wasted_rows, 0U);
    driver.expect_all_free();
  }
}

TEST(SchedulerFlight, AStopFoundLateCostsOneRow) {
  for (const SchedulerConfig& config : {dense(), hybrid()}) {
    Driver driver(config);
    const RequestId id = driver.submit({.prompt = tokens_from(0, 10), .max_tokens = 20, .stop_tokens = {7}});
    ASSERT_TRUE(driver.make_plan());
    ASSERT_TRUE(driver.make_plan());
    const SchedulerCounters before = driver.scheduler.counters();
    driver.finish_step();
    EXPECT_EQ(driver.end_of(id), FinishReason::stop);
    EXPECT_EQ(driver.scheduler.counters().groups[0].used, before.groups[0].used);  // a step may still write them
    EXPECT_EQ(driver.scheduler.counters().slots_used >= 1, config.recurrent);
    EXPECT_EQ(driver.scheduler.counters().lanes_used, 1);
    EXPECT_EQ(driver.scheduler.counters().finished, 0U);
    EXPECT_FALSE(driver.scheduler.idle());
    EXPECT_FALSE(driver.make_plan());
    EXPECT_EQ(driver.status, PlanStatus::nothing);
    driver.finish_step();
    EXPECT_EQ(driver.tokens_of(id), 1);
    EXPECT_EQ(driver.end_of(id), FinishReason::stop);
    EXPECT_EQ(driver.scheduler.counters().wasted_rows, 1U);
    EXPECT_EQ(driver.scheduler.counters().lanes_used, 0);
    EXPECT_EQ(driver.scheduler.counters().finished, 1U);
    driver.expect_all_free();
  }
}

TEST(SchedulerFlight, CancelledWithTwoInFlightItStaysUntilBothAreOver) {
  for (const bool fails : {false, true}) {
    Driver driver(hybrid());
    const RequestId id = driver.submit({.prompt = tokens_from(0, 10), .max_tokens = 20});
    const RequestId stays = driver.submit({.prompt = tokens_from(50, 10), .max_tokens = 6});
    ASSERT_TRUE(driver.make_plan());
    ASSERT_TRUE(driver.make_plan());
    EXPECT_TRUE(driver.scheduler.cancel(id));
    driver.collect();
    EXPECT_EQ(driver.end_of(id), FinishReason::cancelled);
    const std::int32_t used = driver.scheduler.counters().groups[0].used;
    driver.finish_step();
    EXPECT_EQ(driver.scheduler.counters().groups[0].used, used);
    ASSERT_TRUE(driver.make_plan());
    EXPECT_EQ(driver.rows_of(id), 0);
    if (fails) {
      driver.abort_step();
    } else {
      driver.finish_step();
    }
    EXPECT_EQ(driver.scheduler.counters().finished, 1U);
    driver.run();
    EXPECT_EQ(driver.tokens_of(id), 0);
    EXPECT_EQ(driver.tokens_of(stays), 6);
    driver.expect_all_free();
  }
}

TEST(SchedulerFlight, ADeadlineOrBadNumbersEndWhatIsInTheNextStepToo) {
  Driver driver(dense());
  const RequestId late = driver.submit({.prompt = tokens_from(0, 5), .max_tokens = 20, .deadline_us = 1500});
  const RequestId bad = driver.submit({.prompt = tokens_from(50, 6), .max_tokens = 20});
  ASSERT_TRUE(driver.make_plan());
  const std::size_t of_bad = driver.plan.owners[0].request == bad ? 0 : 1;
  ASSERT_TRUE(driver.make_plan());
  std::vector<std::uint8_t> flags(2, 0);
  flags[of_bad] = 1;
  driver.finish_step(flags);
  EXPECT_EQ(driver.end_of(bad), FinishReason::failed);
  driver.now_us = 2000;
  EXPECT_FALSE(driver.make_plan());
  EXPECT_EQ(driver.end_of(late), FinishReason::timeout);
  driver.finish_step();
  EXPECT_EQ(driver.tokens_of(late), 1);
  EXPECT_EQ(driver.tokens_of(bad), 0);
  EXPECT_EQ(driver.scheduler.counters().wasted_rows, 2U);
  driver.expect_all_free();
}

TEST(SchedulerFlight, ABranchWithoutATokenEndsAlone) {
  Driver driver(dense());
  const RequestId id = driver.submit({.prompt = tokens_from(0, 10), .max_tokens = 5, .branches = 3});
  ASSERT_TRUE(driver.make_plan());
  driver.finish_step({7, kNoToken, 7}, {});
  EXPECT_EQ(driver.end_of(id, 1), FinishReason::no_token);
  EXPECT_EQ(driver.tokens_of(id, 1), 0);
  ASSERT_TRUE(driver.make_plan());
  ASSERT_TRUE(driver.make_plan());
  driver.finish_step({kNoToken, 7}, {});
  EXPECT_EQ(driver.end_of(id, 0), FinishReason::no_token);
  EXPECT_EQ(driver.tokens_of(id, 0), 1);
  driver.run();
  EXPECT_EQ(driver.end_of(id, 2), FinishReason::length);
  EXPECT_EQ(driver.tokens_of(id, 2), 5);
  EXPECT_EQ(driver.scheduler.counters().wasted_rows, 1U);
  driver.expect_all_free();
}

TEST(SchedulerFlight, AForkWaitsForItsPromptAndOthersGoOn) {
  for (const SchedulerConfig& config : {dense(), hybrid()}) {
    Driver driver(config);
    const RequestId forks = driver.submit({.prompt = tokens_from(0, 10), .max_tokens = 6, .branches = 3});
    const RequestId single = driver.submit({.prompt = tokens_from(50, 10), .max_tokens = 6});
    ASSERT_TRUE(driver.make_plan());
    EXPECT_EQ(driver.plan.outputs.size(), 4U);
    ASSERT_TRUE(driver.make_plan());
    EXPECT_EQ(driver.rows_of(forks), 0);
    EXPECT_EQ(driver.rows_of(single), 1);
    driver.finish_step();
    ASSERT_TRUE(driver.make_plan());
    EXPECT_EQ(driver.rows_of(forks), 3);
    EXPECT_EQ(driver.plan.block_copies.size(), 2U);
    EXPECT_EQ(driver.plan.slot_copies.size(), config.recurrent ? 2U : 0U);
    const std::int32_t used = driver.scheduler.counters().groups[0].used;
    driver.finish_step();
    ASSERT_TRUE(driver.make_plan());
    EXPECT_EQ(driver.rows_of(forks), 3);
    EXPECT_TRUE(driver.plan.block_copies.empty());
    EXPECT_GE(driver.scheduler.counters().groups[0].used, used);
    driver.run();
    for (std::int32_t branch = 0; branch < 3; ++branch) EXPECT_EQ(driver.tokens_of(forks, branch), 6);
    EXPECT_EQ(driver.tokens_of(single), 6);
    driver.expect_all_free();
  }
}

// Whoever computes the prompt goes while its last row is in flight, and with it the row that others need.
TEST(SchedulerFlight, APromptIsHandedOnWithItsOutputs) {
  for (std::int32_t victim = 0; victim < 2; ++victim) {
    Driver driver(dense());
    const RequestId id = driver.submit({.prompt = tokens_from(0, 10), .max_tokens = 4, .branches = 2});
    ASSERT_TRUE(driver.make_plan());
    const std::int32_t lane = driver.plan.outputs[static_cast<std::size_t>(1 - victim)].lane;
    EXPECT_TRUE(driver.scheduler.cancel_branch(id, victim));
    // One is left: it goes on with the token of its own output.
    ASSERT_TRUE(driver.make_plan());
    ASSERT_EQ(driver.plan.rows.size(), 1U);
    EXPECT_EQ(driver.plan.rows[0].token, ~(1 - victim));
    EXPECT_EQ(driver.plan.owners[0].branch, 1 - victim);
    EXPECT_EQ(driver.plan.outputs[0].lane, lane);
    EXPECT_TRUE(driver.plan.lane_starts.empty());
    driver.finish_step({100, 200}, {});
    EXPECT_EQ(driver.events.back().token, victim == 0 ? 200 : 100);
    driver.run();
    EXPECT_EQ(driver.tokens_of(id, 1 - victim), 4);
    EXPECT_EQ(driver.tokens_of(id, victim), 0);
    EXPECT_EQ(driver.end_of(id, victim), FinishReason::cancelled);
    driver.expect_all_free();
  }
}

TEST(SchedulerFlight, NobodyIsPreemptedWhileAStepIsInFlight) {
  Driver driver(dense(17));  // for two and a half of the three
  std::vector<RequestId> ids;
  for (TokenId i = 0; i < 3; ++i) ids.push_back(driver.submit({.prompt = tokens_from(100 * i, 14), .max_tokens = 14}));
  std::uint64_t waited = 0;
  while (driver.make_plan() || driver.in_flight() > 0) {
    const std::uint64_t before = driver.scheduler.counters().preemptions;
    if (driver.in_flight() == 1 && driver.status == PlanStatus::planned) driver.make_plan();
    EXPECT_EQ(driver.scheduler.counters().preemptions, before);
    waited += driver.status == PlanStatus::wait ? 1 : 0;
    driver.finish_step();
  }
  EXPECT_GT(driver.scheduler.counters().preemptions, 0U);
  EXPECT_GT(waited, 0U);
  EXPECT_EQ(driver.scheduler.counters().best_stalls, 0U);
  for (const RequestId id : ids) EXPECT_EQ(driver.tokens_of(id), 14);
  driver.expect_all_free();
}

TEST(SchedulerFlight, AHigherPriorityStartsWhenTheStepInFlightIsOver) {
  SchedulerConfig config = dense();
  config.max_sequences = 1;
  Driver driver(config);
  const RequestId batch = driver.submit({.prompt = tokens_from(0, 10), .max_tokens = 10, .priority = Priority::batch});
  driver.step();
  ASSERT_EQ(driver.in_flight(), 1U);
  const RequestId quick =
      driver.submit({.prompt = tokens_from(50, 10), .max_tokens = 3, .priority = Priority::interactive});
  EXPECT_FALSE(driver.make_plan());
  EXPECT_EQ(driver.status, PlanStatus::wait);
  EXPECT_EQ(driver.scheduler.counters().preemptions, 0U);
  EXPECT_TRUE(driver.plan.rows.empty());
  driver.finish_step();
  ASSERT_TRUE(driver.make_plan());
  EXPECT_EQ(driver.rows_of(quick), 10);
  EXPECT_EQ(driver.scheduler.counters().preemptions, 1U);
  driver.run();
  EXPECT_EQ(driver.tokens_of(quick), 3);
  EXPECT_EQ(driver.tokens_of(batch), 10);
  driver.expect_all_free();
}

TEST(SchedulerFlight, WhoNeedsTheHostGoesOneStepAtATimeAlone) {
  Driver driver(dense());
  const RequestId masked = driver.submit({.prompt = tokens_from(0, 10), .max_tokens = 4, .stepwise = true});
  const RequestId free = driver.submit({.prompt = tokens_from(50, 10), .max_tokens = 9});
  int rows = 0;
  for (int step = 0; driver.tokens_of(free) < 9; ++step) {
    if (driver.make_plan()) {
      for (const StepRow& row : driver.plan.rows) {
        const RequestId owner = driver.plan.owners[static_cast<std::size_t>(row.sequence)].request;
        if (owner == masked) {
          EXPECT_GE(row.token, 0);
        }
      }
      rows += driver.rows_of(masked);
      EXPECT_EQ(driver.rows_of(masked) > 0, step % 2 == 0 && step < 8) << step;
    }
    if (driver.in_flight() == 2 || driver.status != PlanStatus::planned) driver.finish_step();
  }
  driver.run();
  EXPECT_EQ(rows, 13);
  EXPECT_EQ(driver.tokens_of(masked), 4);
  driver.expect_all_free();
}

TEST(SchedulerFlight, ALaterStepFallsWithTheEarlierOne) {
  Driver driver(dense());
  const RequestId id = driver.submit({.prompt = tokens_from(0, 10), .max_tokens = 6});
  driver.step();
  ASSERT_TRUE(driver.make_plan());
  ASSERT_EQ(driver.in_flight(), 2U);
  driver.abort_step();
  EXPECT_EQ(driver.scheduler.counters().aborted_steps, 2U);
  EXPECT_EQ(driver.scheduler.in_flight(), 0);
  ASSERT_TRUE(driver.make_plan());
  // What was committed is kept: the row after it comes again, with its token, and samples in a lane that begins anew.
  ASSERT_EQ(driver.plan.rows.size(), 1U);
  EXPECT_EQ(driver.plan.rows[0].position, 10);
  EXPECT_EQ(driver.plan.rows[0].token, 7);
  ASSERT_EQ(driver.plan.lane_starts.size(), 1U);
  EXPECT_EQ(driver.plan.lane_starts[0].lane, driver.plan.outputs[0].lane);
  driver.run();
  EXPECT_EQ(driver.tokens_of(id), 6);
  driver.expect_all_free();
}

TEST(SchedulerFlight, AStepThatFailsAfterItsPredecessorTakesThatOneAloneBack) {
  Driver driver(dense());
  const RequestId id = driver.submit({.prompt = tokens_from(0, 10), .max_tokens = 6, .branches = 2});
  driver.step();
  ASSERT_TRUE(driver.make_plan());  // with the copies of the fork
  ASSERT_EQ(driver.plan.block_copies.size(), 1U);
  ASSERT_TRUE(driver.make_plan());
  EXPECT_TRUE(driver.plan.block_copies.empty());
  driver.finish_step();
  EXPECT_EQ(driver.tokens_of(id, 0), 2);
  driver.abort_step();
  EXPECT_EQ(driver.scheduler.counters().aborted_steps, 1U);
  ASSERT_TRUE(driver.make_plan());
  EXPECT_TRUE(driver.plan.block_copies.empty());  // made, and committed
  EXPECT_EQ(driver.plan.rows[0].position, 11);
  driver.run();
  for (std::int32_t branch = 0; branch < 2; ++branch) EXPECT_EQ(driver.tokens_of(id, branch), 6);
  driver.expect_all_free();
}

TEST(SchedulerFlight, CopiesOfAStepThatFailsAreMadeAgain) {
  Driver driver(dense());
  const RequestId id = driver.submit({.prompt = tokens_from(0, 10), .max_tokens = 6, .branches = 2});
  driver.step();
  ASSERT_TRUE(driver.make_plan());
  ASSERT_EQ(driver.plan.block_copies.size(), 1U);
  const BlockCopy copy = driver.plan.block_copies[0];
  ASSERT_TRUE(driver.make_plan());
  driver.abort_step();
  ASSERT_TRUE(driver.make_plan());
  ASSERT_EQ(driver.plan.block_copies.size(), 1U);
  EXPECT_EQ(driver.plan.block_copies[0].from, copy.from);
  EXPECT_EQ(driver.plan.block_copies[0].to, copy.to);
  driver.run();
  for (std::int32_t branch = 0; branch < 2; ++branch) EXPECT_EQ(driver.tokens_of(id, branch), 6);
  driver.expect_all_free();
}

TEST(SchedulerFlight, RecurrentTextsOfFailedStepsGoBackToTheirSnapshot) {
  SchedulerConfig config = hybrid();
  config.state_slots = 64;
  config.snapshot_interval = 8;
  config.max_rows = 8;
  Driver driver(config);
  const RequestId id = driver.submit({.prompt = tokens_from(0, 30), .max_tokens = 6});
  ASSERT_TRUE(driver.make_plan());
  EXPECT_EQ(driver.plan.sequences[0].state_in, -1);
  const std::int32_t slot = driver.plan.sequences[0].state_out;
  ASSERT_TRUE(driver.make_plan());
  EXPECT_EQ(driver.plan.sequences[0].state_in, slot);  // what the step before it leaves
  EXPECT_EQ(driver.plan.rows[0].position, 8);
  driver.finish_step();  // with a snapshot after 8 tokens
  ASSERT_TRUE(driver.make_plan());
  EXPECT_EQ(driver.plan.rows[0].position, 16);
  driver.abort_step();
  ASSERT_TRUE(driver.make_plan());
  EXPECT_EQ(driver.plan.rows[0].position, 8);
  const std::int32_t snapshot = driver.plan.sequences[0].state_in;
  EXPECT_NE(snapshot, driver.plan.sequences[0].state_out);
  ASSERT_TRUE(driver.make_plan());
  EXPECT_EQ(driver.plan.sequences[0].state_in, driver.plan.sequences[0].state_out);
  EXPECT_NE(driver.plan.sequences[0].state_in, snapshot);
  driver.run();
  EXPECT_EQ(driver.tokens_of(id), 6);
  driver.expect_all_free();
}

// A window's blocks are freed when no row in flight sees them, and not before.
TEST(SchedulerFlight, AWindowKeepsWhatTheStepInFlightSees) {
  SchedulerConfig config = dense();
  config.groups.push_back({.blocks = 40, .window = 6});
  Driver driver(config);
  const RequestId id = driver.submit({.prompt = tokens_from(0, 22), .max_tokens = 60});
  std::int32_t most = 0;
  while (driver.make_plan() || driver.in_flight() > 0) {
    if (driver.status == PlanStatus::planned) {
      const StepSequence& sequence = driver.plan.sequences[0];
      const std::int32_t position = driver.plan.rows[0].position;
      EXPECT_LE(sequence.tables[1].first_live, std::max(0, position - 5));
      for (std::int32_t seen = std::max(0, position - 5); seen < sequence.length; ++seen) {
        EXPECT_GE(driver.table_of(id, 0, 1)[static_cast<std::size_t>(seen / 4)], 0);
      }
    }
    if (driver.in_flight() == 2 || driver.status != PlanStatus::planned) driver.finish_step();
    if (driver.tokens_of(id) > 2) most = std::max(most, driver.scheduler.counters().groups[1].used);
  }
  EXPECT_LE(most, 4);  // six positions and two rows in flight
  EXPECT_EQ(driver.tokens_of(id), 60);
  driver.expect_all_free();
}

// What is in flight is no part of the cache yet: who begins alike waits until it is committed.
TEST(SchedulerFlight, OnlyWhatIsCommittedIsShared) {
  for (const bool recurrent : {false, true}) {
    SchedulerConfig config = recurrent ? hybrid() : dense();
    config.max_rows = 16;
    Driver driver(config);
    const RequestId first = driver.submit({.prompt = tokens_from(0, 41), .max_tokens = 2});
    const RequestId second = driver.submit({.prompt = tokens_from(0, 41), .max_tokens = 2});
    std::int32_t rows = 0;
    while (driver.make_plan() || driver.in_flight() > 0) {
      if (driver.status == PlanStatus::planned) rows += driver.rows_of(second);
      if (driver.in_flight() == 2 || driver.status != PlanStatus::planned) driver.finish_step();
    }
    EXPECT_EQ(rows, 2);  // its last token and the one it said
    EXPECT_EQ(driver.tokens_of(first), 2);
    EXPECT_EQ(driver.tokens_of(second), 2);
    driver.expect_all_free();
  }
}

TEST(SchedulerLanes, ALaneIsGivenWithTheFirstSampleAndReportedOnce) {
  Driver driver(dense());
  const RequestId id = driver.submit({.prompt = tokens_from(0, 100), .max_tokens = 5});
  ASSERT_TRUE(driver.make_plan());  // 64 of its rows
  EXPECT_TRUE(driver.plan.lane_starts.empty());
  EXPECT_EQ(driver.scheduler.counters().lanes_used, 0);
  ASSERT_TRUE(driver.make_plan());
  ASSERT_EQ(driver.plan.lane_starts.size(), 1U);
  EXPECT_EQ(driver.plan.lane_starts[0].request, id);
  const std::int32_t lane = driver.plan.lane_starts[0].lane;
  EXPECT_EQ(driver.plan.outputs[0].lane, lane);
  EXPECT_EQ(driver.plan.sequences[0].lane, -1);  // it is no text that is pooled
  EXPECT_LT(lane, driver.scheduler.lane_count());
  driver.finish_step();
  while (driver.make_plan()) {
    EXPECT_TRUE(driver.plan.lane_starts.empty());
    for (const PlanOutput& output : driver.plan.outputs) EXPECT_EQ(output.lane, lane);
    driver.finish_step();
  }
  driver.run();
  EXPECT_EQ(driver.tokens_of(id), 5);
  EXPECT_EQ(driver.scheduler.counters().lanes_used, 0);
}

TEST(SchedulerLanes, BranchesHaveTheirOwnAndThoseWithoutRoomGetAnother) {
  SchedulerConfig config = dense();
  config.max_sequences = 2;
  Driver driver(config);
  const RequestId id = driver.submit({.prompt = tokens_from(0, 10), .max_tokens = 5, .branches = 4});
  ASSERT_TRUE(driver.make_plan());
  std::set<std::int32_t> given;
  for (const PlanLane& start : driver.plan.lane_starts) given.insert(start.lane);
  EXPECT_EQ(given.size(), 4U);
  EXPECT_EQ(driver.scheduler.counters().lanes_used, 4);
  driver.finish_step();
  EXPECT_EQ(driver.scheduler.counters().lanes_used, 2);  // two found no place to run
  int starts = 0;
  while (driver.make_plan() || driver.in_flight() > 0) {
    if (driver.status == PlanStatus::planned) {
      for (const PlanLane& start : driver.plan.lane_starts) {
        EXPECT_GE(start.branch, 2);
        ++starts;
      }
    }
    if (driver.in_flight() == 2 || driver.status != PlanStatus::planned) driver.finish_step();
  }
  EXPECT_EQ(starts, 2);
  for (std::int32_t branch = 0; branch < 4; ++branch) EXPECT_EQ(driver.tokens_of(id, branch), 5);
  driver.expect_all_free();
}

TEST(SchedulerLanes, WhoIsPreemptedBeginsAnewInALane) {
  Driver driver(dense(17));
  for (TokenId i = 0; i < 3; ++i) driver.submit({.prompt = tokens_from(100 * i, 14), .max_tokens = 14});
  std::size_t starts = 0;
  while (driver.make_plan() || driver.in_flight() > 0) {
    if (driver.status == PlanStatus::planned) starts += driver.plan.lane_starts.size();
    if (driver.in_flight() == 2 || driver.status != PlanStatus::planned) driver.finish_step();
  }
  EXPECT_EQ(starts, 3 + driver.scheduler.counters().preemptions);
  EXPECT_EQ(driver.scheduler.counters().lanes_used, 0);
}

}  // namespace
}  // namespace quarrel
