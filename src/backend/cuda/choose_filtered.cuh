// Draws from what top-k, top-p and min-p leave of any number of tokens. Nothing is listed or sorted but the few tokens
// about the last one that is left: the blocks of a row count and weigh their tokens by how far they are below the
// largest logit, and the first block then looks into one of these bins for the key of the last token. Weights are
// integers, so that their sums do not depend on an order.
#pragma once

#include "backend/cuda/choose_best.cuh"
#include "backend/cuda/choose_drawn.cuh"

namespace quarrel::cuda {
namespace {

using TokenWeight = unsigned long long;

// Of the largest logit it is 2^44: with 2^18 tokens sums have 62 bits, and what is lost of each is below 2^-45.
__device__ TokenWeight weight_of(float logit, float largest) {
  return __double2ull_rn(exp(static_cast<double>(logit) - static_cast<double>(largest)) * 0x1p44);
}

// A token that is so far below the largest logit as those of the last bin weighs nothing.
struct WeightBins {
  unsigned count[kBins];
  unsigned low[kBins];
  unsigned high[kBins];

  __device__ TokenWeight weight(int bin) const { return static_cast<TokenWeight>(high[bin]) << 32 | low[bin]; }
};

// Tokens in the order of their logits, ties by id. So that others can be put in its place, an order says which tokens
// it has, the bin of each, and a key that is greater for those that come first.
struct ByLogit {
  const float* logits;
  float largest;
  Key least = 0;

  __device__ static int id(Key key) { return id_of(key); }
  __device__ Key key(int id) const { return key_of(logits[id], id); }
  __device__ int bin(int id) const { return bin_of(logits[id], largest); }
  __device__ bool has(int id) const { return logits[id] != -INFINITY && key(id) >= least; }
  __device__ TokenWeight weight(int id) const { return weight_of(logits[id], largest); }
};

// Of tokens [first, end).
template <typename Order>
__device__ void fill_bins(const Order& order, int first, int end, WeightBins& bins) {
  __syncthreads();
  bins.count[threadIdx.x] = 0;
  bins.low[threadIdx.x] = 0;
  bins.high[threadIdx.x] = 0;
  __syncthreads();
#pragma unroll 4
  for (int i = first + static_cast<int>(threadIdx.x); i < end; i += kThreads) {
    if (!order.has(i)) continue;
    const int bin = order.bin(i);
    atomicAdd(bins.count + bin, 1u);
    if (bin == kBins - 1) continue;
    // 64 bits as two additions of 32, which shared memory can do by itself.
    const TokenWeight weight = order.weight(i);
    const auto low = static_cast<unsigned>(weight);
    const unsigned carry = atomicAdd(bins.low + bin, low) > ~low ? 1 : 0;
    const unsigned high = static_cast<unsigned>(weight >> 32) + carry;
    if (high != 0) atomicAdd(bins.high + bin, high);
  }
}

__device__ unsigned load_from_block(const unsigned* place, int rank) {
  unsigned value;
#if __CUDA_ARCH__ >= 900
  std::uint32_t remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(place)), "r"(rank));
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(remote) : "memory");
#else
  value = *place;
#endif
  return value;
}

// The bins of all blocks become those of the first one, which alone calls this.
__device__ void join_bins(WeightBins& bins, int ranks) {
  const int bin = threadIdx.x;
  unsigned count = bins.count[bin];
  TokenWeight weight = bins.weight(bin);
  for (int rank = 1; rank < ranks; ++rank) {
    count += load_from_block(bins.count + bin, rank);
    weight +=
        static_cast<TokenWeight>(load_from_block(bins.high + bin, rank)) << 32 | load_from_block(bins.low + bin, rank);
  }
  bins.count[bin] = count;
  bins.low[bin] = static_cast<unsigned>(weight);
  bins.high[bin] = static_cast<unsigned>(weight >> 32);
  __syncthreads();
}

__device__ TokenWeight warp_through(TokenWeight own) {
  for (int distance = 1; distance < 32; distance <<= 1) {
    const TokenWeight other = __shfl_up_sync(~0u, own, distance);
    if (static_cast<int>(threadIdx.x % 32) >= distance) own += other;
  }
  return own;
}

// The sum over this thread and all before it; `total` becomes that over all.
__device__ TokenWeight block_through(TokenWeight own, TokenWeight& total) {
  __shared__ TokenWeight sums[kWarps];
  const int warp = threadIdx.x / 32;
  const TokenWeight through = warp_through(own);
  __syncthreads();
  if (threadIdx.x % 32 == 31) sums[warp] = through;
  __syncthreads();
  const TokenWeight warps = warp_through(sums[threadIdx.x % 32]);
  total = __shfl_sync(~0u, warps, 31);
  const TokenWeight before = __shfl_sync(~0u, warps, max(warp - 1, 0));
  return through + (warp > 0 ? before : 0);
}

// What tokens are measured by: each counts as one, or as much as it weighs.
enum class Measure { count, weight };

// The bin in which the sum reaches `needed`, which is at least one; kBins where it never does.
struct Boundary {
  int bin;
  TokenWeight before;
};

__device__ Boundary find_boundary(const WeightBins& bins, Measure measure, TokenWeight needed) {
  __shared__ Boundary found;
  const int bin = threadIdx.x;
  const TokenWeight own = measure == Measure::count ? bins.count[bin] : bins.weight(bin);
  TokenWeight total;
  const TokenWeight through = block_through(own, total);
  if (bin == 0) found = {kBins, 0};
  __syncthreads();
  if (through >= needed && through - own < needed) found = {bin, through - own};
  __syncthreads();
  return found;
}

// The greatest key with which, and with greater ones, tokens of a bin reach `needed`. There is one.
template <typename Order>
struct BinSearch {
  const Order& order;
  int vocabulary;
  int bin;
  Measure measure;
  TokenWeight needed;

  __device__ TokenWeight measured(int id) const { return measure == Measure::count ? 1 : order.weight(id); }
  __device__ bool has(int id) const { return order.has(id) && order.bin(id) == bin; }
  // Bit by bit: slow, for rows in which very many tokens are about equally likely.
  __device__ Key by_bits() const {
    Key key = 0;
    for (int bit = 63; bit >= 0; --bit) {
      const Key next = key | Key{1} << bit;
      TokenWeight own = 0;
      for (int i = threadIdx.x; i < vocabulary; i += kThreads) {
        if (has(i) && order.key(i) >= next) own += measured(i);
      }
      TokenWeight total;
      block_through(own, total);
      if (total >= needed) key = next;
    }
    return key;
  }
  __device__ Key run(Key* keys) const {
    __shared__ int count;
    __shared__ Key found;
    __syncthreads();
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
#pragma unroll 4
    for (int i = threadIdx.x; i < vocabulary; i += kThreads) {
      if (!has(i)) continue;
      const int place = atomicAdd(&count, 1);
      if (place < kMaxCandidates) keys[place] = order.key(i);
    }
    __syncthreads();
    if (count > kMaxCandidates) return by_bits();
    sort_keys(keys, count);
    const int t = threadIdx.x;
    const TokenWeight own = t < count ? measured(Order::id(keys[t])) : 0;
    TokenWeight total;
    const TokenWeight through = block_through(own, total);
    if (through >= needed && through - own < needed) found = keys[t];
    __syncthreads();
    return found;
  }
};

// All blocks' tokens are in the bins of the first one, which alone calls this.
template <typename Order>
__device__ Key key_reaching(const Order& order, int vocabulary, const WeightBins& bins, Measure measure,
                            TokenWeight needed, Key* keys) {
  const Boundary last = find_boundary(bins, measure, needed);
  if (last.bin == kBins) return 0;
  return BinSearch<Order>{order, vocabulary, last.bin, measure, needed - last.before}.run(keys);
}

template <typename Order>
__device__ TokenWeight sum_of(const Order& order, int vocabulary) {
  TokenWeight own = 0;
#pragma unroll 4
  for (int i = threadIdx.x; i < vocabulary; i += kThreads) {
    if (order.has(i)) own += order.weight(i);
  }
  TokenWeight total;
  block_through(own, total);
  return total;
}

// What tokens must reach to have a share of the sum: at least the first one.
__device__ TokenWeight reaching(float share, TokenWeight total) {
  const double wanted = ceil(static_cast<double>(share) * static_cast<double>(total));
  return min(max(static_cast<TokenWeight>(wanted), TokenWeight{1}), total);
}

// The least key of a token that top-k and top-p leave, by the row's first block.
__device__ Key least_key(ByLogit order, int vocabulary, const TokenDraw& draw, const WeightBins& bins, Key* keys) {
  TokenWeight total;
  block_through(bins.weight(threadIdx.x), total);
  if (draw.top_k > 0) {
    order.least = key_reaching(order, vocabulary, bins, Measure::count, draw.top_k, keys);
    if (draw.top_p < 1.0f) total = sum_of(order, vocabulary);
  }
  if (draw.top_p >= 1.0f) return order.least;
  return key_reaching(order, vocabulary, bins, Measure::weight, reaching(draw.top_p, total), keys);
}

// By all blocks of the row. `least` is the same place in each of them.
__device__ int drawn_from_filtered(const Slice& slice, int vocabulary, const TokenDraw& draw, float largest,
                                   int likeliest, int rank, int ranks, std::byte* memory, Key* keys, double* least) {
  auto& bins = *reinterpret_cast<WeightBins*>(memory);
  const ByLogit order{slice.logits, largest};
  fill_bins(order, slice.first, slice.end, bins);
  if (ranks > 1) cluster_barrier();
  __syncthreads();
  if (rank == 0) {
    join_bins(bins, ranks);
    const Key key = least_key(order, vocabulary, draw, bins, keys);
    if (static_cast<int>(threadIdx.x) < ranks) {
      store_in_block(least, threadIdx.x, __longlong_as_double(static_cast<long long>(key)));
    }
  }
  if (ranks > 1) cluster_barrier();
  __syncthreads();
  const auto least_kept = static_cast<Key>(__double_as_longlong(*least));
  const double limit = draw.min_p > 0.0f ? static_cast<double>(largest) + log(static_cast<double>(draw.min_p))
                                         : -static_cast<double>(INFINITY);
  const float* logits = slice.logits;
  const auto keep = [=](int id) {
    return key_of(logits[id], id) >= least_kept && static_cast<double>(logits[id]) >= limit;
  };
  return drawn_token(logits, vocabulary, draw, largest, likeliest, rank, ranks, *reinterpret_cast<DrawSums*>(memory),
                     keep);
}

}  // namespace
}  // namespace quarrel::cuda
