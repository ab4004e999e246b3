#include "sched/prefix_cache.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/as_size.h"
#include "sched/driver.h"

namespace quarrel {
namespace {

using sim::tokens_from;

constexpr std::int32_t kBlock = 4;

PrefixCacheConfig dense(std::int32_t blocks = 32, std::int32_t nodes = 64) {
  return {.block_tokens = kBlock, .groups = {{.blocks = blocks}}, .max_nodes = nodes};
}

// Stores a text of full blocks as a sequence would, and lets go of it. A group keeps the blocks from `first` on.
void store(PrefixCache& cache, const PrefixCache::Text& text, std::vector<std::int32_t> first = {},
           std::vector<std::int32_t> snapshots = {}) {
  first.resize(cache.groups());
  std::int32_t node = -1;
  std::vector<std::pair<std::size_t, std::int32_t>> held;
  for (std::int32_t entry = 0; entry < static_cast<std::int32_t>(text.tokens.size()) / kBlock; ++entry) {
    const std::int32_t next = cache.extend(node, text, entry);
    ASSERT_GE(next, 0);
    cache.hold(next);
    cache.drop(node);
    node = next;
    for (std::size_t group = 0; group < cache.groups(); ++group) {
      if (entry < first[group]) continue;
      held.emplace_back(group, cache.take_block(group));
      cache.offer_block(node, group, held.back().second);
    }
    if (std::find(snapshots.begin(), snapshots.end(), (entry + 1) * kBlock) == snapshots.end()) continue;
    const std::int32_t slot = cache.take_snapshot();
    ASSERT_GE(slot, 0);
    cache.offer_snapshot(node, slot);
    cache.slots().release(slot);
  }
  for (auto at = held.rbegin(); at != held.rend(); ++at) cache.blocks(at->first).release(at->second);
  cache.drop(node);
  ASSERT_TRUE(cache.sound());
}

TEST(PrefixCache, FindsTheLongestPrefixOfFullBlocks) {
  PrefixCache cache(dense());
  const std::vector<TokenId> text = tokens_from(100, 16);
  store(cache, {.tokens = text, .prompt_end = 16});
  EXPECT_EQ(cache.find({.tokens = text, .prompt_end = 16}, 16).tokens, 16);
  EXPECT_EQ(cache.find({.tokens = text, .prompt_end = 16}, 15).tokens, 12);  // the last token is to be computed
  std::vector<TokenId> other = text;
  other[9] = 1;
  EXPECT_EQ(cache.find({.tokens = other, .prompt_end = 16}, 16).tokens, 8);
  other[0] = 1;
  EXPECT_EQ(cache.find({.tokens = other, .prompt_end = 16}, 16).tokens, 0);
  EXPECT_EQ(cache.find({.tokens = std::span(text).first(3), .prompt_end = 3}, 3).tokens, 0);
}

TEST(PrefixCache, SharedBlocksAreHeldAndSurviveAFlood) {
  PrefixCache cache(dense(8));
  const std::vector<TokenId> text = tokens_from(100, 16);
  store(cache, {.tokens = text, .prompt_end = 16});
  const PrefixCache::Match match = cache.find({.tokens = text, .prompt_end = 16}, 15);
  EXPECT_EQ(cache.idle_blocks(match, 0), 3);
  std::vector<std::int32_t> table;
  cache.share(match, 0, table);
  ASSERT_EQ(table.size(), 3U);
  EXPECT_EQ(cache.idle_blocks(match, 0), 0);
  while (cache.take_block(0) >= 0) {
  }
  EXPECT_EQ(cache.find({.tokens = text, .prompt_end = 16}, 16).tokens, 12);
  EXPECT_TRUE(cache.sound());
}

TEST(PrefixCache, TheEndOfATextIsForgottenFirst) {
  PrefixCache cache(dense(4));
  const std::vector<TokenId> text = tokens_from(100, 16);
  store(cache, {.tokens = text, .prompt_end = 16});
  for (const std::int32_t left : {12, 8, 4, 0}) {
    EXPECT_GE(cache.take_block(0), 0);
    EXPECT_EQ(cache.find({.tokens = text, .prompt_end = 16}, 16).tokens, left);
  }
  EXPECT_EQ(cache.node_count(), 0);
}

TEST(PrefixCache, ClassesAndSaltsAreParts) {
  PrefixCache cache(dense());
  const std::vector<TokenId> text = tokens_from(100, 16);
  store(cache, {.tokens = text, .prompt_end = 6, .salt = 1});
  EXPECT_EQ(cache.find({.tokens = text, .prompt_end = 6, .salt = 1}, 16).tokens, 16);
  EXPECT_EQ(cache.find({.tokens = text, .prompt_end = 16, .salt = 1}, 16).tokens, 4);  // an answer, read as a prompt
  EXPECT_EQ(cache.find({.tokens = text, .prompt_end = 7, .salt = 1}, 16).tokens, 4);
  EXPECT_EQ(cache.find({.tokens = text, .prompt_end = 6, .salt = 2}, 16).tokens, 0);
}

TEST(PrefixCache, CollidingTextsStayApart) {
  // Two buckets for a hundred texts: nearly all collide.
  PrefixCache cache({.block_tokens = kBlock, .groups = {{.blocks = 128}}, .max_nodes = 2});
  PrefixCache wide(dense(128, 128));
  for (TokenId first = 0; first < 100; ++first) {
    const std::vector<TokenId> text = tokens_from(first, kBlock);
    EXPECT_EQ(wide.find({.tokens = text, .prompt_end = kBlock}, kBlock).tokens, 0);
    store(wide, {.tokens = text, .prompt_end = kBlock});
    store(cache, {.tokens = text, .prompt_end = kBlock});
    EXPECT_LE(cache.node_count(), 2);
    EXPECT_EQ(cache.find({.tokens = text, .prompt_end = kBlock}, kBlock).tokens, kBlock);
  }
  for (TokenId first = 0; first < 100; ++first) {
    const std::vector<TokenId> text = tokens_from(first, kBlock);
    EXPECT_EQ(wide.find({.tokens = text, .prompt_end = kBlock}, kBlock).tokens, kBlock);
    EXPECT_EQ(cache.find({.tokens = text, .prompt_end = kBlock}, kBlock).tokens, first < 98 ? 0 : kBlock);
  }
}

TEST(PrefixCache, ABucketTakesOnlySoMany) {
  PrefixCacheConfig config = dense(256, 256);
  config.buckets = 1;  // as if somebody had found texts whose hashes are all alike
  PrefixCache cache(config);
  for (TokenId first = 0; first < 64; ++first) {
    const std::vector<TokenId> text = tokens_from(first, kBlock);
    store(cache, {.tokens = text, .prompt_end = kBlock});
  }
  const std::vector<TokenId> one_more = tokens_from(1000, kBlock);
  EXPECT_EQ(cache.extend(-1, {.tokens = one_more, .prompt_end = kBlock}, 0), -1);
  EXPECT_EQ(cache.node_count(), 64);
  EXPECT_EQ(cache.find({.tokens = one_more, .prompt_end = kBlock}, kBlock).tokens, 0);
  for (TokenId first = 0; first < 64; ++first) {  // the others are still found
    const std::vector<TokenId> text = tokens_from(first, kBlock);
    EXPECT_EQ(cache.find({.tokens = text, .prompt_end = kBlock}, kBlock).tokens, kBlock);
  }
  while (cache.take_block(0) >= 0 && cache.node_count() == 64) {
  }
  EXPECT_GE(cache.extend(-1, {.tokens = one_more, .prompt_end = kBlock}, 0), 0);  // there is room again
}

TEST(PrefixCache, OffersBeyondTheNumberOfSnapshotsAreRefused) {
  PrefixCache cache({.block_tokens = kBlock, .recurrent = true, .state_slots = 6, .max_snapshots = 2, .max_nodes = 16});
  // Slots for three are taken before the first is offered: none of them counts yet.
  std::vector<std::int32_t> slots;
  for (int i = 0; i < 3; ++i) slots.push_back(cache.take_snapshot());
  for (TokenId i = 0; i < 3; ++i) {
    const std::vector<TokenId> text = tokens_from(100 * i, kBlock);
    const std::int32_t node = cache.extend(-1, {.tokens = text, .prompt_end = kBlock}, 0);
    ASSERT_GE(node, 0);
    cache.hold(node);
    cache.offer_snapshot(node, slots[as_size(i)]);
    cache.slots().release(slots[as_size(i)]);
    cache.drop(node);
    EXPECT_EQ(cache.snapshot_count(), std::min(i + 1, 2));
    EXPECT_TRUE(cache.sound());
  }
  EXPECT_EQ(cache.slots().free_count(), 4);
  PrefixCache none({.block_tokens = kBlock, .recurrent = true, .state_slots = 6, .max_nodes = 16});
  EXPECT_EQ(none.take_snapshot(), -1);
}

TEST(PrefixCache, AWindowNeedsOnlyItsOwnBlocks) {
  PrefixCache cache({.block_tokens = kBlock, .groups = {{.blocks = 32}, {.blocks = 32, .window = 6}}, .max_nodes = 64});
  const std::vector<TokenId> text = tokens_from(100, 24);
  store(cache, {.tokens = text, .prompt_end = 24}, {0, 3});  // the window has passed the first three blocks
  // Position 20 sees 15 to 20: blocks 3 and 4. Position 16 sees 11 to 16: block 2 is gone.
  EXPECT_EQ(cache.find({.tokens = text, .prompt_end = 24}, 24).tokens, 24);
  const PrefixCache::Match match = cache.find({.tokens = text, .prompt_end = 24}, 23);
  EXPECT_EQ(match.tokens, 20);
  EXPECT_EQ(cache.find({.tokens = text, .prompt_end = 24}, 19).tokens, 0);
  std::vector<std::int32_t> table;
  cache.share(cache.find({.tokens = text, .prompt_end = 24}, 23), 1, table);
  ASSERT_EQ(table.size(), 5U);
  EXPECT_TRUE(std::all_of(table.begin(), table.begin() + 3, [](std::int32_t block) { return block == -1; }));
  EXPECT_GE(table[3], 0);
}

// A position sees itself and window - 1 before it, so a block that ends right there is not needed any more.
TEST(PrefixCache, AWindowEndsAtTheBlockBeforeItsFirstPosition) {
  PrefixCache cache({.block_tokens = kBlock, .groups = {{.blocks = 32, .window = 5}}, .max_nodes = 64});
  EXPECT_EQ(cache.first_entry(0, 7), 0);  // 3 to 7
  EXPECT_EQ(cache.first_entry(0, 8), 1);  // 4 to 8
  EXPECT_EQ(cache.first_entry(0, 11), 1);
  EXPECT_EQ(cache.first_entry(0, 12), 2);
  const std::vector<TokenId> text = tokens_from(100, 16);
  store(cache, {.tokens = text, .prompt_end = 16}, {2});
  EXPECT_EQ(cache.find({.tokens = text, .prompt_end = 16}, 12).tokens, 12);  // block 2 is all that 12 sees
  EXPECT_EQ(cache.find({.tokens = text, .prompt_end = 16}, 11).tokens, 0);
}

TEST(PrefixCache, ARecurrentTextIsUsableAtItsSnapshots) {
  PrefixCache cache({.block_tokens = kBlock,
                     .groups = {{.blocks = 32}},
                     .recurrent = true,
                     .state_slots = 4,
                     .max_snapshots = 2,
                     .max_nodes = 64});
  const std::vector<TokenId> text = tokens_from(100, 24);
  store(cache, {.tokens = text, .prompt_end = 24}, {}, {8, 20});
  EXPECT_EQ(cache.find({.tokens = text, .prompt_end = 24}, 24).tokens, 20);
  EXPECT_EQ(cache.find({.tokens = text, .prompt_end = 24}, 19).tokens, 8);
  EXPECT_EQ(cache.find({.tokens = text, .prompt_end = 24}, 7).tokens, 0);
  // A third one takes the place of the oldest.
  const std::vector<TokenId> other = tokens_from(200, 4);
  store(cache, {.tokens = other, .prompt_end = 4}, {}, {4});
  EXPECT_EQ(cache.snapshot_count(), 2);
  EXPECT_EQ(cache.find({.tokens = text, .prompt_end = 24}, 19).tokens, 0);
  EXPECT_EQ(cache.find({.tokens = other, .prompt_end = 4}, 4).tokens, 4);
}

TEST(PrefixCache, ModelsWithoutBlocksLeadToSnapshotsThroughTheirTokens) {
  PrefixCache cache({.block_tokens = kBlock, .recurrent = true, .state_slots = 3, .max_snapshots = 1, .max_nodes = 16});
  const std::vector<TokenId> text = tokens_from(100, 24);
  store(cache, {.tokens = text, .prompt_end = 24}, {}, {16});
  EXPECT_EQ(cache.node_count(), 4);  // what lies behind the snapshot leads nowhere
  EXPECT_EQ(cache.find({.tokens = text, .prompt_end = 24}, 23).tokens, 16);
  for (int i = 0; i < 3; ++i) EXPECT_GE(cache.take_slot(), 0);
  EXPECT_EQ(cache.node_count(), 0);
  EXPECT_TRUE(cache.sound());
}

TEST(PrefixCache, PinsOutliveAFloodOfOthers) {
  PrefixCacheConfig config = dense(16, 32);
  config.pin_percent = 25;
  PrefixCache cache(config);
  const std::vector<TokenId> text = tokens_from(100, 16);
  store(cache, {.tokens = text, .prompt_end = 16});
  cache.pin_path(cache.find({.tokens = text, .prompt_end = 16}, 16), 13);
  for (TokenId first = 1000; first < 3000; first += 100) {
    const std::vector<TokenId> other = tokens_from(first, 24);
    store(cache, {.tokens = other, .prompt_end = 24});
  }
  EXPECT_EQ(cache.find({.tokens = text, .prompt_end = 16}, 16).tokens, 12);
}

TEST(PrefixCache, ClearForgetsTextsButNotWhatIsHeld) {
  PrefixCache cache(dense(8));
  const std::vector<TokenId> text = tokens_from(100, 16);
  store(cache, {.tokens = text, .prompt_end = 16});
  std::vector<std::int32_t> table;
  cache.share(cache.find({.tokens = text, .prompt_end = 16}, 8), 0, table);
  cache.clear();
  EXPECT_EQ(cache.find({.tokens = text, .prompt_end = 16}, 16).tokens, 0);
  EXPECT_EQ(cache.blocks(0).used_count(), 2);
  EXPECT_EQ(cache.blocks(0).free_count(), 6);
  EXPECT_EQ(cache.node_count(), 0);
  for (const std::int32_t block : table) cache.blocks(0).release(block);
  EXPECT_EQ(cache.blocks(0).free_count(), 8);
}

}  // namespace
}  // namespace quarrel
