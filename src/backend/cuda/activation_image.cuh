// Activations as Hopper's tensor cores take them from shared memory, laid down so in global memory: a block's rows of
// one stage are one piece, which the copy engine brings. And which rows a block has.
//
//   image   [stage of 64 columns][place][64], 16-byte pieces swizzled as in wgmma.cuh, rows counted from a block's
//   first
#pragma once

#include <cstddef>
#include <cstdint>

namespace quarrel::cuda {

inline constexpr int kStageColumns = 64;

// Rows by the experts that they go to, in blocks of at most `tokens`.
struct Groups {
  const std::int32_t* starts;  // [experts + 1]; null: one group of `places`
  int experts;
  int places;
  int tokens;
};

// Which rows a block has: places [first, first + count) of one expert; none: the expert is -1.
struct BlockRows {
  int expert;
  int first;
  int count;
};

// The within-th of the equal shares that `count` rows are cut into.
__device__ inline BlockRows share_of(int expert, int start, int count, int within, int tokens) {
  const int blocks = (count + tokens - 1) / tokens;
  const int share = (count + blocks - 1) / blocks;
  return {.expert = expert, .first = start + within * share, .count = min(share, count - within * share)};
}

// By a whole warp. Blocks of an expert follow each other.
__device__ inline BlockRows find_rows(const Groups& groups, int block, int lane) {
  if (groups.starts == nullptr) return share_of(0, 0, groups.places, block, groups.tokens);
  for (int base = 0; base < groups.experts; base += 32) {
    const int expert = base + lane;
    const int start = expert < groups.experts ? groups.starts[expert] : 0;
    const int count = expert < groups.experts ? groups.starts[expert + 1] - start : 0;
    const int blocks = (count + groups.tokens - 1) / groups.tokens;
    int through = blocks;
    for (int distance = 1; distance < 32; distance <<= 1) {
      const int other = __shfl_up_sync(~0u, through, distance);
      if (lane >= distance) through += other;
    }
    const unsigned found = __ballot_sync(~0u, block < through);
    if (found != 0) {
      const int from = __ffs(static_cast<int>(found)) - 1;
      const int within = block - (__shfl_sync(~0u, through, from) - __shfl_sync(~0u, blocks, from));
      return share_of(base + from, __shfl_sync(~0u, start, from), __shfl_sync(~0u, count, from), within, groups.tokens);
    }
    block -= __shfl_sync(~0u, through, 31);
  }
  return {.expert = -1, .first = 0, .count = 0};
}

// Where a number of an image lies; `first` is the first place of its block.
__device__ inline std::size_t image_place(int places, int place, int first, int column) {
  const int piece = column % kStageColumns / 8 ^ (place - first) % 8;
  return (static_cast<std::size_t>(column / kStageColumns) * places + place) * kStageColumns + piece * 8 + column % 8;
}

}  // namespace quarrel::cuda
