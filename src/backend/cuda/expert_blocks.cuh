// Rows sorted by the experts that they go to, in blocks of so many: which expert's a block is. Blocks of an expert
// follow each other, and no launch depends on how many each has: blocks beyond the last find none.
#pragma once

#include <cstdint>

namespace quarrel::cuda {

// Which rows a block has: places [first, first + count) of one expert; none: the expert is -1.
struct BlockRows {
  int expert;
  int first;
  int count;
};

// The within-th block of an expert whose rows are the places [start, start + count); none: the expert is -1.
struct ExpertBlock {
  int expert;
  int start;
  int count;
  int within;
};

// By a whole warp. `starts` has one number more than there are experts.
__device__ inline ExpertBlock find_block(const std::int32_t* starts, int experts, int rows, int block, int lane) {
  for (int base = 0; base < experts; base += 32) {
    const int expert = base + lane;
    const int start = expert < experts ? starts[expert] : 0;
    const int count = expert < experts ? starts[expert + 1] - start : 0;
    const int blocks = (count + rows - 1) / rows;
    int through = blocks;
    for (int distance = 1; distance < 32; distance <<= 1) {
      const int other = __shfl_up_sync(~0u, through, distance);
      if (lane >= distance) through += other;
    }
    const unsigned found = __ballot_sync(~0u, block < through);
    if (found != 0) {
      const int from = __ffs(static_cast<int>(found)) - 1;
      const int within = block - (__shfl_sync(~0u, through, from) - __shfl_sync(~0u, blocks, from));
      return {.expert = base + from,
              .start = __shfl_sync(~0u, start, from),
              .count = __shfl_sync(~0u, count, from),
              .within = within};
    }
    block -= __shfl_sync(~0u, through, 31);
  }
  return {.expert = -1, .start = 0, .count = 0, .within = 0};
}

}  // namespace quarrel::cuda
