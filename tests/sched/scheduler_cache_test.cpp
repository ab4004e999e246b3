// What the scheduler takes from the prefix cache, and what it lets in.
#include <gtest/gtest.h>

#include <set>

#include "sched/driver.h"

namespace quarrel {
namespace {

using sim::Driver;
using sim::tokens_from;

SchedulerConfig dense() {
  return {.block_tokens = 4, .groups = {{.blocks = 64}}, .context = 128, .max_rows = 64, .max_sequences = 8};
}

SchedulerConfig hybrid() {
  SchedulerConfig config = dense();
  config.recurrent = true;
  config.state_slots = 24;
  config.snapshot_interval = 16;
  return config;
}

std::int32_t first_position(Driver& driver) {
  EXPECT_TRUE(driver.make_plan());
  const std::int32_t position = driver.plan.rows.empty() ? -1 : driver.plan.rows[0].position;
  driver.finish_step();
  driver.run();
  return position;
}

TEST(SchedulerCache, APromptSeenBeforeIsComputedFromItsLastBlockOn) {
  Driver driver(dense());
  driver.submit({.prompt = tokens_from(0, 18), .max_tokens = 4});
  EXPECT_EQ(first_position(driver), 0);
  driver.submit({.prompt = tokens_from(0, 18), .max_tokens = 4});
  EXPECT_EQ(first_position(driver), 16);
  // Full blocks all the way: the last token is computed all the same.
  driver.submit({.prompt = tokens_from(0, 16), .max_tokens = 4});
  EXPECT_EQ(first_position(driver), 12);
  EXPECT_EQ(driver.events.front().kind, SchedEvent::Kind::started);
  EXPECT_EQ(driver.events.front().cached, 0);
  EXPECT_EQ(driver.scheduler.counters().cache_hit_tokens, 28U);
  EXPECT_EQ(driver.scheduler.counters().cache_miss_tokens, 24U);
  driver.scheduler.clear_cache();
  driver.submit({.prompt = tokens_from(0, 18), .max_tokens = 4});
  EXPECT_EQ(first_position(driver), 0);
}

TEST(SchedulerCache, AnAnswerReadAsPromptIsComputedAgain) {
  Driver driver(dense());
  driver.submit({.prompt = tokens_from(0, 16), .max_tokens = 17});
  driver.run();
  std::vector<TokenId> turn = tokens_from(0, 16);
  turn.insert(turn.end(), 20, driver.says);
  driver.submit({.prompt = turn, .max_tokens = 1});
  EXPECT_EQ(first_position(driver), 16);
}

TEST(SchedulerCache, SaltsAndRequestsWithoutCacheStayApart) {
  Driver driver(dense());
  driver.submit({.prompt = tokens_from(0, 18), .max_tokens = 1, .salt = 1});
  driver.run();
  driver.submit({.prompt = tokens_from(0, 18), .max_tokens = 1, .salt = 2, .use_cache = true});
  EXPECT_EQ(first_position(driver), 0);
  driver.submit({.prompt = tokens_from(0, 18), .max_tokens = 1, .salt = 1, .use_cache = false});
  EXPECT_EQ(first_position(driver), 0);
  driver.submit({.prompt = tokens_from(50, 18), .max_tokens = 1, .use_cache = false});
  EXPECT_EQ(first_position(driver), 0);
  driver.submit({.prompt = tokens_from(50, 18), .max_tokens = 1});  // that one left nothing behind
  EXPECT_EQ(first_position(driver), 0);
  driver.submit({.prompt = tokens_from(0, 18), .max_tokens = 1, .salt = 1});
  EXPECT_EQ(first_position(driver), 16);
}

TEST(SchedulerCache, RunningPromptsShareBlocksAtOnce) {
  Driver driver(dense());
  const RequestId first = driver.submit({.prompt = tokens_from(0, 18), .max_tokens = 50});
  driver.step();
  const RequestId second = driver.submit({.prompt = tokens_from(0, 18), .max_tokens = 50});
  driver.step();  // decode rows are measured first
  ASSERT_TRUE(driver.make_plan());
  const std::vector<std::int32_t> a = driver.table_of(first);
  const std::vector<std::int32_t> b = driver.table_of(second);
  ASSERT_GE(a.size(), 5U);
  ASSERT_EQ(b.size(), 5U);
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 4, b.begin()));
  EXPECT_NE(a[4], b[4]);
  driver.finish_step();
}

TEST(SchedulerCache, UnderPressureTheBeginningOfATextStays) {
  SchedulerConfig config = dense();
  config.groups = {{.blocks = 20}};
  config.context = 80;
  Driver driver(config);
  driver.submit({.prompt = tokens_from(0, 41), .max_tokens = 1});
  driver.run();
  driver.submit({.prompt = tokens_from(500, 52), .max_tokens = 1});  // 13 blocks, 10 of them free
  driver.run();
  driver.submit({.prompt = tokens_from(0, 41), .max_tokens = 1});
  EXPECT_EQ(first_position(driver), 28);
}

TEST(SchedulerCache, BadNumbersNeverEnter) {
  Driver driver(dense());
  const RequestId bad = driver.submit({.prompt = tokens_from(0, 18), .max_tokens = 4, .branches = 2});
  ASSERT_TRUE(driver.make_plan());
  driver.finish_step({1});
  EXPECT_EQ(driver.end_of(bad, 0), FinishReason::failed);
  EXPECT_EQ(driver.end_of(bad, 1), FinishReason::failed);
  EXPECT_EQ(driver.tokens_of(bad), 0);
  EXPECT_EQ(driver.scheduler.counters().groups[0].free, 64);
  driver.submit({.prompt = tokens_from(0, 18), .max_tokens = 1});
  EXPECT_EQ(first_position(driver), 0);
}

TEST(SchedulerCache, PinnedPrefixesOutliveOthers) {
  for (const std::int32_t pinned : {0, 16}) {
    Driver driver(dense());
    driver.submit({.prompt = tokens_from(0, 18), .max_tokens = 1, .pinned = pinned});
    driver.run();
    for (TokenId first = 1000; first < 4000; first += 200) {
      driver.submit({.prompt = tokens_from(first, 100), .max_tokens = 1});
      driver.run();
    }
    driver.submit({.prompt = tokens_from(0, 18), .max_tokens = 1});
    EXPECT_EQ(first_position(driver), pinned);
  }
}

TEST(SchedulerCache, APrefixThatWasThereIsPinnedToo) {
  Driver driver(dense());
  driver.submit({.prompt = tokens_from(0, 18), .max_tokens = 1});
  driver.run();
  driver.submit({.prompt = tokens_from(0, 18), .max_tokens = 1, .pinned = 18});
  driver.run();
  for (TokenId first = 1000; first < 4000; first += 200) {
    driver.submit({.prompt = tokens_from(first, 100), .max_tokens = 1});
    driver.run();
  }
  driver.submit({.prompt = tokens_from(0, 18), .max_tokens = 1});
  EXPECT_EQ(first_position(driver), 16);
}

TEST(SchedulerCache, AWindowKeepsWhatTheNextPositionSees) {
  SchedulerConfig config = dense();
  config.groups.push_back({.blocks = 32, .window = 6});
  Driver driver(config);
  const RequestId id = driver.submit({.prompt = tokens_from(0, 30), .max_tokens = 8});
  driver.step();
  ASSERT_TRUE(driver.make_plan());
  const std::vector<std::int32_t> window = driver.table_of(id, 0, 1);
  ASSERT_EQ(window.size(), 8U);
  // Position 30 sees 25 to 30: blocks 6 and 7.
  for (std::size_t entry = 0; entry < 8; ++entry) EXPECT_EQ(window[entry] >= 0, entry >= 6);
  EXPECT_EQ(driver.plan.tables_of(0)[1].first_live, 24);
  EXPECT_EQ(driver.plan.tables_of(0)[0].first_live, 0);
  driver.finish_step();
  driver.run();
  driver.submit({.prompt = tokens_from(0, 30), .max_tokens = 1});
  EXPECT_EQ(first_position(driver), 28);
  driver.expect_all_free();
}

TEST(SchedulerCache, ARecurrentPromptStartsFromItsSnapshot) {
  Driver driver(hybrid());
  driver.submit({.prompt = tokens_from(0, 43), .max_tokens = 1});
  ASSERT_TRUE(driver.make_plan());
  ASSERT_EQ(driver.plan.snapshots.size(), 3U);  // at 16, 32, and at the end of the last full block
  EXPECT_EQ(driver.plan.snapshots[0].row, 15);
  EXPECT_EQ(driver.plan.snapshots[1].row, 31);
  EXPECT_EQ(driver.plan.snapshots[2].row, 39);
  EXPECT_EQ(driver.plan.sequences[0].state_in, -1);
  const std::int32_t last = driver.plan.snapshots[2].slot;
  const std::int32_t middle = driver.plan.snapshots[1].slot;
  driver.finish_step();
  EXPECT_EQ(driver.scheduler.counters().snapshots, 3);

  driver.submit({.prompt = tokens_from(0, 43), .max_tokens = 2});
  ASSERT_TRUE(driver.make_plan());
  EXPECT_EQ(driver.plan.rows[0].position, 40);
  EXPECT_EQ(driver.plan.sequences[0].state_in, last);
  const std::int32_t own = driver.plan.sequences[0].state_out;
  EXPECT_NE(own, last);
  driver.finish_step();
  ASSERT_TRUE(driver.make_plan());
  EXPECT_EQ(driver.plan.sequences[0].state_in, own);
  EXPECT_EQ(driver.plan.sequences[0].state_out, own);
  driver.finish_step();
  driver.run();

  std::vector<TokenId> other = tokens_from(0, 43);
  other[35] = 999;  // blocks match up to 32
  driver.submit({.prompt = other, .max_tokens = 1});
  ASSERT_TRUE(driver.make_plan());
  EXPECT_EQ(driver.plan.rows[0].position, 32);
  EXPECT_EQ(driver.plan.sequences[0].state_in, middle);
  driver.finish_step();
  driver.run();
  driver.expect_all_free();
}

TEST(SchedulerCache, SnapshotsOfALongPromptLieFartherApart) {
  SchedulerConfig config = hybrid();
  config.max_rows = 128;
  Driver driver(config);
  driver.submit({.prompt = tokens_from(0, 120), .max_tokens = 1});  // 16 snapshots in all: about four for one prompt
  ASSERT_TRUE(driver.make_plan());
  std::vector<std::int32_t> ends;
  for (const StateSnapshot& snapshot : driver.plan.snapshots) ends.push_back(snapshot.row + 1);
  EXPECT_EQ(ends, (std::vector<std::int32_t>{32, 64, 96, 116}));
  driver.finish_step();
}

TEST(SchedulerCache, SnapshotsAreLimitedInNumber) {
  SchedulerConfig config = hybrid();
  config.max_snapshots = 2;
  Driver driver(config);
  for (TokenId first = 0; first < 1000; first += 100) {
    driver.submit({.prompt = tokens_from(first, 80), .max_tokens = 2});
    while (driver.make_plan()) {
      EXPECT_LE(driver.plan.snapshots.size(), 2U);
      driver.finish_step();
      EXPECT_LE(driver.scheduler.counters().snapshots, 2);
    }
  }
  driver.submit({.prompt = tokens_from(900, 80), .max_tokens = 2});
  EXPECT_EQ(first_position(driver), 76);
}

TEST(SchedulerCache, AStepLeavesNoMoreSnapshotsThanThereMayBe) {
  SchedulerConfig config = hybrid();
  config.max_snapshots = 2;
  Driver driver(config);
  for (TokenId first = 0; first < 500; first += 100) {
    driver.submit({.prompt = tokens_from(first, 9), .max_tokens = 2});  // each would like one, all in one step
  }
  ASSERT_TRUE(driver.make_plan());
  EXPECT_EQ(driver.plan.sequences.size(), 5U);
  EXPECT_EQ(driver.plan.snapshots.size(), 2U);
  driver.finish_step();
  EXPECT_EQ(driver.scheduler.counters().snapshots, 2);
  driver.run();
  // One place is taken by a prefix in use, one text after another has the other.
  driver.submit({.prompt = tokens_from(0, 9), .max_tokens = 40});
  driver.step();
  for (TokenId first = 1000; first < 1300; first += 100) {
    driver.submit({.prompt = tokens_from(first, 9), .max_tokens = 1});
    while (driver.scheduler.counters().running + driver.scheduler.counters().waiting > 1) ASSERT_TRUE(driver.step());
    EXPECT_LE(driver.scheduler.counters().snapshots, 2);
  }
}

}  // namespace
}  // namespace quarrel
