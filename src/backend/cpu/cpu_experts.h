// Mixture of experts on the CPU: the op `moe`. Rows are sorted by the expert they chose, so an expert's weights are
// read once a step whatever the number of its rows; workers take pieces of 32 weight rows of all experts in turn. Each
// pair of a row and an expert has a place of its own for its result, and a row adds up its own in the order of its
// choice: neither the grouping nor who computed what can be seen in the bits. Owns the experts' workspace and, within a
// budget of bytes, the cache they are read into. Called by the engine's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "backend/cpu/cpu_linear.h"
#include "backend/cpu/expert_cache.h"
#include "backend/cpu/expert_workspace.h"

namespace quarrel {

class CpuExperts {
 public:
  CpuExperts(HostBackend& host, CpuDevice& device, const CpuWeights& weights, CpuLinear& linear,
             const BackendOptions& options)
      : host_(host),
        device_(device),
        kernels_(device.kernels()),
        weights_(weights),
        linear_(linear),
        options_(options) {}

  // Notes what the experts of a layer ask of the workspace and of the cache.
  void add(const WeightSource& source, const Weight& weight);
  std::size_t cache_bytes() const noexcept;
  std::size_t workspace_bytes(std::size_t rows) const noexcept;
  void reserve(std::size_t rows);
  // Adds what the cache has counted.
  void count(BackendCounters& counters) const noexcept;

  void moe(const MoeOp& op);

 private:
  bool is_cached() const noexcept;  // there is a budget, and not all fit
  void check(const MoeOp& op) const;
  void route(const MoeOp& op, const GemmInput& input);
  // Sorts the routed rows by expert and gives back the batches that have any.
  std::span<ExpertBatch> sort_rows(const MoeOp& op, const GemmInput& input);
  // Values [first, first + count) of the hidden rows of one expert's batch, and of what the expert gives back.
  void run_inner(const MoeOp& op, const GemmInput& sorted, const ExpertBatch& batch, const Share& share,
                 std::size_t worker);
  void run_outer(const MoeOp& op, const GemmInput& inner, const ExpertBatch& batch, const Share& share,
                 std::size_t worker);
  // The inputs of all experts' batches, in the order of routed rows.
  GemmInput sort_input(const GemmInput& input, std::span<const ExpertBatch> batches);
  GemmInput convert_inner(const MoeOp& op, std::size_t rows, std::span<const ExpertBatch> batches);
  // task(batch, share, worker) for all weight rows of a matrix of every expert; call_in(batch, weight_row) asks for
  // weights that will be read soon.
  template <typename CallIn, typename Task>
  void for_units(std::size_t weight_rows, std::size_t step_rows, std::span<const ExpertBatch> batches,
                 const CallIn& call_in, const Task& task);
  void run(const MoeOp& op, const GemmInput& input, std::span<const ExpertBatch> batches);
  void run_cached(const MoeOp& op, const GemmInput& input, std::span<ExpertBatch> batches);
  void run_in_place(const MoeOp& op, const GemmInput& input, std::span<ExpertBatch> batches);
  void run_shared(const MoeOp& op, const GemmInput& input);

  HostBackend& host_;
  CpuDevice& device_;
  const CpuKernels& kernels_;
  const CpuWeights& weights_;
  CpuLinear& linear_;
  const BackendOptions& options_;

  ExpertSets sets_;
  std::unique_ptr<ExpertCache> cache_;  // null: experts are used where they lie
  ExpertWorkspace space_;
  AlignedBuffer memory_;
  std::size_t step_rows_ = 0;  // the most that a step may have
};

}  // namespace quarrel
