// The kinds of model and machine that simulations run with.
#pragma once

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "sched/simulator.h"

namespace quarrel::sim {

struct NamedConfig {
  std::string name = {};
  SimulatorConfig config = {};
};

inline void PrintTo(const NamedConfig& config, std::ostream* out) { *out << config.name; }

// Every third seed has a rough day.
inline SimulatorConfig seeded(SimulatorConfig config, std::uint64_t seed, std::int64_t steps) {
  config.seed = seed;
  config.steps = steps;
  if (seed % 3 == 0) {
    config.abort_per_mille = 150;
    config.cancel_per_mille = 60;
    config.branch_cancel_per_mille = 120;
    config.bad_per_mille = 30;
  }
  return config;
}

inline std::vector<NamedConfig> simulator_configs() {
  const auto make = [](std::vector<KvGroupConfig> groups, std::int32_t slots) {
    SimulatorConfig config;
    config.scheduler = {.block_tokens = 4,
                        .groups = std::move(groups),
                        .recurrent = slots > 0,
                        .state_slots = slots,
                        .context = 128,
                        .max_rows = 48,
                        .max_sequences = 8,
                        .max_branches = 4,
                        .queue_limit = 40,
                        .snapshot_interval = 16,
                        .ageing_us = 50'000,
                        .hash_seed = 7};
    return config;
  };
  std::vector<NamedConfig> all = {
      {"Dense", make({{.blocks = 160}}, 0)},
      {"DenseTiny", make({{.blocks = 33}}, 0)},
      {"Windowed", make({{.blocks = 160}, {.blocks = 60, .window = 20}}, 0)},
      {"WindowedTiny", make({{.blocks = 32}, {.blocks = 12, .window = 10}}, 0)},
      {"WindowsOnly", make({{.blocks = 40, .window = 13}, {.blocks = 20, .window = 5}}, 0)},
      {"Hybrid", make({{.blocks = 160}}, 20)},
      {"HybridTiny", make({{.blocks = 40}, {.blocks = 16, .window = 8}}, 5)},
      {"Recurrent", make({}, 24)},
      {"RecurrentTiny", make({}, 3)},
      {"OneSequence", make({{.blocks = 33}}, 0)},
      {"NoCache", make({{.blocks = 64}}, 10)},
      {"Pressed", make({{.blocks = 40}}, 0)},
      {"FewOutputs", make({{.blocks = 160}}, 0)},
      {"LargeBlocks", make({{.blocks = 24}, {.blocks = 12, .window = 24}}, 0)},
      {"WholeTexts", make({{.blocks = 60}}, 0)},
      {"WholeTextsTiny", make({{.blocks = 16}, {.blocks = 14, .window = 6}}, 0)},
  };
  all[9].config.scheduler.max_sequences = 1;
  all[10].config.scheduler.prefix_cache = false;
  all[11].config.arrival_per_mille = 500;
  all[11].config.workload = {.longest_prompt = 30, .longest_answer = 90};
  all[12].config.scheduler.max_outputs = 11;  // as many as its sequences and branches need
  all[12].config.workload = {.branches = 4, .special_per_mille = 500};
  all[13].config.scheduler.block_tokens = 16;
  for (const std::size_t encoder : {std::size_t{14}, std::size_t{15}}) {
    all[encoder].config.scheduler.whole_texts = true;
    all[encoder].config.workload = {.whole_texts = true};
  }
  for (NamedConfig& named : all) {
    if (!named.name.ends_with("Tiny")) continue;
    named.config.arrival_per_mille = 100;
    named.config.scheduler.max_snapshots = 2;  // they compete with the states that run
  }
  all[9].config.arrival_per_mille = 60;
  return all;
}

// The same with so many steps in flight.
inline SimulatorConfig with_steps(SimulatorConfig config, std::int32_t steps_in_flight) {
  config.scheduler.steps_in_flight = steps_in_flight;
  return config;
}

// Any machine that can run at all, however odd.
inline SimulatorConfig random_config(std::uint64_t seed) {
  Random random(seed * 977);
  SimulatorConfig config;
  SchedulerConfig& scheduler = config.scheduler;
  scheduler.block_tokens = random.between(1, 9);
  scheduler.context = random.between(8, 150);
  const std::int32_t whole = scheduler.context / scheduler.block_tokens + 1;
  for (std::int32_t groups = random.below(4); groups > 0; --groups) {
    const std::int32_t window = random.chance(500) ? random.between(1, 40) : 0;
    scheduler.groups.push_back(
        {.blocks = random.between(10 / scheduler.block_tokens + 2, 4 * whole), .window = window});
  }
  scheduler.recurrent = scheduler.groups.empty() || random.chance(400);
  scheduler.state_slots = scheduler.recurrent ? random.between(1, 20) : 0;
  scheduler.max_snapshots = random.between(-1, 6);
  scheduler.max_rows = random.between(1, 60);
  scheduler.max_sequences = random.between(1, std::min(scheduler.max_rows, 10));
  scheduler.max_outputs = scheduler.max_sequences + random.below(8);
  scheduler.queue_limit = random.between(1, 40);
  scheduler.queue_token_limit = random.between(10, 3000);
  scheduler.prefix_cache = !random.chance(100);
  scheduler.key_queue_limit = random.chance(300) ? random.between(1, 20) : 0;
  scheduler.key_queue_token_limit = random.chance(300) ? random.between(10, 1000) : 0;
  scheduler.whole_texts = !scheduler.recurrent && random.chance(150);
  scheduler.pin_percent = random.below(101);
  scheduler.snapshot_interval = random.below(40);
  scheduler.ageing_us = random.between(1, 200'000);
  scheduler.hash_seed = random.next();
  config.workload = {.vocabulary = random.between(2, 60),
                     .longest_prompt = random.between(2, 120),
                     .longest_answer = random.between(1, 80),
                     .branches = random.between(1, 6),
                     .special_per_mille = random.below(500),
                     .vectors_per_mille = random.below(200),
                     .whole_texts = scheduler.whole_texts};
  config.arrival_per_mille = random.between(20, 600);
  return config;
}

}  // namespace quarrel::sim
