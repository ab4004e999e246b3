// Draws from what locally typical sampling leaves, and from what mirostat 2 leaves: by how surprising tokens are, which
// is minus the logarithm of their probability after bias, mask and penalties.
#pragma once

#include "backend/cuda/choose_filtered.cuh"

namespace quarrel::cuda {
namespace {

__device__ double log_of_sum(TokenWeight sum) { return log(static_cast<double>(sum) * 0x1p-44); }

// By how far a token's surprise is from the expected one, ties by id, among those that `kept` has.
struct ByDistance {
  static constexpr int kIdBits = 20;
  static constexpr Key kIds = (Key{1} << kIdBits) - 1;
  ByLogit kept;
  double log_sum = 0.0;
  double expected = 0.0;  // the entropy
  Key least = 0;

  __device__ double surprise(int id) const {
    return log_sum - (static_cast<double>(kept.logits[id]) - static_cast<double>(kept.largest));
  }
  __device__ double distance(int id) const { return fabs(surprise(id) - expected); }
  __device__ static int id(Key key) { return static_cast<int>(kIds - (key & kIds)); }
  // The numbers' bits order them; 44 of them are far more than logits have.
  __device__ Key key(int id) const {
    const auto bits = static_cast<Key>(__double_as_longlong(distance(id)));
    return (~bits & ~kIds) | (kIds - static_cast<Key>(id));
  }
  __device__ int bin(int id) const {
    const double steps = distance(id) * static_cast<double>(kBinsPerUnit);
    return steps < kBins - 1 ? static_cast<int>(steps) : kBins - 1;
  }
  __device__ bool has(int id) const { return kept.has(id) && key(id) >= least; }
  __device__ TokenWeight weight(int id) const { return kept.weight(id); }
};

// What both leave, by logit.
struct ByLogitOfTypical {
  ByDistance typical;
  Key least = 0;

  __device__ static int id(Key key) { return id_of(key); }
  __device__ Key key(int id) const { return typical.kept.key(id); }
  __device__ int bin(int id) const { return typical.kept.bin(id); }
  __device__ bool has(int id) const { return typical.has(id) && key(id) >= least; }
  __device__ TokenWeight weight(int id) const { return typical.weight(id); }
};

__device__ double block_sum(double own) {
  __shared__ double sums[kWarps];
  own = warp_sum(own);
  __syncthreads();
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = own;
  __syncthreads();
  return warp_sum(sums[threadIdx.x % 32]);
}

template <typename Order>
__device__ Share best_of(const Order& order, const float* logits, int vocabulary) {
  Share share;
  for (int first = threadIdx.x; first < vocabulary; first += kAtOnce * kThreads) {
    float some[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int at = first + i * kThreads;
      some[i] = at < vocabulary && order.has(at) ? logits[at] : -INFINITY;
    }
    share.add(some, first);
  }
  __syncthreads();
  return over_block(share);
}

// By the row's first block alone: few ask for it.
__device__ int drawn_from_typical(const float* logits, int vocabulary, const TokenDraw& draw, const LogitEdits& edits,
                                  const Share& share, std::byte* memory, Key* keys) {
  auto& bins = *reinterpret_cast<WeightBins*>(memory);
  ByDistance typical{{logits, share.largest}};
  const auto fill = [&](const auto& order) {
    fill_bins(order, 0, vocabulary, bins);
    __syncthreads();
  };
  if (draw.top_k > 0) {
    fill(typical.kept);
    typical.kept.least = key_reaching(typical.kept, vocabulary, bins, Measure::count, draw.top_k, keys);
  }
  const TokenWeight total = sum_of(typical.kept, vocabulary);
  typical.log_sum = log_of_sum(total);
  double own = 0.0;
  for (int i = threadIdx.x; i < vocabulary; i += kThreads) {
    if (typical.kept.has(i)) own += static_cast<double>(typical.weight(i)) * typical.surprise(i);
  }
  typical.expected = block_sum(own) / static_cast<double>(total);
  fill(typical);
  typical.least = key_reaching(typical, vocabulary, bins, Measure::weight, reaching(edits.typical_p, total), keys);
  ByLogitOfTypical left{typical};
  if (draw.top_p < 1.0f) {
    fill(left);
    const TokenWeight wanted = reaching(draw.top_p, sum_of(left, vocabulary));
    left.least = key_reaching(left, vocabulary, bins, Measure::weight, wanted, keys);
  }
  const Share best = best_of(left, logits, vocabulary);
  const double limit = draw.min_p > 0.0f ? static_cast<double>(best.largest) + log(static_cast<double>(draw.min_p))
                                         : -static_cast<double>(INFINITY);
  return drawn_token(logits, vocabulary, draw, best.largest, best.id, 0, 1, *reinterpret_cast<DrawSums*>(memory),
                     [&](int id) { return left.has(id) && static_cast<double>(logits[id]) >= limit; });
}

// By all blocks of the row. `log_sum` is the same place in each of them; `mu` is where the row's is reported.
__device__ int drawn_by_surprise(const Slice& slice, int vocabulary, const TokenDraw& draw, const LogitEdits& edits,
                                 const Share& share, int rank, int ranks, std::byte* memory, double* log_sum,
                                 float& mu) {
  constexpr double kLog2 = 0.693147180559945309417;
  auto& bins = *reinterpret_cast<WeightBins*>(memory);
  const ByLogit order{slice.logits, share.largest};
  fill_bins(order, slice.first, slice.end, bins);
  if (ranks > 1) cluster_barrier();
  __syncthreads();
  if (rank == 0) {
    join_bins(bins, ranks);
    TokenWeight total;
    block_through(bins.weight(threadIdx.x), total);
    if (static_cast<int>(threadIdx.x) < ranks) store_in_block(log_sum, threadIdx.x, log_of_sum(total));
  }
  if (ranks > 1) cluster_barrier();
  __syncthreads();
  const float known = edits.takes_mu != 0 ? *edits.lane_mu : edits.mirostat_mu;
  const auto tau = static_cast<double>(edits.mirostat_tau);
  const double most = known == 0.0f ? 2.0 * tau : static_cast<double>(known);
  const float* logits = slice.logits;
  const auto surprise = [&](int id) {
    return -((static_cast<double>(logits[id]) - static_cast<double>(share.largest)) - *log_sum) / kLog2;
  };
  const int id =
      drawn_token(logits, vocabulary, draw, share.largest, share.id, rank, ranks, *reinterpret_cast<DrawSums*>(memory),
                  [&](int at) { return at == share.id || surprise(at) <= most; });
  if (rank == 0 && threadIdx.x == 0) {
    const double next = most - static_cast<double>(edits.mirostat_eta) * (surprise(id) - tau);
    mu = static_cast<float>(next);
    *edits.lane_mu = mu;
  }
  return id;
}

}  // namespace
}  // namespace quarrel::cuda
