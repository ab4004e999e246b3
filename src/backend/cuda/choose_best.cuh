// The likeliest tokens, sorted: to report them, and draws from at most kMaxTopK of them.
#pragma once

#include "backend/cuda/choose_share.cuh"
#include "backend/cuda/choose_tokens.h"

namespace quarrel::cuda {
namespace {

constexpr int kBins = 1024;
constexpr float kBinsPerUnit = 32.0f;
constexpr int kMaxCandidates = 1024;  // that are sorted
using Key = unsigned long long;

// Greater for likelier tokens, and among equals for lower ids; never zero.
__device__ Key key_of(float logit, int id) {
  const unsigned bits = __float_as_uint(logit == 0.0f ? 0.0f : logit);  // the two zeros are equal
  const unsigned ordered = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<Key>(ordered) << 32 | (0xffffffffu - static_cast<unsigned>(id));
}
__device__ int id_of(Key key) { return static_cast<int>(0xffffffffu - static_cast<unsigned>(key)); }

// How far below the largest logit, in steps; the last bin has all that is far below.
__device__ int bin_of(float logit, float largest) {
  const float below = (largest - logit) * kBinsPerUnit;
  return below < static_cast<float>(kBins - 1) ? static_cast<int>(below) : kBins - 1;
}

__device__ int count_in_block(int own) {
  __shared__ int counts[kWarps];
  own = __reduce_add_sync(~0u, own);
  __syncthreads();
  if (threadIdx.x % 32 == 0) counts[threadIdx.x / 32] = own;
  __syncthreads();
  return __reduce_add_sync(~0u, counts[threadIdx.x % 32]);
}

// The wanted-th greatest key, bit by bit: slow, for rows in which very many tokens are about equally likely.
__device__ Key key_of_rank(const float* logits, int vocabulary, int wanted) {
  Key key = 0;
  for (int bit = 63; bit >= 0; --bit) {
    const Key next = key | Key{1} << bit;
    int own = 0;
    for (int i = threadIdx.x; i < vocabulary; i += kThreads) own += key_of(logits[i], i) >= next ? 1 : 0;
    if (count_in_block(own) >= wanted) key = next;
  }
  return key;
}

// Which tokens are looked at: `wanted` or more, at most kMaxCandidates.
struct Candidates {
  int last_bin;
  Key least;

  __device__ bool has(float logit, float largest, Key key) const {
    return bin_of(logit, largest) <= last_bin && key >= least;
  }
};

__device__ Candidates find_candidates(const float* logits, int vocabulary, int wanted, float largest) {
  static_assert(kBins == kThreads, "a thread a bin");
  __shared__ int bins[kBins];
  __shared__ int last_bin;
  __shared__ int reached;
  bins[threadIdx.x] = 0;
  __syncthreads();
#pragma unroll 8
  for (int i = threadIdx.x; i < vocabulary; i += kThreads) atomicAdd(bins + bin_of(logits[i], largest), 1);
  __syncthreads();
  if (threadIdx.x < 32) {
    constexpr int kEach = kBins / 32;
    const int lane = threadIdx.x;
    int own = 0;
    for (int i = 0; i < kEach; ++i) own += bins[lane * kEach + i];
    int through = own;
    for (int distance = 1; distance < 32; distance <<= 1) {
      const int other = __shfl_up_sync(~0u, through, distance);
      if (lane >= distance) through += other;
    }
    if (through >= wanted && through - own < wanted) {
      int sum = through - own;
      int bin = lane * kEach;
      while (sum + bins[bin] < wanted) sum += bins[bin++];
      last_bin = bin;
      reached = sum + bins[bin];
    }
  }
  __syncthreads();
  if (reached <= kMaxCandidates) return {.last_bin = last_bin, .least = 0};
  return {.last_bin = kBins, .least = key_of_rank(logits, vocabulary, wanted)};
}

// Descending, by the whole block; zeros fill up to a power of two.
__device__ void sort_keys(Key* keys, int count) {
  int size = 2;
  while (size < count) size *= 2;
  for (int i = count + static_cast<int>(threadIdx.x); i < size; i += kThreads) keys[i] = 0;
  __syncthreads();
  for (int run = 2; run <= size; run *= 2) {
    for (int distance = run / 2; distance > 0; distance /= 2) {
      for (int i = threadIdx.x; i < size; i += kThreads) {
        const int other = i ^ distance;
        if (other <= i) continue;
        const bool descends = (i & run) == 0;
        const Key a = keys[i];
        const Key b = keys[other];
        if ((a < b) == descends) {
          keys[i] = b;
          keys[other] = a;
        }
      }
      __syncthreads();
    }
  }
}

// At least the `wanted` likeliest tokens, likeliest first; how many.
__device__ int gather_best(const float* logits, int vocabulary, int wanted, float largest, Key* keys) {
  __shared__ int found;
  const Candidates candidates = find_candidates(logits, vocabulary, wanted, largest);
  if (threadIdx.x == 0) found = 0;
  __syncthreads();
#pragma unroll 8
  for (int i = threadIdx.x; i < vocabulary; i += kThreads) {
    const Key key = key_of(logits[i], i);
    if (candidates.has(logits[i], largest, key)) keys[atomicAdd(&found, 1)] = key;
  }
  __syncthreads();
  const int count = found;
  sort_keys(keys, count);
  return count;
}

// The likeliest tokens with their log-probabilities; those without a probability are left out, with id -1.
__device__ void report_top(const float* logits, int vocabulary, int wanted, const Share& model, Key* keys,
                           TopToken* top) {
  const int count = min(gather_best(logits, vocabulary, min(wanted, vocabulary), model.largest, keys), wanted);
  const int t = threadIdx.x;
  if (t < wanted) {
    const int id = t < count ? id_of(keys[t]) : -1;
    const bool exists = id >= 0 && logits[id] != -INFINITY;
    top[t].id = exists ? id : -1;
    top[t].logprob = exists ? (logits[id] - model.largest) - logf(model.sum) : 0.0f;
  }
  __syncthreads();
}

// The likeliest tokens that top-k, top-p and min-p leave, then a draw that counts through them by ascending id.
__device__ int drawn_from_best(const float* logits, int vocabulary, const TokenDraw& draw, float largest, Key* keys) {
  __shared__ double weights[kMaxTopK];
  __shared__ int found;
  __shared__ int chosen;
  const int top = min(gather_best(logits, vocabulary, draw.top_k, largest, keys), draw.top_k);
  const auto below = [&](int i) { return static_cast<double>(logits[id_of(keys[i])]) - static_cast<double>(largest); };
  const int t = threadIdx.x;
  if (t < top) weights[t] = exp(below(t));
  __syncthreads();
  if (t == 0) {
    int kept = top;
    if (draw.top_p < 1.0f) {
      double total = 0.0;
      for (int i = 0; i < top; ++i) total += weights[i];
      const double wanted = static_cast<double>(draw.top_p) * total;
      double reached = 0.0;
      for (kept = 0; kept < top;) {
        reached += weights[kept++];
        if (reached >= wanted) break;
      }
    }
    if (draw.min_p > 0.0f) {
      const double limit = log(static_cast<double>(draw.min_p));
      while (kept > 1 && below(kept - 1) < limit) --kept;
    }
    found = kept;
  }
  __syncthreads();
  const int kept = found;
  // By ascending id: the lower half of a key descends as ids ascend.
  Key own = 0;
  if (t < kept) own = keys[t] << 32 | (keys[t] & 0xffffffffu);
  __syncthreads();
  if (t < kept) keys[t] = own;
  __syncthreads();
  sort_keys(keys, kept);
  if (t < kept) weights[t] = exp(below(t) * draw.scale);
  __syncthreads();
  if (t == 0) {
    double total = 0.0;
    for (int i = 0; i < kept; ++i) total += weights[i];
    const double target = draw.random * total;
    double reached = 0.0;
    int last = 0;
    for (int i = 0; i < kept; ++i) {
      if (weights[i] == 0.0) continue;
      last = i;
      reached += weights[i];
      if (reached > target) break;
    }
    chosen = id_of(keys[last]);
  }
  __syncthreads();
  return chosen;
}

}  // namespace
}  // namespace quarrel::cuda
