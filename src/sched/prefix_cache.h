// Who owns which block and slot, and which texts they hold. Full blocks of computed text are kept in a trie: a node is
// the tokens of one block after its parent's text, with one block per KV group and possibly a snapshot of recurrent
// state. A node is found by a hash of its parent and its tokens, but only equal tokens, classes and salts match: no
// hash collision, accidental or crafted, gives one text the blocks of another.
//
// A prefix can be used if every group still has the blocks that its next position sees (all of them, or a window)
// and, for a recurrent model, if there is a snapshot exactly at its end. The constructor allocates all memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/token.h"
#include "sched/block_pool.h"

namespace quarrel {

struct KvGroupConfig {
  std::int32_t blocks = 0;
  std::int32_t window = 0;  // positions a row sees, itself included; 0: all
};

struct PrefixCacheConfig {
  std::int32_t block_tokens = 16;
  std::vector<KvGroupConfig> groups = {};
  bool recurrent = false;
  std::int32_t state_slots = 0;
  std::int32_t max_snapshots = 0;  // of the slots
  std::int32_t max_nodes = 0;
  std::int32_t buckets = 0;       // of the hashes, at least; 0: as many as nodes
  std::int32_t pin_percent = 25;  // of each group's blocks and of the snapshots
  std::uint64_t seed = 0;         // of the hashes
};

class PrefixCache {
 public:
  explicit PrefixCache(const PrefixCacheConfig& config);

  // A text as far as it is known: tokens before prompt_end are of class prompt, the others generated.
  struct Text {
    std::span<const TokenId> tokens = {};
    std::int32_t prompt_end = 0;
    std::uint64_t salt = 0;
  };
  struct Match {
    std::int32_t node = -1;
    std::int32_t tokens = 0;  // a multiple of the block
  };

  // One reference each; if none is free, cached ones are evicted; -1: all are held.
  std::int32_t take_block(std::size_t group) noexcept;
  std::int32_t take_slot() noexcept;
  // A slot for a snapshot, within their limit: the oldest snapshot is evicted for it. -1: all are held.
  std::int32_t take_snapshot() noexcept;

  // The longest usable prefix of at most `longest` tokens. The match is good until something is taken.
  Match find(const Text& text, std::int32_t longest);
  // Of the match just found: how many of its blocks in a group nobody holds.
  std::int32_t idle_blocks(const Match& match, std::size_t group) const noexcept;
  // Takes a reference to each block of the match just found that its next position sees, and appends them to an empty
  // table, with -1 for those before.
  void share(const Match& match, std::size_t group, std::vector<std::int32_t>& table);
  std::int32_t matched_block(std::size_t group, std::int32_t entry) const noexcept {
    return block(path_[index(entry)], group);
  }
  // Pins the nodes of the match just found whose text ends within this many tokens.
  void pin_path(const Match& match, std::int32_t tokens) noexcept;
  std::int32_t snapshot_of(std::int32_t node) const noexcept { return nodes_[index(node)].snapshot; }

  // Whether there is a node of the text's block number `entry` behind `node`.
  bool knows(std::int32_t node, const Text& text, std::int32_t entry) const noexcept {
    return look_up(edge(node, text, entry)).node >= 0;
  }

  // A text keeps its newest node from being removed.
  void hold(std::int32_t node) noexcept;
  void drop(std::int32_t node) noexcept;
  // The node of the text's block number `entry` behind `node` (that of the block before; -1: none), found or made; -1:
  // there is no room. The caller holds `node`.
  std::int32_t extend(std::int32_t node, const Text& text, std::int32_t entry) noexcept;
  // Adds the block, held and full, to the node if it has none of the group yet. Likewise a snapshot; the caller keeps
  // its own reference.
  void offer_block(std::int32_t node, std::size_t group, std::int32_t block) noexcept;
  void offer_snapshot(std::int32_t node, std::int32_t slot) noexcept;
  void pin(std::int32_t node) noexcept;
  // Forgets every text; what is held stays held.
  void clear() noexcept;

  // The first entry of a group's table that position `length` sees.
  std::int32_t first_entry(std::size_t group, std::int32_t length) const noexcept {
    return first_seen(group, length) / block_tokens_;
  }
  // The first position that position `length` sees: a window includes itself.
  std::int32_t first_seen(std::size_t group, std::int32_t length) const noexcept {
    const std::int32_t window = windows_[group];
    return window > 0 && length >= window ? length - window + 1 : 0;
  }

  BlockPool& blocks(std::size_t group) noexcept { return pools_[group]; }
  const BlockPool& blocks(std::size_t group) const noexcept { return pools_[group]; }
  BlockPool& slots() noexcept { return slots_; }
  const BlockPool& slots() const noexcept { return slots_; }
  std::size_t groups() const noexcept { return pools_.size(); }
  std::int32_t node_count() const noexcept { return node_count_; }
  std::int32_t snapshot_count() const noexcept { return slots_.cached_count(); }
  std::int32_t holders(std::int32_t node) const noexcept { return nodes_[index(node)].holders; }
  // Walks everything: whether nodes, buckets, owners and pools agree.
  bool sound() const;

 private:
  struct Node {
    std::uint64_t salt = 0;  // compared at the root only
    std::int32_t parent = -1;
    std::int32_t next = -1;  // in its bucket, or in the list of free nodes
    std::int32_t bucket = -1;
    std::int32_t children = 0;
    std::int32_t holders = 0;
    std::int32_t prompt_tokens = 0;  // how many of its tokens are of class prompt
    std::int32_t snapshot = -1;
    std::int32_t block_count = 0;
    bool used = false;
  };
  // A node's identity: its parent and what its block says.
  struct Edge {
    std::int32_t parent = -1;
    std::int32_t prompt_tokens = 0;
    std::uint64_t salt = 0;
    std::span<const TokenId> tokens = {};
  };
  struct Place {
    std::int32_t node = -1;
    std::int32_t bucket = 0;
    bool crowded = false;  // the bucket takes no more
  };

  static std::size_t index(std::int32_t i) noexcept { return static_cast<std::size_t>(i); }
  Edge edge(std::int32_t parent, const Text& text, std::int32_t entry) const noexcept;
  Place look_up(const Edge& edge) const noexcept;
  std::int32_t& block(std::int32_t node, std::size_t group) noexcept {
    return node_blocks_[index(node) * pools_.size() + group];
  }
  std::int32_t block(std::int32_t node, std::size_t group) const noexcept {
    return node_blocks_[index(node) * pools_.size() + group];
  }
  void forget_block(std::size_t group, std::int32_t id) noexcept;
  void forget_snapshot(std::int32_t slot) noexcept;
  bool forget_oldest() noexcept;
  void prune(std::int32_t node) noexcept;

  std::int32_t block_tokens_;
  bool recurrent_;
  std::int32_t max_snapshots_;
  std::uint64_t seed_;
  std::vector<std::int32_t> windows_;  // [group]
  std::vector<BlockPool> pools_;       // [group]
  BlockPool slots_;
  std::vector<std::vector<std::int32_t>> owners_;  // [group][block]: the node that has it; -1: none
  std::vector<std::int32_t> slot_owners_;
  std::vector<Node> nodes_;
  std::vector<TokenId> node_tokens_;       // [node][block_tokens]
  std::vector<std::int32_t> node_blocks_;  // [node][group]
  std::vector<std::int32_t> buckets_;      // a power of two of them
  std::int32_t free_node_ = -1;
  std::int32_t node_count_ = 0;
  std::vector<std::int32_t> path_;       // of the match just found, from the root
  std::vector<std::int32_t> run_start_;  // [group]: since which entry the path has all blocks
};

}  // namespace quarrel
