// What the kernel that chooses tokens begins with: the largest of a row's logits, which it is, and the sum of their
// exponentials, by one thread block or a cluster of them. Included by choose_tokens.cu alone, as its other parts.
#pragma once

#include <cmath>

#include "backend/cuda/primitives.cuh"

namespace quarrel::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
constexpr int kAtOnce = 8;     // logits of a thread that are on their way together
constexpr int kMostRanks = 8;  // blocks of a row

// The largest of some logits, which it is, and Σ exp(logit - largest).
struct Share {
  float largest = -INFINITY;
  int id = 0x7fffffff;
  float sum = 0.0f;
  bool bad = false;

  // Logits of tokens `first`, `first` + kThreads and so on; -infinity for tokens that do not exist.
  __device__ void add(const float (&logits)[kAtOnce], int first) {
    float most = largest;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      bad = bad || logits[i] != logits[i] || logits[i] == INFINITY;
      if (logits[i] > most) {
        most = logits[i];
        id = first + i * kThreads;
      }
    }
    if (most == -INFINITY) return;
    sum *= expf(largest - most);
    largest = most;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) sum += expf(logits[i] - most);
  }
  __device__ void join(const Share& other) {
    bad = bad || other.bad;
    if (other.largest == -INFINITY) return;
    if (largest == -INFINITY) {
      largest = other.largest;
      id = other.id;
      sum = other.sum;
      return;
    }
    if (other.largest > largest) {
      sum = sum * expf(largest - other.largest) + other.sum;
      largest = other.largest;
      id = other.id;
    } else {
      sum += other.sum * expf(other.largest - largest);
      if (other.largest == largest) id = min(id, other.id);
    }
  }
  __device__ Share from_lane(int mask) const {
    Share other;
    other.largest = __shfl_xor_sync(~0u, largest, mask);
    other.id = __shfl_xor_sync(~0u, id, mask);
    other.sum = __shfl_xor_sync(~0u, sum, mask);
    other.bad = __shfl_xor_sync(~0u, bad ? 1 : 0, mask) != 0;
    return other;
  }
};

// The share of the whole block, in every thread.
__device__ Share over_block(Share share) {
  __shared__ float largest[32];
  __shared__ int ids[32];
  __shared__ float sums[32];
  __shared__ int bads[32];
  // Joined pairwise: both lanes of a pair have the same sum, whichever joins the other, because a sum of two has no
  // order.
  for (int mask = 16; mask > 0; mask >>= 1) share.join(share.from_lane(mask));
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (lane == 0) {
    largest[warp] = share.largest;
    ids[warp] = share.id;
    sums[warp] = share.sum;
    bads[warp] = share.bad ? 1 : 0;
  }
  __syncthreads();
  share.largest = largest[lane];
  share.id = ids[lane];
  share.sum = sums[lane];
  share.bad = bads[lane] != 0;
  for (int mask = 16; mask > 0; mask >>= 1) share.join(share.from_lane(mask));
  return share;
}

// What the blocks of a row found, in each of them.
struct RankShares {
  float largest[kMostRanks];
  float ids[kMostRanks];  // bits of integers
  float sums[kMostRanks];
  float bads[kMostRanks];
};

// The share of all blocks of the row, in every thread.
__device__ Share over_cluster(const Share& share, int rank, int ranks, RankShares& shares) {
  if (ranks == 1) return share;
  if (static_cast<int>(threadIdx.x) < ranks) {
    const int other = threadIdx.x;
    store_in_block(&shares.largest[rank], other, share.largest);
    store_in_block(&shares.ids[rank], other, __int_as_float(share.id));
    store_in_block(&shares.sums[rank], other, share.sum);
    store_in_block(&shares.bads[rank], other, share.bad ? 1.0f : 0.0f);
  }
  cluster_barrier();
  Share whole;
  for (int i = 0; i < ranks; ++i) {
    Share part;
    part.largest = shares.largest[i];
    part.id = __float_as_int(shares.ids[i]);
    part.sum = shares.sums[i];
    part.bad = shares.bads[i] != 0.0f;
    whole.join(part);
  }
  return whole;
}

// Tokens [first, end) of the row, which this block alone reads and writes until the row's blocks meet again.
struct Slice {
  float* logits;
  int first;
  int end;

  __device__ bool has(int id) const { return id >= first && id < end; }
};

__device__ Share share_of(const Slice& slice) {
  Share share;
  for (int first = slice.first + static_cast<int>(threadIdx.x); first < slice.end; first += kAtOnce * kThreads) {
    float some[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int at = first + i * kThreads;
      some[i] = at < slice.end ? slice.logits[at] : -INFINITY;
    }
    share.add(some, first);
  }
  return over_block(share);
}

}  // namespace
}  // namespace quarrel::cuda
