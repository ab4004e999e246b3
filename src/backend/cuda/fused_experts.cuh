// What the two kernels of fused_experts.h share: how a block finds its share of the work, and which experts its rows
// go to.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/cuda/activation_split.cuh"
#include "backend/cuda/expert_ring.cuh"
#include "backend/cuda/fused_experts.h"
#include "backend/cuda/moe_choice.cuh"
#include "backend/cuda/shared_room.h"

namespace quarrel::cuda::fused {

inline constexpr int kWarps = kSplitWarps;
inline constexpr int kThreads = kSplitThreads;
inline constexpr int kMaxStages = 4;
inline constexpr int kMaxItemChunks = 8;
inline constexpr int kBatchBytes = 8192;  // of sums that are kept before they are written
inline constexpr int kMostRowsOfBlock = 2;

constexpr int row_bytes(int chunks) { return chunks * split_chunk_bytes(1); }
constexpr int divided_up(int value, int by) { return (value + by - 1) / by; }

struct ExpertWeights {
  const std::byte* data;
  const float* bias;
};

// A number to divide by, for products of dividend and divisor below 2^32: a multiplication.
struct Divisor {
  int value = 1;
  std::uint32_t inverse = 0;  // 2^32 / value, rounded up; 0: the value is 1

  Divisor() = default;
  explicit Divisor(int number)
      : value(number),
        inverse(number <= 1
                    ? 0u
                    : static_cast<std::uint32_t>(((std::uint64_t{1} << 32) + static_cast<std::uint64_t>(number) - 1) /
                                                 static_cast<std::uint64_t>(number))) {}
  __device__ int quotient(int number) const {
    return inverse == 0 ? number : static_cast<int>(__umulhi(static_cast<std::uint32_t>(number), inverse));
  }
};

// A block's units: [first, end).
struct Run {
  int first;
  int end;

  __device__ Run(int units, int block, int blocks) {
    first = static_cast<int>(static_cast<long long>(units) * block / blocks);
    end = static_cast<int>(static_cast<long long>(units) * (block + 1) / blocks);
  }
};

// What the block's rows, one or two, go to.
struct BlockChoices {
  int experts[kMostRowsOfBlock][kMaxExpertsUsed];
  float weights[kMostRowsOfBlock][kMaxExpertsUsed];
};

// A row's choice by the warp of that number. What the router has no part in is asked for before the wait.
struct Chooser {
  const RouteRowsOp& route;
  SelectionBiases<kUsualShare> biases;
  int warp;
  int lane;
  int row;
  bool chooses;
  bool exists;

  __device__ Chooser(const RouteRowsOp& op, int first_row, int last_row)
      : route(op), biases(op, threadIdx.x % 32), warp(threadIdx.x / 32), lane(threadIdx.x % 32) {
    row = first_row + warp;
    chooses = row <= last_row;
    exists = chooses && op.sequences[row] >= 0;
  }
  // A barrier must follow.
  template <bool kWeights>
  __device__ void choose(BlockChoices& choices, bool counts) const {
    if (!chooses) return;
    const Chosen chosen = exists ? choose_experts<kWeights>(route, biases, row, lane) : Chosen{};
    choices.experts[warp][lane] = chosen.expert;
    choices.weights[warp][lane] = chosen.weight;
    if (counts && route.counts != nullptr && chosen.expert >= 0) atomicAdd(route.counts + chosen.expert, 1ull);
  }
};

// Chunks of an item, so that warps have equal shares of a block's items for one row: a matter of shapes alone. An item
// takes about as long as a chunk more.
template <typename ItemsOfBlock>
int best_item_chunks(const ItemsOfBlock& items_of_block) {
  int best = 1;
  int least = 0;
  for (int chunks = 1; chunks <= kMaxItemChunks; ++chunks) {
    const int time = divided_up(items_of_block(chunks), kWarps) * (chunks + 1);
    if (chunks > 1 && time > least) continue;
    best = chunks;
    least = time;
  }
  return best;
}

// As much of a block's shared memory as the compiler gives to the choices and the like.
inline constexpr int kStaticBytes = sizeof(BlockChoices) + (1 + kMostRowsOfBlock) * kWarps * 4;

// The shared expert's hidden rows lie behind those of the others.
inline std::byte* shared_hidden_of(const FusedExpertsOp& op) {
  return op.hidden + static_cast<std::size_t>(op.input.count) * op.route.used * row_bytes(op.down.packed.chunks());
}

// Sums of so many units are kept at a time: as many as usual, or where those leave no room for a ring's stage, fewer.
// `stages_with(units)` says how many stages there are then.
template <typename StagesWith>
int fitting_batch(int usual, const StagesWith& stages_with) {
  int units = usual;
  while (units > 1 && stages_with(units) == 0) --units;
  return units;
}

// Of the second kernel: whether it can run, and what it must be told once a process and device.
bool can_run_down(const LaunchContext& context, const FusedExpertsOp& op);
void prepare_down(const LaunchContext& context);

}  // namespace quarrel::cuda::fused
