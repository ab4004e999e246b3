// How much memory a model will need, before anything is loaded: the same arithmetic serves `estimate`, the choice of
// the context at load time, and the refusal of what cannot fit. The executor allocates exactly what a plan says.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "gguf/file.h"
#include "model/spec.h"

namespace quarrel {

struct ExecutorOptions {
  std::int32_t context = 0;            // tokens a sequence may hold; 0: what the model was trained for, or what fits
  std::int32_t sequences = 1;          // how many at once
  std::int64_t cache_tokens = 0;       // what the KV cache holds for all of them together; 0: every context in full
  std::int32_t snapshots = 0;          // recurrent states that are kept beside those of the sequences
  std::int32_t batch_rows = 0;         // most rows of a step; 0: the device's choice
  std::optional<KvType> kv_type = {};  // none: the device's default
  ActivationPrecision activations = ActivationPrecision::outlier_groups;
  bool deterministic = false;                       // no row's bits depend on its neighbours, on any backend
  bool repack = true;                               // weights in the machine's own layout, where memory allows it
  bool graphs = true;                               // steps are replayed, where a device does such
  bool mirrors = true;                              // and copies of them for large batches, where a device has such
  std::optional<Pooling> pooling = {};              // none: what the file says
  bool logits = true;                               // false: only embeddings are wanted, so the head is left out
  std::optional<std::uint64_t> memory_budget = {};  // bytes for everything below; none: what the device has
  // How far loading is, in bytes of weights; called by the loading thread, for the last time with done = total.
  std::function<void(std::uint64_t done, std::uint64_t total)> on_load = {};
  std::optional<std::uint64_t> expert_memory =
      {};  // bytes for experts alone; none: all of them, or what the budget leaves
};

struct MemoryPlan {
  std::int32_t context = 0;
  std::int32_t trained_context = 0;
  std::int32_t sequences = 0;
  StepLimits limits = {};
  KvType kv_type = KvType::f16;
  std::vector<std::int32_t> blocks = {};  // of each KV group
  std::int32_t state_slots = 0;  // of a recurrent model: one a sequence, one that a step in flight may still write, and
                                 // snapshots
  std::optional<std::uint64_t> expert_cache = {};  // bytes; none: experts are used where they lie
  ActivationPrecision activations = ActivationPrecision::outlier_groups;
  bool deterministic = false;
  bool repack = true;
  bool mirrored = false;  // weights have copies for large batches

  std::uint64_t shared_weights = 0;  // mapped: what every token needs
  std::uint64_t expert_weights = 0;  // all experts of the file
  std::uint64_t prepared = 0;        // dequantised vectors and repacked weights
  std::uint64_t mirrors = 0;         // of that: copies for large batches
  std::uint64_t released = 0;        // of the mapped weights: those that were repacked are not read again
  std::uint64_t kv = 0;
  std::uint64_t state = 0;
  std::uint64_t expert_workspace = 0;  // routing and the experts' results
  std::uint64_t workspace = 0;         // all other activations and scratch

  std::uint64_t experts_held() const noexcept { return expert_cache.value_or(expert_weights); }
  // What cannot be given back under pressure: everything but the mapped weights.
  std::uint64_t anonymous() const noexcept {
    return prepared + kv + state + expert_workspace + workspace + expert_cache.value_or(0);
  }
  std::uint64_t mapped() const noexcept { return shared_weights + (expert_cache ? 0 : expert_weights) - released; }
  std::uint64_t total() const noexcept { return mapped() + anonymous(); }
};

// For messages.
inline double mebibytes(std::uint64_t bytes) noexcept { return static_cast<double>(bytes) / (1024.0 * 1024.0); }

// How many blocks hold this many tokens.
inline std::int64_t blocks_for(std::int64_t tokens, std::int32_t block_tokens) noexcept {
  return (tokens + block_tokens - 1) / block_tokens;
}

// The options to make a backend for that plan.
BackendOptions backend_options(const MemoryPlan& plan);

// The file's spec, as changed by the options.
ModelSpec requested_spec(const GgufFile& file, std::int32_t context, const ExecutorOptions& options);

// With more tokens of context, a smaller one is no reason to save elsewhere.
inline constexpr std::int32_t kUsualContext = 4096;

// What a model may take of the device's free memory, bytes; 0: nobody knows.
std::uint64_t free_share(const Device& device);

// Chooses the context, the expert cache and whether weights are repacked within the budget or the device's free memory;
// copies for large batches get what that leaves, if it is enough for them. A device that is lost is marked so.
// Throws Error(out_of_memory) with what was asked, what there is and which context would fit; Error(bad_file) for a
// file that cannot be bound.
MemoryPlan plan_memory(const GgufFile& file, Device& device, const ExecutorOptions& options);

}  // namespace quarrel
