#include "sched/prefix_cache.h"

#include <algorithm>
#include <bit>
#include <cassert>

#include "base/as_size.h"

namespace quarrel {
namespace {

// Equal hashes cost time, never truth. So that nobody can make them cost much, a bucket holds only so many nodes.
constexpr int kCrowd = 64;
// When no node is left, so many old blocks or snapshots are forgotten in the hope that one of theirs falls free.
constexpr int kForgetTries = 8;

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) noexcept {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15U;
  hash = (hash ^ (hash >> 29U)) * 0xBF58476D1CE4E5B9U;
  return hash ^ (hash >> 32U);
}

std::int32_t share_of(std::int32_t count, std::int32_t percent) noexcept {
  return static_cast<std::int32_t>(std::int64_t{count} * percent / 100);
}

}  // namespace

PrefixCache::PrefixCache(const PrefixCacheConfig& config)
    : block_tokens_(config.block_tokens),
      recurrent_(config.recurrent),
      max_snapshots_(config.max_snapshots),
      seed_(config.seed),
      slots_(config.state_slots, share_of(config.max_snapshots, config.pin_percent)),
      slot_owners_(as_size(config.state_slots), -1),
      nodes_(as_size(config.max_nodes)),
      node_tokens_(as_size(config.max_nodes) * as_size(config.block_tokens)),
      node_blocks_(as_size(config.max_nodes) * config.groups.size(), -1),
      buckets_(std::bit_ceil(std::max<std::size_t>(1, as_size(config.buckets > 0 ? config.buckets : config.max_nodes))),
               -1),
      run_start_(config.groups.size()) {
  windows_.reserve(config.groups.size());
  pools_.reserve(config.groups.size());
  owners_.reserve(config.groups.size());
  for (const KvGroupConfig& group : config.groups) {
    windows_.push_back(group.window);
    pools_.emplace_back(group.blocks, share_of(group.blocks, config.pin_percent));
    owners_.emplace_back(as_size(group.blocks), -1);
  }
  for (std::int32_t node = config.max_nodes - 1; node >= 0; --node) {
    nodes_[index(node)].next = free_node_;
    free_node_ = node;
  }
}

std::int32_t PrefixCache::take_block(std::size_t group) noexcept {
  const BlockPool::Taken taken = pools_[group].take();
  if (taken.evicted) {
    const std::int32_t node = owners_[group][index(taken.id)];
    owners_[group][index(taken.id)] = -1;
    block(node, group) = -1;
    --nodes_[index(node)].block_count;
    prune(node);
  }
  return taken.id;
}

std::int32_t PrefixCache::take_slot() noexcept {
  const BlockPool::Taken taken = slots_.take();
  if (taken.evicted) {
    const std::int32_t node = slot_owners_[index(taken.id)];
    slot_owners_[index(taken.id)] = -1;
    nodes_[index(node)].snapshot = -1;
    prune(node);
  }
  return taken.id;
}

std::int32_t PrefixCache::take_snapshot() noexcept {
  if (max_snapshots_ <= 0) return -1;
  if (slots_.cached_count() >= max_snapshots_) {
    const std::int32_t oldest = slots_.oldest_idle();
    if (oldest < 0) return -1;
    forget_snapshot(oldest);
  }
  return take_slot();
}

void PrefixCache::forget_block(std::size_t group, std::int32_t id) noexcept {
  const std::int32_t node = owners_[group][index(id)];
  pools_[group].forget(id);
  owners_[group][index(id)] = -1;
  block(node, group) = -1;
  --nodes_[index(node)].block_count;
  prune(node);
}

void PrefixCache::forget_snapshot(std::int32_t slot) noexcept {
  const std::int32_t node = slot_owners_[index(slot)];
  slots_.forget(slot);
  slot_owners_[index(slot)] = -1;
  nodes_[index(node)].snapshot = -1;
  prune(node);
}

bool PrefixCache::forget_oldest() noexcept {
  bool any = false;
  for (std::size_t group = 0; group < pools_.size(); ++group) {
    const std::int32_t id = pools_[group].oldest_idle();
    if (id < 0) continue;
    forget_block(group, id);
    any = true;
  }
  if (const std::int32_t slot = slots_.oldest_idle(); slot >= 0) {
    forget_snapshot(slot);
    any = true;
  }
  return any;
}

void PrefixCache::prune(std::int32_t node) noexcept {
  while (node >= 0) {
    Node& gone = nodes_[index(node)];
    if (gone.holders > 0 || gone.children > 0 || gone.block_count > 0 || gone.snapshot >= 0) return;
    std::int32_t* link = &buckets_[index(gone.bucket)];
    while (*link != node) link = &nodes_[index(*link)].next;
    *link = gone.next;
    const std::int32_t parent = gone.parent;
    gone = {.next = free_node_};
    free_node_ = node;
    --node_count_;
    if (parent >= 0) --nodes_[index(parent)].children;
    node = parent;
  }
}

PrefixCache::Edge PrefixCache::edge(std::int32_t parent, const Text& text, std::int32_t entry) const noexcept {
  const std::int32_t begin = entry * block_tokens_;
  return {.parent = parent,
          .prompt_tokens = std::clamp(text.prompt_end - begin, 0, block_tokens_),
          .salt = text.salt,
          .tokens = text.tokens.subspan(index(begin), index(block_tokens_))};
}

PrefixCache::Place PrefixCache::look_up(const Edge& edge) const noexcept {
  std::uint64_t hash = mix(seed_, static_cast<std::uint32_t>(edge.parent));
  if (edge.parent < 0) hash = mix(hash, edge.salt);
  hash = mix(hash, static_cast<std::uint32_t>(edge.prompt_tokens));
  for (const TokenId token : edge.tokens) hash = mix(hash, static_cast<std::uint32_t>(token));
  Place place{.bucket = static_cast<std::int32_t>(hash & (buckets_.size() - 1))};
  int seen = 0;
  for (std::int32_t at = buckets_[index(place.bucket)]; at >= 0; at = nodes_[index(at)].next) {
    const Node& node = nodes_[index(at)];
    if (node.parent == edge.parent && node.prompt_tokens == edge.prompt_tokens &&
        (edge.parent >= 0 || node.salt == edge.salt) &&
        std::equal(edge.tokens.begin(), edge.tokens.end(), &node_tokens_[index(at) * index(block_tokens_)])) {
      place.node = at;
      return place;
    }
    if (++seen >= kCrowd) {
      place.crowded = true;
      return place;
    }
  }
  return place;
}

PrefixCache::Match PrefixCache::find(const Text& text, std::int32_t longest) {
  const std::int32_t entries = std::min(longest, static_cast<std::int32_t>(text.tokens.size())) / block_tokens_;
  Match best;
  path_.clear();
  std::fill(run_start_.begin(), run_start_.end(), 0);
  std::int32_t node = -1;
  for (std::int32_t entry = 0; entry < entries; ++entry) {
    node = look_up(edge(node, text, entry)).node;
    if (node < 0) break;
    path_.push_back(node);
    const std::int32_t length = (entry + 1) * block_tokens_;
    bool usable = !recurrent_ || nodes_[index(node)].snapshot >= 0;
    bool hopeless = false;
    for (std::size_t group = 0; group < pools_.size(); ++group) {
      if (block(node, group) < 0) {
        run_start_[group] = entry + 1;
        hopeless = hopeless || windows_[group] == 0;
      }
      usable = usable && run_start_[group] <= first_entry(group, length);
    }
    if (hopeless) break;
    if (usable) best = {.node = node, .tokens = length};
  }
  return best;
}

std::int32_t PrefixCache::idle_blocks(const Match& match, std::size_t group) const noexcept {
  std::int32_t count = 0;
  for (std::int32_t entry = first_entry(group, match.tokens); entry < match.tokens / block_tokens_; ++entry) {
    count += pools_[group].idle(block(path_[index(entry)], group)) ? 1 : 0;
  }
  return count;
}

void PrefixCache::share(const Match& match, std::size_t group, std::vector<std::int32_t>& table) {
  const std::int32_t first = first_entry(group, match.tokens);
  const std::int32_t entries = match.tokens / block_tokens_;
  table.reserve(index(entries));
  table.assign(index(first), -1);
  for (std::int32_t entry = first; entry < entries; ++entry) {
    table.push_back(block(path_[index(entry)], group));
    pools_[group].retain(table.back());
  }
}

void PrefixCache::hold(std::int32_t node) noexcept {
  if (node >= 0) ++nodes_[index(node)].holders;
}

void PrefixCache::drop(std::int32_t node) noexcept {
  if (node < 0) return;
  --nodes_[index(node)].holders;
  prune(node);
}

std::int32_t PrefixCache::extend(std::int32_t node, const Text& text, std::int32_t entry) noexcept {
  const Edge wanted = edge(node, text, entry);
  const Place place = look_up(wanted);
  if (place.node >= 0 || place.crowded) return place.node;
  for (int tries = 0; free_node_ < 0 && tries < kForgetTries; ++tries) {
    if (!forget_oldest()) break;
  }
  if (free_node_ < 0) return -1;
  const std::int32_t made = free_node_;
  free_node_ = nodes_[index(made)].next;
  nodes_[index(made)] = {.salt = wanted.salt,
                         .parent = node,
                         .next = buckets_[index(place.bucket)],
                         .bucket = place.bucket,
                         .prompt_tokens = wanted.prompt_tokens,
                         .used = true};
  std::copy(wanted.tokens.begin(), wanted.tokens.end(), &node_tokens_[index(made) * index(block_tokens_)]);
  buckets_[index(place.bucket)] = made;
  ++node_count_;
  if (node >= 0) ++nodes_[index(node)].children;
  return made;
}

void PrefixCache::offer_block(std::int32_t node, std::size_t group, std::int32_t id) noexcept {
  if (block(node, group) >= 0 || pools_[group].cached(id)) return;
  block(node, group) = id;
  owners_[group][index(id)] = node;
  ++nodes_[index(node)].block_count;
  pools_[group].mark_cached(id);
}

void PrefixCache::offer_snapshot(std::int32_t node, std::int32_t slot) noexcept {
  Node& at = nodes_[index(node)];
  if (at.snapshot >= 0 || slots_.cached_count() >= max_snapshots_) return;
  at.snapshot = slot;
  slot_owners_[index(slot)] = node;
  slots_.mark_cached(slot);
}

void PrefixCache::pin(std::int32_t node) noexcept {
  for (std::size_t group = 0; group < pools_.size(); ++group) {
    if (block(node, group) >= 0) pools_[group].pin(block(node, group));
  }
  if (nodes_[index(node)].snapshot >= 0) slots_.pin(nodes_[index(node)].snapshot);
}

void PrefixCache::pin_path(const Match& match, std::int32_t tokens) noexcept {
  const std::int32_t entries = std::min(match.tokens, tokens) / block_tokens_;
  for (std::int32_t entry = 0; entry < entries; ++entry) pin(path_[index(entry)]);
}

void PrefixCache::clear() noexcept {
  for (std::size_t group = 0; group < pools_.size(); ++group) {
    for (std::int32_t id = 0; id < pools_[group].size(); ++id) {
      if (owners_[group][index(id)] >= 0) forget_block(group, id);
    }
  }
  for (std::int32_t slot = 0; slot < slots_.size(); ++slot) {
    if (slot_owners_[index(slot)] >= 0) forget_snapshot(slot);
  }
}

bool PrefixCache::sound() const {
  std::vector<std::int32_t> children(nodes_.size(), 0);
  std::int32_t used = 0;
  for (std::size_t at = 0; at < nodes_.size(); ++at) {
    const Node& node = nodes_[at];
    const auto id = static_cast<std::int32_t>(at);
    if (!node.used) continue;
    ++used;
    if (node.parent >= 0) ++children[index(node.parent)];
    std::int32_t count = 0;
    for (std::size_t group = 0; group < pools_.size(); ++group) {
      const std::int32_t held = block(id, group);
      count += held >= 0 ? 1 : 0;
      if (held >= 0 && (owners_[group][index(held)] != id || !pools_[group].cached(held))) return false;
    }
    if (count != node.block_count) return false;
    if (node.snapshot >= 0 && (slot_owners_[index(node.snapshot)] != id || !slots_.cached(node.snapshot))) return false;
    if (node.holders == 0 && node.children == 0 && count == 0 && node.snapshot < 0) return false;
  }
  for (std::size_t at = 0; at < nodes_.size(); ++at) {
    if (nodes_[at].used && nodes_[at].children != children[at]) return false;
  }
  for (std::size_t group = 0; group < pools_.size(); ++group) {
    std::int32_t owned = 0;
    for (const std::int32_t owner : owners_[group]) owned += owner >= 0 ? 1 : 0;
    if (owned != pools_[group].cached_count() || !pools_[group].sound()) return false;
  }
  return used == node_count_ && slots_.sound() && slots_.cached_count() <= max_snapshots_;
}

}  // namespace quarrel
