// What a scheduler has to know about the model and the machine, and what follows from it.
#pragma once

#include <cstdint>
#include <vector>

#include "sched/prefix_cache.h"

namespace quarrel {

struct SchedulerConfig {
  std::int32_t block_tokens = 16;
  std::vector<KvGroupConfig> groups = {};
  bool recurrent = false;
  std::int32_t state_slots = 0;  // of a recurrent model: one a running sequence, the others hold snapshots
  std::int32_t context = 4096;   // tokens of one text at most
  std::int32_t max_rows = 512;   // a step
  std::int32_t max_outputs = 0;  // a step; 0: as many as rows
  std::int32_t max_sequences = 64;
  std::int32_t max_branches = 16;    // a request
  std::int32_t steps_in_flight = 1;  // 2: the next step may be planned while one runs
  bool whole_texts = false;          // an encoder: rows see those after them, so a text's rows go into one step
  // Who may wait: requests that never ran, and the tokens of their prompts, of all and of one key. 0: no such limit.
  std::int32_t queue_limit = 1024;
  std::int64_t queue_token_limit = std::int64_t{1} << 22;  // a single request may always wait
  std::int32_t key_queue_limit = 0;
  std::int64_t key_queue_token_limit = 0;  // a single request of a key may always wait
  bool prefix_cache = true;
  std::int32_t pin_percent = 25;         // of the blocks and snapshots, at most
  std::int32_t max_snapshots = -1;       // -1: what running sequences leave of the slots
  std::int32_t snapshot_interval = 256;  // tokens of a prompt; 0: only at its end
  std::int32_t gap_factor = 4;           // of a step with prefill to one without, …
  std::int64_t unnoticed_us = 100'000;   // … where that is more than this: ten tokens a second still outrun a reader
  std::int64_t ageing_us = 10'000'000;   // waiting that counts for one priority
  std::uint64_t hash_seed = 0;           // a secret of the process
};

// The configuration with its defaults filled in. Throws Error(usage) for one that could not run anything.
SchedulerConfig resolved(SchedulerConfig config);
// How many lanes there are: enough that the best branch always finds its own (PlanOutput::lane, StepSequence::lane).
std::int32_t lanes(const SchedulerConfig& config);
// How many keys are remembered while they have no request.
std::int32_t idle_accounts(const SchedulerConfig& config) noexcept;
// The longest text that can be computed: the context, or what the blocks hold. Throws Error(usage) if that is nothing.
std::int32_t longest_text(const SchedulerConfig& config);
PrefixCacheConfig cache_config(const SchedulerConfig& config);

}  // namespace quarrel
