// Activations as Hopper's tensor cores take them from shared memory, laid down so in global memory: a block's rows of
// one stage are one piece, which the copy engine brings. And which rows a block has.
//
//   image   [stage of 64 columns][place][64], 16-byte pieces swizzled as in wgmma.cuh, rows counted from a block's
//   first
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/expert_blocks.cuh"

namespace quarrel::cuda {

inline constexpr int kStageColumns = 64;

// Rows by the experts that they go to, in blocks of at most `tokens`.
struct Groups {
  const std::int32_t* starts;  // [experts + 1]; null: one group of `places`
  int experts;
  int places;
  int tokens;
};

// The within-th of the equal shares that `count` rows are cut into.
__device__ inline BlockRows share_of(int expert, int start, int count, int within, int tokens) {
  const int blocks = (count + tokens - 1) / tokens;
  const int share = (count + blocks - 1) / blocks;
  return {.expert = expert, .first = start + within * share, .count = min(share, count - within * share)};
}

// By a whole warp.
__device__ inline BlockRows find_rows(const Groups& groups, int block, int lane) {
  if (groups.starts == nullptr) return share_of(0, 0, groups.places, block, groups.tokens);
  const ExpertBlock found = find_block(groups.starts, groups.experts, groups.tokens, block, lane);
  if (found.expert < 0) return {.expert = -1, .first = 0, .count = 0};
  return share_of(found.expert, found.start, found.count, found.within, groups.tokens);
}

// Where a number of an image lies; `first` is the first place of its block.
__device__ inline std::size_t image_place(int places, int place, int first, int column) {
  const int piece = column % kStageColumns / 8 ^ (place - first) % 8;
  return (static_cast<std::size_t>(column / kStageColumns) * places + place) * kStageColumns + piece * 8 + column % 8;
}

}  // namespace quarrel::cuda
