// Prefixes in flight: who waits for whom, for how long, and that what they find is their own.
#include <gtest/gtest.h>

#include <map>

#include "base/as_size.h"
#include "sched/driver.h"
#include "sched/echo_backend.h"

namespace quarrel {
namespace {

using sim::Driver;
using sim::tokens_from;

constexpr std::int32_t kVocabulary = 1000;

SchedulerConfig plain() {
  return {.block_tokens = 4, .groups = {{.blocks = 256}}, .context = 256, .max_rows = 16, .max_sequences = 16};
}

SchedulerConfig recurrent() {
  SchedulerConfig config = plain();
  config.recurrent = true;
  config.state_slots = 40;
  return config;
}

// Ten blocks that all have, and a few tokens of its own.
std::vector<TokenId> prompt_of(TokenId own, std::int32_t tail = 3) {
  std::vector<TokenId> prompt = tokens_from(100, 40);
  const std::vector<TokenId> rest = tokens_from(500 + 10 * own, tail);
  prompt.insert(prompt.end(), rest.begin(), rest.end());
  return prompt;
}

// A driver whose backend remembers who wrote what, and whose answers are known.
class EchoDriver {
 public:
  explicit EchoDriver(const SchedulerConfig& config) : scheduler(config), backend_(config, kVocabulary) {}

  RequestId submit(const SchedRequest& request) {
    const RequestId id = scheduler.submit(request, 1).id;
    texts_[id] = sim::make_text(request);
    expected_[id] = sim::expected_answer(request, 0, scheduler.longest(), kVocabulary);
    return id;
  }

  bool step() {
    StepPlan plan;
    if (scheduler.plan(++now_, plan) != PlanStatus::planned) return false;
    EXPECT_EQ(backend_.check_shape(plan), "");
    sim::SubmittedStep step;
    step.take(plan, false);
    step.of_all.assign(plan.owners.size(), 0);
    EXPECT_EQ(backend_.run(step, {}, [this](RequestId id, std::int32_t, bool) { return &texts_.at(id); }), "");
    scheduler.commit({.micros = 1000, .sampled = step.sampled}, ++now_);
    for (const SchedEvent& event : scheduler.events()) {
      if (event.kind == SchedEvent::Kind::token) texts_.at(event.request).append(event.token);
      ended_ += event.kind == SchedEvent::Kind::finished ? 1 : 0;
    }
    scheduler.clear_events();
    const auto wrong = scheduler.check();
    EXPECT_FALSE(wrong.has_value()) << wrong.value_or("");
    return true;
  }

  void expect_all_answered() {
    while (step()) {
    }
    EXPECT_EQ(ended_, texts_.size());
    for (const auto& [id, text] : texts_) {
      const auto begin = text.tokens.begin() + text.prompt_end;
      EXPECT_EQ(std::vector<TokenId>(begin, text.tokens.end()), expected_.at(id).tokens) << "request " << id;
    }
  }

  Scheduler scheduler;

 private:
  sim::EchoBackend backend_;
  std::map<RequestId, sim::Text> texts_;
  std::map<RequestId, sim::Answer> expected_;
  std::size_t ended_ = 0;
  std::int64_t now_ = 1;
};

TEST(SchedulerSharing, ACommonPrefixIsComputedOnce) {
  SchedulerConfig windowed = plain();
  windowed.groups.push_back({.blocks = 128, .window = 10});
  SchedulerConfig state_only = recurrent();
  state_only.groups.clear();
  for (const SchedulerConfig& config : {plain(), windowed, recurrent(), state_only}) {
    SCOPED_TRACE(testing::Message() << config.groups.size() << " groups, recurrent " << config.recurrent);
    EchoDriver driver(config);
    for (TokenId own = 0; own < 8; ++own) driver.submit({.prompt = prompt_of(own), .max_tokens = 4});
    driver.expect_all_answered();
    const SchedulerCounters counters = driver.scheduler.counters();
    EXPECT_EQ(counters.cache_hit_tokens, 7U * 40);
    EXPECT_EQ(counters.cache_miss_tokens, 40U + 8U * 3);
    EXPECT_EQ(counters.prompt_rows, 40U + 8U * 3);
    EXPECT_EQ(counters.prefix_waits, 7U);
  }
}

// No snapshot would lie where the common part ends, if nobody waited for it.
TEST(SchedulerSharing, ARecurrentBranchLeavesASnapshotForThoseThatWait) {
  EchoDriver driver(recurrent());
  for (TokenId own = 0; own < 8; ++own) driver.submit({.prompt = prompt_of(own, 7), .max_tokens = 4});
  driver.expect_all_answered();
  EXPECT_EQ(driver.scheduler.counters().cache_hit_tokens, 7U * 40);
  EXPECT_EQ(driver.scheduler.counters().cache_miss_tokens, 40U + 8U * 7);
}

TEST(SchedulerSharing, WhoHasMoreInCommonWaitsOn) {
  SchedulerConfig config = recurrent();
  config.max_rows = config.max_sequences = 4;
  EchoDriver driver(config);
  std::vector<TokenId> beginning = tokens_from(100, 8);
  beginning.resize(20, 7);
  driver.submit({.prompt = prompt_of(0, 7), .max_tokens = 4});
  driver.submit({.prompt = beginning, .max_tokens = 4});  // the runner's next snapshot is for this one
  driver.submit({.prompt = prompt_of(1, 7), .max_tokens = 4});
  driver.expect_all_answered();
  EXPECT_EQ(driver.scheduler.counters().cache_hit_tokens, 8U + 40U);
  EXPECT_EQ(driver.scheduler.counters().prefix_waits, 3U);
}

TEST(SchedulerSharing, EqualPromptsAreComputedOnce) {
  for (const SchedulerConfig& config : {plain(), recurrent()}) {
    EchoDriver driver(config);
    for (int i = 0; i < 8; ++i) driver.submit({.prompt = tokens_from(100, 40), .max_tokens = 4});
    driver.expect_all_answered();
    EXPECT_EQ(driver.scheduler.counters().cache_hit_tokens, 7U * 36);  // the last token is everybody's own
    EXPECT_EQ(driver.scheduler.counters().cache_miss_tokens, 40U + 7U * 4);
  }
}

TEST(SchedulerSharing, WhoComesLaterWaitsForTheRest) {
  Driver driver(plain());
  const RequestId first = driver.submit({.prompt = prompt_of(0), .max_tokens = 1});
  driver.step();  // sixteen tokens are there
  const RequestId second = driver.submit({.prompt = prompt_of(1), .max_tokens = 1});
  driver.step();
  EXPECT_EQ(driver.rows_of(first), 16);
  EXPECT_EQ(driver.rows_of(second), 0);
  driver.step();  // the common part ends here
  EXPECT_EQ(driver.rows_of(first), 11);
  EXPECT_EQ(driver.rows_of(second), 0);
  driver.step();
  EXPECT_EQ(driver.rows_of(second), 3);
  EXPECT_EQ(driver.scheduler.counters().cache_hit_tokens, 40U);
}

TEST(SchedulerSharing, WhoWaitsForAPrefixHoldsUpNobodyElse) {
  Driver driver(plain());
  driver.submit({.prompt = prompt_of(0), .max_tokens = 1});
  const RequestId waiter = driver.submit({.prompt = prompt_of(1), .max_tokens = 1});
  const RequestId other = driver.submit({.prompt = tokens_from(900, 5), .max_tokens = 1});
  ASSERT_TRUE(driver.make_plan());
  EXPECT_EQ(driver.rows_of(waiter), 0);
  EXPECT_EQ(driver.rows_of(other), 5);
  driver.finish_step();
  driver.run();
  EXPECT_EQ(driver.tokens_of(waiter), 1);
}

TEST(SchedulerSharing, TreesOfPrefixesAreComputedOnceABranch) {
  Driver driver(plain());
  const auto add = [](std::vector<TokenId> text, TokenId first, std::int32_t count) {
    const std::vector<TokenId> more = tokens_from(first, count);
    text.insert(text.end(), more.begin(), more.end());
    return text;
  };
  const std::vector<TokenId> system = tokens_from(100, 32);
  for (const TokenId document : {1000, 2000}) {
    for (TokenId question = 0; question < 3; ++question) {
      driver.submit({.prompt = add(add(system, document, 24), 5000 + 10 * question, 3), .max_tokens = 1});
    }
  }
  driver.run();
  EXPECT_EQ(driver.scheduler.counters().cache_miss_tokens, 32U + 2 * 24 + 6 * 3);
}

TEST(SchedulerSharing, WhenTheOneWaitedForEndsAnotherTakesItsPlace) {
  for (const bool in_flight : {false, true}) {
    Driver driver(plain());
    const RequestId runner = driver.submit({.prompt = prompt_of(0), .max_tokens = 1});
    std::vector<RequestId> others;
    for (TokenId own = 1; own < 8; ++own) others.push_back(driver.submit({.prompt = prompt_of(own), .max_tokens = 1}));
    driver.step();
    EXPECT_EQ(driver.scheduler.counters().running, 1);
    const bool planned = in_flight && driver.make_plan();
    driver.scheduler.cancel(runner);
    driver.collect();
    if (planned) driver.finish_step();
    ASSERT_TRUE(driver.make_plan());
    EXPECT_EQ(driver.scheduler.counters().running, 1);
    ASSERT_NE(driver.sequence_of(others[0]), nullptr);
    EXPECT_EQ(driver.plan.rows[0].position, 16);  // what the first has left
    driver.finish_step();
    driver.run();
    for (const RequestId id : others) EXPECT_EQ(driver.end_of(id), FinishReason::length);
    EXPECT_EQ(driver.scheduler.counters().cache_miss_tokens, 43U + 27U + 6U * 3);
    driver.expect_all_free();
  }
}

TEST(SchedulerSharing, WhenTheOneWaitedForEndsAnotherThatRunsIsWaitedFor) {
  Driver driver(plain());
  const RequestId runner =
      driver.submit({.prompt = prompt_of(0), .max_tokens = 1, .prompt_outputs = PromptOutputs::scores});
  driver.submit({.prompt = prompt_of(1), .max_tokens = 1, .prompt_outputs = PromptOutputs::scores});
  driver.step();
  ASSERT_EQ(driver.scheduler.counters().running, 2);
  const RequestId waiter = driver.submit({.prompt = prompt_of(2), .max_tokens = 1});
  driver.step();
  driver.scheduler.cancel(runner);
  driver.step();
  EXPECT_EQ(driver.rows_of(waiter), 0);
  EXPECT_EQ(driver.scheduler.counters().prefix_waits, 2U);
  driver.run();
  EXPECT_EQ(driver.scheduler.counters().cache_hit_tokens, 40U);
}

// What a shift has left is not the text that was hashed.
TEST(SchedulerSharing, AShiftedPromptLeadsNobody) {
  SchedulerConfig config = plain();
  config.context = 128;
  Driver driver(config);
  const SchedRequest request{
      .prompt = tokens_from(100, 20), .max_tokens = 150, .overflow = Overflow::shift, .keep = 10};
  const RequestId shifts = driver.submit(request);
  while (driver.tokens_of(shifts) < 108) ASSERT_TRUE(driver.step());
  ASSERT_EQ(driver.events.back().kind, SchedEvent::Kind::shifted);
  const RequestId other = driver.submit(request);
  ASSERT_TRUE(driver.make_plan());
  EXPECT_GT(driver.rows_of(shifts), 1);
  EXPECT_GT(driver.rows_of(other), 0);
  EXPECT_EQ(driver.scheduler.counters().prefix_waits, 0U);
  driver.finish_step();
}

TEST(SchedulerSharing, AWaitingBranchThatEndsIsForgotten) {
  Driver driver(plain());
  const RequestId runner = driver.submit({.prompt = prompt_of(0), .max_tokens = 1});
  const RequestId waiter = driver.submit({.prompt = prompt_of(1), .max_tokens = 1});
  driver.step();
  driver.scheduler.cancel(waiter);
  driver.collect();
  driver.run();
  EXPECT_EQ(driver.end_of(runner), FinishReason::length);
  EXPECT_EQ(driver.end_of(waiter), FinishReason::cancelled);
  driver.expect_all_free();
}

TEST(SchedulerSharing, BadNumbersOfTheOneWaitedForAreNobodyElses) {
  Driver driver(plain());
  const RequestId runner = driver.submit({.prompt = prompt_of(0), .max_tokens = 1});
  const RequestId waiter = driver.submit({.prompt = prompt_of(1), .max_tokens = 1});
  driver.step();
  ASSERT_TRUE(driver.make_plan());
  driver.finish_step({1});
  driver.run();
  EXPECT_EQ(driver.end_of(runner), FinishReason::failed);
  EXPECT_EQ(driver.end_of(waiter), FinishReason::length);
  EXPECT_EQ(driver.scheduler.counters().cache_hit_tokens, 16U);
}

// Two requests, and whether the second waits for the first.
bool waits(const SchedulerConfig& config, const SchedRequest& first, const SchedRequest& second) {
  Driver driver(config);
  driver.submit(first);
  driver.step();
  const RequestId id = driver.submit(second);
  EXPECT_TRUE(driver.make_plan());
  const bool held = driver.rows_of(id) == 0;
  driver.finish_step();
  driver.run();
  EXPECT_EQ(driver.end_of(id), FinishReason::length);
  EXPECT_EQ(driver.scheduler.counters().prefix_waits, held ? 1U : 0U);
  return held;
}

TEST(SchedulerSharing, OnlyForThoseWhoLetOneShare) {
  const SchedRequest runner{.prompt = prompt_of(0), .max_tokens = 1};
  const SchedRequest waiter{.prompt = prompt_of(1), .max_tokens = 1};
  EXPECT_TRUE(waits(plain(), runner, waiter));
  SchedRequest salted = waiter;
  salted.salt = 1;
  EXPECT_FALSE(waits(plain(), runner, salted));
  SchedRequest apart = waiter;
  apart.use_cache = false;
  EXPECT_FALSE(waits(plain(), runner, apart));
  EXPECT_FALSE(waits(plain(), apart, waiter));
  SchedRequest scored = waiter;
  scored.prompt_outputs = PromptOutputs::scores;
  EXPECT_FALSE(waits(plain(), runner, scored));
  EXPECT_TRUE(waits(plain(), scored, waiter));
  SchedRequest different = waiter;
  different.prompt[1] = 7;
  EXPECT_FALSE(waits(plain(), runner, different));
  different.prompt = tokens_from(100, 17);  // the runner has computed its full blocks already
  EXPECT_FALSE(waits(plain(), runner, different));
  SchedulerConfig no_cache = plain();
  no_cache.prefix_cache = false;
  EXPECT_FALSE(waits(no_cache, runner, waiter));
}

TEST(SchedulerSharing, NeverForALowerPriority) {
  const auto request = [](TokenId own, Priority priority) {
    return SchedRequest{.prompt = prompt_of(own), .max_tokens = 1, .priority = priority};
  };
  EXPECT_FALSE(waits(plain(), request(0, Priority::batch), request(1, Priority::normal)));
  EXPECT_FALSE(waits(plain(), request(0, Priority::normal), request(1, Priority::interactive)));
  EXPECT_TRUE(waits(plain(), request(0, Priority::interactive), request(1, Priority::batch)));
}

TEST(SchedulerSharing, NorForOneThatAgeHasLeftBehind) {
  SchedulerConfig config = plain();
  config.ageing_us = 1'000'000;
  Driver driver(config);
  const RequestId old_one = driver.submit({.prompt = prompt_of(0, 4), .max_tokens = 1, .priority = Priority::batch});
  driver.now_us += 1'500'000;
  driver.submit({.prompt = prompt_of(1, 200), .max_tokens = 1, .priority = Priority::interactive});
  driver.step();
  EXPECT_EQ(driver.scheduler.counters().prefix_waits, 1U);
  driver.now_us = 16'200'000;  // one has waited for sixteen periods and stands above the highest priority
  driver.step();
  EXPECT_GT(driver.rows_of(old_one), 0);
}

TEST(SchedulerSharing, WhatTheCacheHasIsNotWaitedFor) {
  Driver driver(plain());
  driver.submit({.prompt = prompt_of(0), .max_tokens = 1});
  driver.run();
  driver.submit({.prompt = prompt_of(1),
                 .max_tokens = 1,
                 .prompt_outputs = PromptOutputs::scores});  // it computes every row all the same
  driver.step();
  const RequestId id = driver.submit({.prompt = prompt_of(2), .max_tokens = 1});
  driver.step();
  EXPECT_EQ(driver.tokens_of(id), 1);
}

TEST(SchedulerSharing, ARecurrentPrefixNeedsASnapshot) {
  const SchedRequest runner{.prompt = prompt_of(0), .max_tokens = 1};
  const SchedRequest waiter{.prompt = prompt_of(1), .max_tokens = 1};
  EXPECT_TRUE(waits(recurrent(), runner, waiter));
  SchedulerConfig none = recurrent();
  none.max_snapshots = 0;
  EXPECT_FALSE(waits(none, runner, waiter));
  SchedulerConfig full = recurrent();
  full.max_snapshots = 4;
  full.state_slots = 1;  // the runner's own state is all there is
  Driver driver(full);
  driver.submit(runner);
  driver.submit(waiter);
  driver.run();
  EXPECT_EQ(driver.scheduler.counters().prefix_waits, 0U);
}

// A long prompt that gets no rows must not take a short one with it.
TEST(SchedulerSharing, ABranchWithoutRowsHoldsUpNoShorterPrompt) {
  Driver driver(plain());
  driver.micros = [](const StepPlan& plan) {  // a row of a prompt is so dear that a step has one
    return 1000 + 100'000 * (static_cast<std::int64_t>(plan.rows.size()) - plan.generated_rows);
  };
  driver.submit({.prompt = {1, 2, 3}, .max_tokens = 200});
  driver.step();
  driver.step();
  const RequestId shorter = driver.submit({.prompt = tokens_from(3000, 80), .max_tokens = 1});
  const RequestId runner = driver.submit({.prompt = prompt_of(0, 60), .max_tokens = 1});
  do ASSERT_TRUE(driver.step());
  while (driver.rows_of(shorter) == 0 || driver.rows_of(runner) > 0);
  const RequestId longer = driver.submit({.prompt = prompt_of(1, 80), .max_tokens = 1});
  const RequestId waiter = driver.submit({.prompt = prompt_of(2), .max_tokens = 1});
  do ASSERT_TRUE(driver.step());
  while (driver.plan.rows.size() < 2);  // decode rows are measured alone now and then
  EXPECT_EQ(driver.rows_of(waiter), 1);
  EXPECT_EQ(driver.scheduler.counters().waiting, 1);
  driver.run();
  for (const RequestId id : {shorter, runner, longer, waiter}) EXPECT_EQ(driver.end_of(id), FinishReason::length);
}

TEST(SchedulerSharing, NobodyWaitsForMoreThanAFewOthers) {
  Driver driver(plain());
  RequestId runner =
      driver.submit({.prompt = tokens_from(100, 200), .max_tokens = 1, .priority = Priority::interactive});
  const RequestId waiter = driver.submit({.prompt = tokens_from(100, 210), .max_tokens = 1});
  for (int i = 0; i < 4; ++i) {
    driver.step();
    EXPECT_EQ(driver.rows_of(waiter), 0);
    driver.scheduler.clear_cache();
    driver.scheduler.cancel(runner);
    runner = driver.submit({.prompt = tokens_from(100, 200), .max_tokens = 1, .priority = Priority::interactive});
  }
  driver.step();
  EXPECT_EQ(driver.scheduler.counters().prefix_waits, 4U);
  EXPECT_GT(driver.scheduler.counters().running, 1);
}

TEST(SchedulerSharing, ACrowdWithOnePromptIsAnsweredWithinAFewSteps) {
  SchedulerConfig config = plain();
  config.groups = {{.blocks = 4096}};
  config.queue_limit = 2000;
  config.max_sequences = 8;
  Driver driver(config);
  for (int i = 0; i < 1000; ++i) driver.submit({.prompt = prompt_of(i % 7), .max_tokens = 1});
  driver.step();
  EXPECT_EQ(driver.scheduler.counters().running, 1);
  EXPECT_EQ(driver.scheduler.counters().prefix_waits, 999U);
  driver.run();
  EXPECT_EQ(driver.scheduler.counters().finished, 1000U);
  EXPECT_LE(driver.scheduler.counters().longest_prefix_wait, 3U);
  EXPECT_EQ(driver.scheduler.counters().cache_miss_tokens, 43U + 999U * 3);
}

}  // namespace
}  // namespace quarrel
