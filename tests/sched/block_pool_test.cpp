#include "sched/block_pool.h"

#include <gtest/gtest.h>

#include <set>

namespace quarrel {
namespace {

// Takes all places and gives them back, known to the cache, in this order.
void fill_and_release(BlockPool& pool, std::initializer_list<std::int32_t> order) {
  while (pool.available() > 0) pool.mark_cached(pool.take().id);
  for (const std::int32_t id : order) pool.release(id);
}

TEST(BlockPool, GivesEachPlaceOnceAndThenNone) {
  BlockPool pool(5, 0);
  std::set<std::int32_t> seen;
  for (int i = 0; i < 5; ++i) {
    const BlockPool::Taken taken = pool.take();
    EXPECT_FALSE(taken.evicted);
    EXPECT_TRUE(seen.insert(taken.id).second);
  }
  EXPECT_EQ(pool.take().id, -1);
  EXPECT_EQ(pool.used_count(), 5);
  pool.release(3);
  EXPECT_EQ(pool.take().id, 3);
  EXPECT_TRUE(pool.sound());
}

TEST(BlockPool, TheOldestIdlePlaceGoesFirst) {
  BlockPool pool(3, 0);
  fill_and_release(pool, {1, 0, 2});
  EXPECT_EQ(pool.idle_count(), 3);
  EXPECT_EQ(pool.free_count(), 0);
  for (const std::int32_t expected : {1, 0, 2}) {
    const BlockPool::Taken taken = pool.take();
    EXPECT_EQ(taken.id, expected);
    EXPECT_TRUE(taken.evicted);
    EXPECT_FALSE(pool.cached(expected));
  }
  EXPECT_EQ(pool.take().id, -1);
  EXPECT_TRUE(pool.sound());
}

TEST(BlockPool, UseMakesAPlaceYoung) {
  BlockPool pool(3, 0);
  fill_and_release(pool, {0, 1, 2});
  pool.retain(0);
  EXPECT_EQ(pool.available(), 2);
  pool.release(0);
  EXPECT_EQ(pool.take().id, 1);
  EXPECT_EQ(pool.take().id, 2);
  EXPECT_EQ(pool.take().id, 0);
}

TEST(BlockPool, FreePlacesGoBeforeCachedOnes) {
  BlockPool pool(2, 0);
  fill_and_release(pool, {0, 1});
  pool.forget(1);
  const BlockPool::Taken taken = pool.take();
  EXPECT_EQ(taken.id, 1);
  EXPECT_FALSE(taken.evicted);
  EXPECT_TRUE(pool.sound());
}

TEST(BlockPool, APlaceIsFreeOnlyWhenNobodyHoldsIt) {
  BlockPool pool(1, 0);
  const std::int32_t id = pool.take().id;
  pool.retain(id);
  pool.release(id);
  EXPECT_EQ(pool.take().id, -1);
  pool.release(id);
  EXPECT_EQ(pool.take().id, id);
}

TEST(BlockPool, PinnedPlacesGoLast) {
  BlockPool pool(4, 2);
  fill_and_release(pool, {0, 1, 2, 3});
  EXPECT_TRUE(pool.pin(0));
  EXPECT_TRUE(pool.pin(1));
  for (const std::int32_t expected : {2, 3, 0, 1}) EXPECT_EQ(pool.take().id, expected);
  EXPECT_EQ(pool.pinned_count(), 0);
  EXPECT_TRUE(pool.sound());
}

TEST(BlockPool, PinsAreLimitedAndTheOldestIdleOneGivesWay) {
  BlockPool pool(4, 2);
  fill_and_release(pool, {0, 1, 2, 3});
  EXPECT_TRUE(pool.pin(0) && pool.pin(1) && pool.pin(2));
  EXPECT_FALSE(pool.pinned(0));
  EXPECT_EQ(pool.pinned_count(), 2);
  pool.retain(1);
  pool.retain(2);
  EXPECT_FALSE(pool.pin(3));  // both pins are in use
  EXPECT_TRUE(pool.pin(1));   // it has one already
  EXPECT_TRUE(pool.sound());
  BlockPool none(1, 0);
  fill_and_release(none, {0});
  EXPECT_FALSE(none.pin(0));
}

}  // namespace
}  // namespace quarrel
