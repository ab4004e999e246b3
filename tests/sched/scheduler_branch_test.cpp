// One branch of a request is cancelled: its memory is free, and the others go on as if nothing had been.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <utility>

#include "sched/driver.h"
#include "support/failing_allocation.h"

namespace quarrel {
namespace {

using sim::Driver;
using sim::tokens_from;

SchedulerConfig dense(std::int32_t blocks = 64) {
  return {.block_tokens = 4,
          .groups = {{.blocks = blocks}},
          .context = 128,
          .max_rows = 64,
          .max_outputs = 16,
          .max_sequences = 8};
}

SchedulerConfig hybrid() {
  SchedulerConfig config = dense();
  config.groups.push_back({.blocks = 48, .window = 6});
  config.recurrent = true;
  config.state_slots = 16;
  return config;
}

// A branch says what its number and the place make of it, so that no two texts are alike.
void finish_step(Driver& driver) {
  std::vector<TokenId> sampled;
  sampled.reserve(driver.plan.outputs.size());
  for (const PlanOutput& output : driver.plan.outputs) {
    const StepRow& row = driver.plan.rows[static_cast<std::size_t>(output.row)];
    sampled.push_back(1000 * (output.branch + 1) + row.position);
  }
  driver.finish_step(sampled, {});
}

// Of every branch of a driver's only request: the rows it had after the prompt, and the tokens that were reported.
struct History {
  std::map<std::int32_t, std::vector<std::pair<std::int32_t, TokenId>>> rows = {};
  std::map<std::int32_t, std::vector<TokenId>> tokens = {};

  bool plan(Driver& driver, std::int32_t prompt) {
    if (!driver.make_plan()) return false;
    for (const StepRow& row : driver.plan.rows) {
      const PlanOwner& owner = driver.plan.owners[static_cast<std::size_t>(row.sequence)];
      if (row.position >= prompt) rows[owner.branch].emplace_back(row.position, row.token);
    }
    return true;
  }
  void run(Driver& driver, std::int32_t prompt) {
    while (plan(driver, prompt)) finish_step(driver);
    for (const SchedEvent& event : driver.events) {
      if (event.kind == SchedEvent::Kind::token) tokens[event.branch].push_back(event.token);
    }
  }
};

TEST(SchedulerBranches, OneIsCancelledAndItsMemoryIsFreeAtOnce) {
  Driver driver(hybrid());
  const RequestId id = driver.submit({.prompt = tokens_from(0, 10), .max_tokens = 30, .branches = 3});
  for (int i = 0; i < 8; ++i) driver.step();  // 17 positions each: two blocks are shared, three are its own
  const SchedulerCounters before = driver.scheduler.counters();
  test::fail_allocations_after(0);
  const bool found = driver.scheduler.cancel_branch(id, 1, FinishReason::stop);
  test::fail_no_allocation();
  EXPECT_TRUE(found);
  const SchedulerCounters after = driver.scheduler.counters();
  EXPECT_EQ(after.groups[0].used, before.groups[0].used - 3);
  EXPECT_LT(after.groups[1].used, before.groups[1].used);
  EXPECT_EQ(after.slots_used, before.slots_used - 1);
  EXPECT_EQ(after.running, 2);
  EXPECT_EQ(after.finished, 0U);
  driver.collect();
  EXPECT_EQ(driver.end_of(id, 1), FinishReason::stop);
  driver.run();
  EXPECT_EQ(driver.tokens_of(id, 1), 8);
  for (const std::int32_t branch : {0, 2}) EXPECT_EQ(driver.tokens_of(id, branch), 30);
  EXPECT_EQ(driver.scheduler.counters().finished, 1U);
  driver.expect_all_free();
}

TEST(SchedulerBranches, WhatIsNotThereIsNotCancelled) {
  Driver driver(dense());
  Scheduler& scheduler = driver.scheduler;
  EXPECT_FALSE(scheduler.cancel_branch(1, 0));
  const RequestId id = driver.submit({.prompt = tokens_from(0, 10), .max_tokens = 3, .branches = 2});
  for (const std::int32_t branch : {-1, 2, 1 << 30}) EXPECT_FALSE(scheduler.cancel_branch(id, branch));
  EXPECT_FALSE(scheduler.cancel_branch(id + 1, 0));
  EXPECT_TRUE(scheduler.cancel_branch(id, 0));
  EXPECT_FALSE(scheduler.cancel_branch(id, 0));
  driver.step();
  ASSERT_TRUE(driver.make_plan());
  EXPECT_TRUE(scheduler.cancel_branch(id, 1));
  EXPECT_FALSE(scheduler.cancel_branch(id, 1));  // its step is not over, but it has finished
  EXPECT_FALSE(scheduler.cancel(id));
  driver.finish_step();
  EXPECT_FALSE(scheduler.cancel_branch(id, 1));
  EXPECT_EQ(scheduler.counters().finished, 1U);
  driver.expect_all_free();
}

// Whichever it is, and after however many steps: before the next plan, or between that and what comes of it.
TEST(SchedulerBranches, TheOthersHaveTheRowsAndTokensTheyWouldHaveHad) {
  constexpr std::int32_t kPrompt = 22;
  const SchedRequest request{.prompt = tokens_from(0, kPrompt), .max_tokens = 12, .branches = 3};
  const auto compare = [&](const SchedulerConfig& config, std::int32_t victim, int steps, bool in_flight) {
    Driver undisturbed(config);
    undisturbed.submit(request);
    History expected;
    expected.run(undisturbed, kPrompt);
    ASSERT_EQ(expected.rows.at(2).size(), 11U);
    Driver driver(config);
    const RequestId id = driver.submit(request);
    History history;
    for (int step = 0; step < steps; ++step) {
      ASSERT_TRUE(history.plan(driver, kPrompt));
      finish_step(driver);
    }
    if (in_flight) {
      ASSERT_TRUE(history.plan(driver, kPrompt));
    }
    const std::size_t rows = history.rows[victim].size();
    const std::int32_t reported = driver.tokens_of(id, victim);
    EXPECT_TRUE(driver.scheduler.cancel_branch(id, victim));
    if (in_flight) finish_step(driver);
    history.run(driver, kPrompt);
    for (std::int32_t branch = 0; branch < 3; ++branch) {
      EXPECT_EQ(driver.end_of(id, branch), branch == victim ? FinishReason::cancelled : FinishReason::length);
      if (branch == victim) continue;
      EXPECT_EQ(history.rows[branch], expected.rows[branch]);
      EXPECT_EQ(history.tokens[branch], expected.tokens[branch]);
    }
    EXPECT_EQ(history.rows[victim].size(), rows);
    EXPECT_EQ(driver.tokens_of(id, victim), reported);
    driver.expect_all_free();
  };
  for (SchedulerConfig config : {dense(), hybrid()}) {
    config.max_rows = 8;  // the prompt takes three steps
    for (std::int32_t victim = 0; victim < 3; ++victim) {
      for (int steps = 0; steps < 12; ++steps) {
        for (const bool in_flight : {false, true}) {
          SCOPED_TRACE(testing::Message() << "recurrent " << config.recurrent << ", branch " << victim << " after "
                                          << steps << " steps, in flight " << in_flight);
          compare(config, victim, steps, in_flight);
        }
      }
    }
  }
}

// One after the other in every order, one a step, from every beginning: the request ends with the last of them.
TEST(SchedulerBranches, InAnyOrderFromAnyMoment) {
  for (SchedulerConfig config : {dense(), hybrid()}) {
    config.max_rows = 8;
    std::array<std::int32_t, 4> order = {0, 1, 2, 3};
    do {
      for (int moment = 0; moment < 10; ++moment) {
        for (const bool in_flight : {false, true}) {
          SCOPED_TRACE(testing::Message() << order[0] << order[1] << order[2] << order[3] << " at " << moment);
          Driver driver(config);
          const RequestId id = driver.submit({.prompt = tokens_from(0, 22), .max_tokens = 40, .branches = 4});
          for (int i = 0; i < moment; ++i) driver.step();
          for (const std::int32_t branch : order) {
            EXPECT_EQ(driver.scheduler.counters().finished, 0U);
            ASSERT_EQ(driver.make_plan(), true);
            if (in_flight) {
              EXPECT_TRUE(driver.scheduler.cancel_branch(id, branch));
              driver.collect();
            }
            finish_step(driver);
            if (!in_flight) {
              EXPECT_TRUE(driver.scheduler.cancel_branch(id, branch));
              driver.collect();
            }
          }
          EXPECT_EQ(driver.scheduler.counters().finished, 1U);
          for (const std::int32_t branch : order) EXPECT_EQ(driver.end_of(id, branch), FinishReason::cancelled);
          EXPECT_FALSE(driver.make_plan());
          driver.expect_all_free();
        }
      }
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

TEST(SchedulerBranches, InAStepItKeepsItsBlocksUntilThatIsOver) {
  for (const bool fails : {false, true}) {
    Driver driver(hybrid());
    const RequestId id = driver.submit({.prompt = tokens_from(0, 10), .max_tokens = 20, .branches = 2});
    for (int i = 0; i < 3; ++i) driver.step();
    ASSERT_TRUE(driver.make_plan());
    const SchedulerCounters before = driver.scheduler.counters();
    EXPECT_TRUE(driver.scheduler.cancel_branch(id, 0));
    EXPECT_EQ(driver.scheduler.counters().groups[0].used, before.groups[0].used);
    EXPECT_EQ(driver.scheduler.counters().slots_used, before.slots_used);
    driver.collect();
    if (fails) {
      driver.abort_step();
      driver.collect();
    } else {
      driver.finish_step();
    }
    EXPECT_LT(driver.scheduler.counters().groups[0].used, before.groups[0].used);
    EXPECT_EQ(driver.tokens_of(id, 0), 3);
    driver.run();
    EXPECT_EQ(driver.tokens_of(id, 0), 3);
    EXPECT_EQ(driver.tokens_of(id, 1), 20);
    driver.expect_all_free();
  }
}

// The last block and the state of a prompt are copied before the next step: whoever goes until then, whoever stays gets
// his own.
TEST(SchedulerBranches, CopiesThatAreStillToBeMadeStayRight) {
  for (std::int32_t victim = 0; victim < 3; ++victim) {
    Driver driver(hybrid());
    const RequestId id = driver.submit({.prompt = tokens_from(0, 10), .max_tokens = 5, .branches = 3});
    ASSERT_TRUE(driver.make_plan());
    const std::int32_t last = driver.table_of(id)[2];
    const std::int32_t state = driver.plan.sequences[0].state_out;
    driver.finish_step();
    EXPECT_TRUE(driver.scheduler.cancel_branch(id, victim));
    ASSERT_TRUE(driver.make_plan());
    ASSERT_EQ(driver.plan.sequences.size(), 2U);
    const std::size_t copies = victim == 0 ? 2 : 1;  // a group, and of the state
    ASSERT_EQ(driver.plan.block_copies.size(), 2 * copies);
    ASSERT_EQ(driver.plan.slot_copies.size(), copies);
    EXPECT_EQ(driver.plan.block_copies[0].from, last);
    EXPECT_EQ(driver.plan.slot_copies[0].from, state);
    for (const PlanOwner& owner : driver.plan.owners) {
      EXPECT_EQ(driver.sequence_of(id, owner.branch)->state_in == state, owner.branch == 0);
      EXPECT_EQ(driver.table_of(id, owner.branch)[2] == last, owner.branch == 0);
    }
    const std::int32_t used = driver.scheduler.counters().groups[0].used;
    driver.finish_step();
    EXPECT_EQ(driver.scheduler.counters().groups[0].used, victim == 0 ? used - 1 : used);
    driver.run();
    for (std::int32_t branch = 0; branch < 3; ++branch) {
      EXPECT_EQ(driver.tokens_of(id, branch), branch == victim ? 1 : 5);
    }
    driver.expect_all_free();
  }
}

TEST(SchedulerBranches, OneThatWaitsForRoomLeavesTheQueue) {
  SchedulerConfig config = dense();
  config.max_sequences = 2;
  Driver driver(config);
  const RequestId id = driver.submit({.prompt = tokens_from(0, 10), .max_tokens = 5, .branches = 4});
  driver.step();
  EXPECT_EQ(driver.scheduler.counters().returning, 2);
  EXPECT_TRUE(driver.scheduler.cancel_branch(id, 2));
  EXPECT_EQ(driver.scheduler.counters().returning, 1);
  // Where one that runs goes, the next has its place.
  EXPECT_TRUE(driver.scheduler.cancel_branch(id, 0));
  while (driver.sequence_of(id, 3) == nullptr) ASSERT_TRUE(driver.step());
  EXPECT_LT(driver.tokens_of(id, 1), 5);
  driver.run();
  for (std::int32_t branch = 0; branch < 4; ++branch) {
    EXPECT_EQ(driver.tokens_of(id, branch), branch % 2 == 0 ? 1 : 5);
  }
  driver.expect_all_free();
}

TEST(SchedulerBranches, OneThatWasPreemptedDoesNotComeBack) {
  Driver driver(dense(16));
  const RequestId id =
      driver.submit({.prompt = tokens_from(0, 10), .max_tokens = 40, .branches = 2, .priority = Priority::batch});
  for (int i = 0; i < 10; ++i) driver.step();
  const RequestId quick =
      driver.submit({.prompt = tokens_from(100, 24), .max_tokens = 3, .priority = Priority::interactive});
  while (driver.scheduler.counters().preemptions == 0) ASSERT_TRUE(driver.step());
  ASSERT_EQ(driver.sequence_of(id, 1), nullptr);
  EXPECT_EQ(driver.scheduler.counters().returning, 1);
  const std::int32_t reported = driver.tokens_of(id, 1);
  EXPECT_TRUE(driver.scheduler.cancel_branch(id, 1));
  EXPECT_EQ(driver.scheduler.counters().returning, 0);
  while (driver.make_plan()) {
    EXPECT_EQ(driver.sequence_of(id, 1), nullptr);
    driver.finish_step();
  }
  EXPECT_EQ(driver.tokens_of(id, 1), reported);
  EXPECT_EQ(driver.tokens_of(id, 0), 40);
  EXPECT_EQ(driver.tokens_of(quick), 3);
  driver.expect_all_free();
}

// The branch that computes the prompt goes: the next has what there is of it, and those that wait for it still do.
TEST(SchedulerBranches, APromptIsHandedOn) {
  SchedulerConfig config = dense();
  config.max_rows = 8;
  Driver driver(config);
  SchedRequest request{
      .prompt = tokens_from(0, 30), .max_tokens = 4, .branches = 3, .prompt_outputs = PromptOutputs::scores};
  const RequestId id = driver.submit(request);
  EXPECT_TRUE(driver.scheduler.cancel_branch(id, 0));  // it waits
  driver.step();
  const auto started = std::find_if(driver.events.begin(), driver.events.end(),
                                    [](const SchedEvent& event) { return event.kind == SchedEvent::Kind::started; });
  ASSERT_NE(started, driver.events.end());
  EXPECT_EQ(started->branch, 1);
  request.branches = 1;
  request.prompt_outputs = PromptOutputs::none;
  const RequestId waiter = driver.submit(request);
  ASSERT_TRUE(driver.make_plan());
  EXPECT_EQ(driver.rows_of(id), 8);
  EXPECT_EQ(driver.rows_of(waiter), 0);
  for (const PlanOutput& output : driver.plan.outputs) EXPECT_EQ(output.branch, 1);
  EXPECT_TRUE(driver.scheduler.cancel_branch(id, 1));  // its rows are in flight
  finish_step(driver);
  EXPECT_EQ(driver.scheduler.counters().running, 1);
  EXPECT_EQ(driver.scheduler.counters().prefix_waits, 1U);
  std::int32_t prompt_rows = 16;
  while (driver.tokens_of(id, 2) == 0) {
    ASSERT_TRUE(driver.make_plan());
    EXPECT_EQ(driver.rows_of(waiter), 0);
    prompt_rows += driver.rows_of(id);
    for (const PlanOutput& output : driver.plan.outputs) EXPECT_EQ(output.branch, 2);
    finish_step(driver);
  }
  EXPECT_EQ(prompt_rows, 30);
  driver.run();
  EXPECT_EQ(driver.tokens_of(id, 0) + driver.tokens_of(id, 1), 0);
  EXPECT_EQ(driver.tokens_of(id, 2), 4);
  EXPECT_EQ(driver.tokens_of(waiter), 4);
  EXPECT_GE(driver.scheduler.counters().cache_hit_tokens, 28U);
  driver.expect_all_free();
}

// The step in flight samples for every branch of the prompt that was there when it was planned.
TEST(SchedulerBranches, EachIsToldItsOwnFirstToken) {
  for (std::int32_t victim = 0; victim < 3; ++victim) {
    Driver driver(dense());
    const RequestId id = driver.submit({.prompt = tokens_from(0, 10), .max_tokens = 1, .branches = 3});
    ASSERT_TRUE(driver.make_plan());
    ASSERT_EQ(driver.plan.outputs.size(), 3U);
    EXPECT_TRUE(driver.scheduler.cancel_branch(id, victim));
    finish_step(driver);
    for (const SchedEvent& event : driver.events) {
      if (event.kind != SchedEvent::Kind::token) continue;
      EXPECT_NE(event.branch, victim);
      EXPECT_EQ(event.output, event.branch);
      EXPECT_EQ(event.token, 1000 * (event.branch + 1) + 9);
    }
    for (std::int32_t branch = 0; branch < 3; ++branch)
      EXPECT_EQ(driver.tokens_of(id, branch), branch == victim ? 0 : 1);
    driver.expect_all_free();
  }
}

TEST(SchedulerBranches, TheLastOfARequestThatWaitsFreesItsPlaceInTheQueue) {
  SchedulerConfig config = dense();
  config.queue_limit = 1;
  Driver driver(config);
  const RequestId id = driver.submit({.prompt = tokens_from(0, 10), .branches = 2});
  EXPECT_TRUE(driver.scheduler.cancel_branch(id, 0));
  EXPECT_EQ(driver.scheduler.submit({.prompt = {1}}, 1).status, SubmitStatus::queue_full);
  EXPECT_TRUE(driver.scheduler.cancel_branch(id, 1));
  EXPECT_EQ(driver.scheduler.counters().waiting_tokens, 0);
  driver.collect();
  driver.submit({.prompt = {1}, .max_tokens = 1});
  driver.run();
  driver.expect_all_free();
}

}  // namespace
}  // namespace quarrel
