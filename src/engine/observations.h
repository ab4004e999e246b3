// What can be observed of a running model: the one interface that `--verbose` and the metrics endpoint read. Counters
// are always on because they cost next to nothing; times of ops are measured on request.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/backend.h"

namespace quarrel {

// How often values occurred, by size: bucket i counts values above 2^(i-1) and up to 2^i; the last one also counts
// everything larger.
struct SizeCounts {
  static constexpr std::size_t kBuckets = 24;
  std::array<std::uint64_t, kBuckets> counts = {};

  void add(std::uint64_t value, std::uint64_t times = 1) noexcept;
  static constexpr std::uint64_t bound(std::size_t bucket) noexcept { return std::uint64_t{1} << bucket; }
};

// How long a kind of layer, or a part of it, took in the steps that were sampled. Calls and seconds are exact; a call
// is in the bucket of the mean of its step.
struct LayerTimes {
  std::uint64_t calls = 0;
  double seconds = 0.0;
  SizeCounts micros = {};

  void add(std::uint64_t more_calls, double more_seconds) noexcept;
};

struct Observations {
  std::uint64_t rows = 0;               // tokens that went through the model
  std::uint64_t steps = 0;              // in how many steps
  std::uint64_t divergences = 0;        // steps given up because a row's numbers were not finite
  std::int32_t last_bad_layer = -1;     // where the last of them was first seen
  std::uint64_t ssm_divergences = 0;    // of them: first seen in a recurrent layer, or right behind one
  SizeCounts step_rows = {};            // steps by their rows
  std::uint64_t kv_saturated = 0;       // values clamped on their way into an F16 cache
  std::uint64_t weights_saturated = 0;  // weights clamped on their way into F16
  std::uint64_t state_bytes = 0;        // recurrent state of one sequence
  std::vector<ExpertUse> experts = {};  // by layer; the counts of a layer sum to experts used x rows
  std::uint64_t expert_hits = 0;        // of the expert cache
  std::uint64_t expert_misses = 0;
  std::uint64_t expert_bytes_read = 0;
  std::uint64_t expert_cache_bytes = 0;  // 0: there is no cache
  std::vector<OpTime> times = {};        // "router", "experts", "conv", "scan" …; empty unless asked for

  // Of one step in 64 (1024 on a GPU) and of one right after the load, where the model has such layers.
  LayerTimes moe_layers = {};  // router and experts, the shared one included
  LayerTimes moe_routing = {};
  LayerTimes ssm_scans = {};
  LayerTimes ssm_convolutions = {};

  double expert_hit_rate() const noexcept {
    const std::uint64_t uses = expert_hits + expert_misses;
    return uses == 0 ? 0.0 : static_cast<double>(expert_hits) / static_cast<double>(uses);
  }
};

// How unevenly a layer's experts are used: the share of the most and of the least chosen one, and how many were never.
struct ExpertBalance {
  double most = 0.0;
  double least = 0.0;
  std::uint64_t unused = 0;
};
ExpertBalance balance_of(const ExpertUse& use);

}  // namespace quarrel
