// A draw that counts through the tokens by ascending id.
#pragma once

#include "backend/cuda/choose_share.cuh"
#include "backend/cuda/choose_tokens.h"

namespace quarrel::cuda {
namespace {

constexpr int kPieces = 8;  // of a warp's tokens

__device__ double warp_sum(double value) {
  for (int mask = 16; mask > 0; mask >>= 1) value += __shfl_xor_sync(~0u, value, mask);
  return value;
}

// The first place whose sum of all up to it is above `target`, by one warp; `reached` becomes the sum before it. The
// last place where rounding has left none.
__device__ int place_above(const double* sums, int count, double target, double& reached) {
  int place = 0;
  for (; place + 1 < count; ++place) {
    if (reached + sums[place] > target) break;
    reached += sums[place];
  }
  return place;
}

// Sums of weights over neighbouring tokens, in the row's first block: of blocks, of their warps, of pieces of these.
struct DrawSums {
  double ranks[kMostRanks];
  double warps[kMostRanks][kWarps];
  double pieces[kMostRanks][kWarps][kPieces];
};

// A draw from all tokens that `keep(id)` is true of. The piece in which the number falls is gone through once more, by
// the first block.
template <typename Keep>
__device__ int drawn_token(const float* logits, int vocabulary, const TokenDraw& draw, float largest, int likeliest,
                           int rank, int ranks, DrawSums& sums, const Keep& keep) {
  __shared__ int found;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int all_pieces = ranks * kWarps * kPieces;
  const int piece = (vocabulary + all_pieces * 32 - 1) / (all_pieces * 32) * 32;  // tokens
  const auto scale = static_cast<float>(draw.scale);
  const auto weight = [&](int i) { return keep(i) ? static_cast<double>(expf((logits[i] - largest) * scale)) : 0.0; };
  for (int p = 0; p < kPieces; ++p) {
    const int first = ((rank * kWarps + warp) * kPieces + p) * piece;
    const int end = min(first + piece, vocabulary);
    double sum = 0.0;
#pragma unroll 8
    for (int i = first + lane; i < end; i += 32) sum += weight(i);
    sum = warp_sum(sum);
    if (lane == 0) store_in_block(&sums.pieces[rank][warp][p], 0, sum);
  }
  if (ranks > 1) {
    cluster_barrier();
  } else {
    __syncthreads();
  }
  if (rank != 0) return likeliest;
  // A warp a block of the row, a lane one of its warps.
  if (warp < ranks) {
    double own = 0.0;
    for (const double sum : sums.pieces[warp][lane]) own += sum;
    sums.warps[warp][lane] = own;
    __syncwarp();
    if (lane == 0) {
      double all = 0.0;
      for (const double sum : sums.warps[warp]) all += sum;
      sums.ranks[warp] = all;
    }
  }
  __syncthreads();
  if (warp == 0) {
    double total = 0.0;
    for (int r = 0; r < ranks; ++r) total += sums.ranks[r];
    const double target = draw.random * total;
    double reached = 0.0;
    const int r = place_above(sums.ranks, ranks, target, reached);
    const int w = place_above(sums.warps[r], kWarps, target, reached);
    const int p = place_above(sums.pieces[r][w], kPieces, target, reached);
    const int begin = ((r * kWarps + w) * kPieces + p) * piece;
    const int end = min(begin + piece, vocabulary);
    int chosen = -1;
    int last = likeliest;
    for (int first = begin; first < end && chosen < 0; first += 32) {
      const double own = first + lane < end ? weight(first + lane) : 0.0;
      double through = own;
      for (int distance = 1; distance < 32; distance <<= 1) {
        const double other = __shfl_up_sync(~0u, through, distance);
        if (lane >= distance) through += other;
      }
      const unsigned above = __ballot_sync(~0u, own > 0.0 && reached + through > target);
      const unsigned there = __ballot_sync(~0u, own > 0.0);
      if (above != 0) chosen = first + __ffs(static_cast<int>(above)) - 1;
      if (there != 0) last = first + 31 - __clz(static_cast<int>(there));
      reached += __shfl_sync(~0u, through, 31);
    }
    if (lane == 0) found = chosen >= 0 ? chosen : last;
  }
  __syncthreads();
  return found;
}

}  // namespace
}  // namespace quarrel::cuda
