#include "sched/scheduler_config.h"

#include <algorithm>

#include "base/error.h"

namespace quarrel {
namespace {

constexpr std::int32_t kMostTokens = 1 << 26;
constexpr std::int32_t kMostSpareNodes = 1 << 16;
constexpr std::int32_t kAccountsWithoutLimit = 1024;

}  // namespace

SchedulerConfig resolved(SchedulerConfig config) {
  const auto require = [](bool holds, const char* what) {
    if (!holds) fail(ErrorKind::usage, "the scheduler cannot run with {}", what);
  };
  require(config.block_tokens >= 1 && config.block_tokens <= 65536, "such a block");
  require(config.context >= 2 && config.context <= kMostTokens, "such a context");
  require(config.max_rows >= 1 && config.max_rows <= kMostTokens, "such a number of rows");
  require(config.max_sequences >= 1 && config.max_sequences <= config.max_rows, "more sequences than rows");
  require(config.max_branches >= 1 && config.queue_limit >= 0 && config.queue_limit <= kMostTokens &&
              config.queue_token_limit >= 0 && config.key_queue_limit >= 0 && config.key_queue_token_limit >= 0,
          "such limits");
  require(config.steps_in_flight == 1 || config.steps_in_flight == 2, "so many steps in flight");
  require(!config.whole_texts || !config.recurrent, "whole texts and recurrent state");
  require(config.pin_percent >= 0 && config.pin_percent <= 100, "such a share of pins");
  require(config.gap_factor >= 2 && config.gap_factor <= 1024, "such a gap factor");
  require(config.unnoticed_us >= 0 && config.unnoticed_us <= 3'600'000'000, "such a gap");
  require(config.snapshot_interval >= 0 && config.snapshot_interval <= kMostTokens, "such a snapshot interval");
  require(config.recurrent ? config.state_slots >= 1 : !config.groups.empty(), "neither blocks nor slots");
  for (const KvGroupConfig& group : config.groups) {
    require(group.blocks >= 1 && group.blocks <= kMostTokens && group.window >= 0, "such a KV group");
  }
  if (config.max_outputs == 0) config.max_outputs = config.max_rows;
  require(config.max_outputs >= config.max_sequences, "fewer outputs than sequences");
  // While a prompt ends in all its branches, every other sequence has an output too.
  config.max_branches = std::min(config.max_branches, config.max_outputs - config.max_sequences + 1);
  if (!config.recurrent) config.state_slots = 0;
  if (config.max_snapshots < 0) config.max_snapshots = std::max(0, config.state_slots - config.max_sequences);
  config.max_snapshots = config.prefix_cache ? std::min(config.max_snapshots, config.state_slots) : 0;
  return config;
}

// Without a step in flight only those that run have a lane, one each; then the rest is for the branches of prompts that
// end. With one, those that have ended keep theirs until it is over.
std::int32_t lanes(const SchedulerConfig& config) { return 2 * (config.max_sequences + resolved(config).max_branches); }

std::int32_t idle_accounts(const SchedulerConfig& config) noexcept {
  return (config.queue_limit > 0 ? config.queue_limit : kAccountsWithoutLimit) + config.max_sequences;
}

std::int32_t longest_text(const SchedulerConfig& config) {
  std::int64_t longest = config.whole_texts ? std::min(config.context, config.max_rows) : config.context;
  for (const KvGroupConfig& group : config.groups) {
    // Where a window ends in the middle of a block it reaches into one more.
    const std::int64_t live = (std::int64_t{group.window} + config.block_tokens - 2) / config.block_tokens + 1;
    if (group.window == 0 || group.blocks < live || config.whole_texts) {
      longest = std::min(longest, std::int64_t{group.blocks} * config.block_tokens);
    }
  }
  if (longest < 2) fail(ErrorKind::usage, "the scheduler cannot run with {} blocks", config.groups[0].blocks);
  return static_cast<std::int32_t>(longest);
}

PrefixCacheConfig cache_config(const SchedulerConfig& config) {
  std::int64_t nodes = 0;
  bool whole = false;
  for (const KvGroupConfig& group : config.groups) {
    nodes += group.blocks;
    whole = whole || group.window == 0;
  }
  // Without a group that keeps everything, texts lead to their snapshots and windows through nodes without a block.
  if (!whole) {
    const std::int64_t depth = config.context / config.block_tokens + 1;
    nodes += std::min<std::int64_t>(kMostSpareNodes, depth * (config.max_snapshots + config.max_sequences));
  }
  nodes = std::min<std::int64_t>(nodes, kMostTokens);
  return {.block_tokens = config.block_tokens,
          .groups = config.groups,
          .recurrent = config.recurrent,
          .state_slots = config.state_slots,
          .max_snapshots = config.max_snapshots,
          .max_nodes = config.prefix_cache ? static_cast<std::int32_t>(nodes) : 0,
          .pin_percent = config.pin_percent,
          .seed = config.hash_seed};
}

}  // namespace quarrel
