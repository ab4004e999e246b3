// The kinds of model and machine that simulations run with.
#pragma once

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
  };
  all[9].config.scheduler.max_sequences = 1;
  all[10].config.scheduler.prefix_cache = false;
  all[11].config.arrival_per_mille = 500;
  all[11].config.workload = {.longest_prompt = 30, .longest_answer = 90};
  all[12].config.scheduler.max_outputs = 11;  // as many as its sequences and branches need
  all[12].config.workload = {.branches = 4, .special_per_mille = 500};
  all[13].config.scheduler.block_tokens = 16;
  for (NamedConfig& named : all) {
    if (!named.name.ends_with("Tiny")) continue;
    named.config.arrival_per_mille = 100;
    named.config.scheduler.max_snapshots = 2;  // they compete with the states that run
  }
  all[9].config.arrival_per_mille = 60;
  return all;
}

}  // namespace quarrel::sim
