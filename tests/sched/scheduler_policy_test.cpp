// Who goes first, and how much of a step each gets.
#include <gtest/gtest.h>

#include <map>

#include "sched/driver.h"

namespace quarrel {
namespace {

using sim::Driver;
using sim::tokens_from;

SchedulerConfig roomy() {
  return {.block_tokens = 4, .groups = {{.blocks = 4096}}, .context = 4096, .max_rows = 64, .max_sequences = 16};
}

TEST(SchedulerPolicy, DecodeRowsComeFirstAndPromptsFillTheStep) {
  Driver driver(roomy());
  const RequestId answered = driver.submit({.prompt = {1, 2, 3}, .max_tokens = 50});
  driver.step();
  driver.step();  // decoding alone is measured
  const RequestId asked = driver.submit({.prompt = tokens_from(100, 200), .max_tokens = 1});
  ASSERT_TRUE(driver.make_plan());
  EXPECT_EQ(driver.plan.generated_rows, 1);
  EXPECT_EQ(driver.plan.owners[0].request, answered);
  EXPECT_GT(driver.rows_of(asked), 0);
  EXPECT_LE(driver.plan.rows.size(), 64U);
  ASSERT_EQ(driver.plan.outputs.size(), 1U);
  EXPECT_EQ(driver.plan.outputs[0].request, answered);
  driver.finish_step();
}

TEST(SchedulerPolicy, SeveralPromptsShareAStepAndTheShortOneIsNotHeldUp) {
  Driver driver(roomy());
  const RequestId long_one = driver.submit({.prompt = tokens_from(0, 3000), .max_tokens = 1});
  driver.step();
  const RequestId short_one = driver.submit({.prompt = tokens_from(5000, 20), .max_tokens = 1});
  ASSERT_TRUE(driver.make_plan());
  EXPECT_EQ(driver.rows_of(short_one), 20);
  EXPECT_EQ(driver.rows_of(long_one), 44);
  driver.finish_step();
  EXPECT_EQ(driver.tokens_of(short_one), 1);
}

// How the rows of a step are shared by a prompt that has waited for so many periods and a fresh one, of 64.
struct Shares {
  std::int32_t aged = 0;
  std::int32_t fresh = 0;
};
Shares shares_of(Priority aged, int periods, Priority fresh) {
  SchedulerConfig config = roomy();
  config.ageing_us = 1'000'000;
  Driver driver(config);
  const RequestId old_one = driver.submit({.prompt = tokens_from(0, 3000), .max_tokens = 1, .priority = aged});
  driver.step();
  driver.now_us += periods * config.ageing_us;
  const RequestId new_one = driver.submit({.prompt = tokens_from(5000, 2000), .max_tokens = 1, .priority = fresh});
  EXPECT_TRUE(driver.make_plan());
  const Shares shares{.aged = driver.rows_of(old_one), .fresh = driver.rows_of(new_one)};
  driver.finish_step();
  EXPECT_EQ(driver.scheduler.counters().best_stalls, 0U);
  return shares;
}

TEST(SchedulerPolicy, AnAgedPromptGetsItsEvenShareAndNotEverything) {
  for (const int periods : {1, 2, 40}) {  // after forty it stands above the highest priority
    SCOPED_TRACE(periods);
    // Half of what is left beside the one row that is kept for the best.
    const Shares alike = shares_of(Priority::normal, periods, Priority::normal);
    EXPECT_EQ(alike.aged, 33);
    EXPECT_EQ(alike.fresh, 31);
    // And it stands beside a higher one when it has waited long enough.
    const Shares raised = shares_of(Priority::normal, periods, Priority::interactive);
    EXPECT_EQ(raised.aged, 33);
    EXPECT_EQ(raised.fresh, 31);
  }
  // One that has not aged so far keeps a row, since it was the best of those that ran.
  EXPECT_EQ(shares_of(Priority::normal, 0, Priority::interactive).aged, 1);
  EXPECT_EQ(shares_of(Priority::batch, 1, Priority::interactive).fresh, 63);
  EXPECT_EQ(shares_of(Priority::batch, 1, Priority::normal).aged, 33);
}

TEST(SchedulerPolicy, AShortRequestIsAnsweredAtOnceBesideAnAgedPrompt) {
  SchedulerConfig config = roomy();
  config.ageing_us = 100'000;
  Driver driver(config);
  driver.submit({.prompt = tokens_from(0, 4000), .max_tokens = 1});
  driver.step();
  driver.now_us += 5 * config.ageing_us;
  const RequestId short_one = driver.submit({.prompt = tokens_from(5000, 20), .max_tokens = 1});
  driver.step();
  EXPECT_EQ(driver.tokens_of(short_one), 1);
}

TEST(SchedulerPolicy, PrioritiesGoFirst) {
  SchedulerConfig config = roomy();
  config.max_sequences = 1;
  Driver driver(config);
  const RequestId batch = driver.submit({.prompt = {1}, .max_tokens = 2, .priority = Priority::batch});
  const RequestId normal = driver.submit({.prompt = {1}, .max_tokens = 2, .priority = Priority::normal});
  const RequestId quick = driver.submit({.prompt = {1}, .max_tokens = 2, .priority = Priority::interactive});
  driver.run();
  std::vector<RequestId> order;
  for (const SchedEvent& event : driver.events) {
    if (event.kind == SchedEvent::Kind::finished) order.push_back(event.request);
  }
  EXPECT_EQ(order, (std::vector<RequestId>{quick, normal, batch}));
}

TEST(SchedulerPolicy, AgeRaisesAPriority) {
  SchedulerConfig config = roomy();
  config.max_sequences = 1;
  config.ageing_us = 20'000;
  Driver driver(config);
  const RequestId batch = driver.submit({.prompt = {1}, .max_tokens = 2, .priority = Priority::batch});
  int before = 0;
  // Interactive requests without end: after two periods the old one is as good as they are, and older.
  for (; driver.tokens_of(batch) == 0 && before < 1000; ++before) {
    driver.submit({.prompt = {1}, .max_tokens = 2, .priority = Priority::interactive});
    driver.step();
    driver.step();
  }
  EXPECT_GE(before, 10);
  EXPECT_LE(before, 30);
}

TEST(SchedulerPolicy, BeyondTheHighestPriorityAgeCountsSlowly) {
  const FairQueue queue(1000, 10);
  Job job;
  job.priority = Priority::batch;
  job.arrived_us = 5000;
  EXPECT_EQ(queue.level(job, 0), 2);  // a clock that went back
  EXPECT_EQ(queue.level(job, 5999), 2);
  EXPECT_EQ(queue.level(job, 6000), 1);
  EXPECT_EQ(queue.level(job, 7000), 0);
  EXPECT_EQ(queue.level(job, 20'999), 0);
  EXPECT_EQ(queue.level(job, 21'000), -1);
  EXPECT_LT(queue.level(job, std::int64_t{1} << 62), -1'000'000);
}

TEST(SchedulerPolicy, KeysShareEvenlyHoweverManyRequestsTheySend) {
  SchedulerConfig config = roomy();
  config.max_sequences = 4;
  config.queue_limit = 4096;
  config.ageing_us = 1'000'000'000;
  Driver driver(config);
  // One key floods with short requests, one sends long ones, one a few: each always has something waiting.
  std::map<RequestId, std::uint64_t> keys;
  std::map<std::uint64_t, int> waiting;
  const auto top_up = [&] {
    for (std::uint64_t key = 1; key <= 3; ++key) {
      const int wanted = key == 1 ? 200 : 6;
      for (; waiting[key] < wanted; ++waiting[key]) {
        const TokenId first = static_cast<TokenId>(keys.size() * 64);
        keys[driver.submit({.prompt = tokens_from(first, key == 2 ? 60 : 10), .max_tokens = 20, .key = key})] = key;
      }
    }
  };
  std::map<std::uint64_t, std::int64_t> served;
  for (int i = 0; i < 4000; ++i) {
    top_up();
    const std::size_t seen = driver.events.size();
    ASSERT_TRUE(driver.step());
    for (const PlanOwner& owner : driver.plan.owners) served[keys[owner.request]] += owner.rows;
    for (std::size_t at = seen; at < driver.events.size(); ++at) {
      if (driver.events[at].kind == SchedEvent::Kind::finished) --waiting[keys[driver.events[at].request]];
    }
    driver.events.clear();
  }
  const std::int64_t total = served[1] + served[2] + served[3];
  for (std::uint64_t key = 1; key <= 3; ++key)
    EXPECT_NEAR(static_cast<double>(served[key]) / static_cast<double>(total), 0.333, 0.03);
}

TEST(SchedulerPolicy, AKeyThatWasIdleDoesNotSaveUp) {
  SchedulerConfig config = roomy();
  config.max_sequences = 1;
  Driver driver(config);
  for (int i = 0; i < 50; ++i) {
    driver.submit({.prompt = {1, 2}, .max_tokens = 10, .key = 1});
    driver.run();
  }
  // The newcomer is not owed fifty requests: they take turns.
  std::map<RequestId, std::uint64_t> keys;
  for (int i = 0; i < 10; ++i) keys[driver.submit({.prompt = {1, 2}, .max_tokens = 10, .key = 1})] = 1;
  for (int i = 0; i < 10; ++i) keys[driver.submit({.prompt = {1, 2}, .max_tokens = 10, .key = 2})] = 2;
  driver.events.clear();
  driver.run();
  int ahead = 0;
  int ended = 0;
  for (const SchedEvent& event : driver.events) {
    if (event.kind != SchedEvent::Kind::finished || ++ended > 10) continue;
    ahead += keys[event.request] == 2 ? 1 : -1;
  }
  EXPECT_LE(ahead, 2);
  EXPECT_GE(ahead, -2);
}

TEST(SchedulerPolicy, APauseStartsNothingAndKeepsTheQueue) {
  SchedulerConfig config = roomy();
  config.max_sequences = 1;
  Driver driver(config);
  const RequestId runs = driver.submit({.prompt = {1}, .max_tokens = 5});
  const RequestId waits = driver.submit({.prompt = {1}, .max_tokens = 5});
  driver.step();
  driver.scheduler.pause();
  const RequestId late = driver.submit({.prompt = {1}, .max_tokens = 5});
  EXPECT_FALSE(driver.scheduler.idle());
  driver.run();
  EXPECT_EQ(driver.end_of(runs), FinishReason::length);
  EXPECT_TRUE(driver.scheduler.idle());
  EXPECT_EQ(driver.scheduler.counters().waiting, 2);
  driver.scheduler.pause(true);
  EXPECT_EQ(driver.scheduler.submit({.prompt = {1}}, 1).status, SubmitStatus::draining);
  driver.scheduler.resume();
  driver.run();
  EXPECT_EQ(driver.end_of(waits), FinishReason::length);
  EXPECT_EQ(driver.end_of(late), FinishReason::length);
}

TEST(SchedulerPolicy, AQuarterOfTheMemoryDelaysAndNeverFails) {
  SchedulerConfig config = roomy();
  config.groups = {{.blocks = 64}};
  config.context = 200;
  config.queue_limit = 2000;
  Driver driver(config);
  std::vector<RequestId> ids;
  for (int i = 0; i < 1000; ++i) {
    ids.push_back(driver.submit({.prompt = tokens_from(i * 50, 10 + i % 31),
                                 .max_tokens = 20 + i % 37,
                                 .priority = static_cast<Priority>(i % 3)}));
  }
  driver.run();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(driver.end_of(ids[i]), FinishReason::length);
  }
  const SchedulerCounters counters = driver.scheduler.counters();
  EXPECT_GT(counters.preemptions, 0U);
  EXPECT_LE(counters.most_preemptions, 3);
  driver.expect_all_free();
}

}  // namespace
}  // namespace quarrel
