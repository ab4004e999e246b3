// A row has one thread block, or on Hopper, where there are many tokens, a cluster of them, each with a slice of the
// tokens; the first one chooses.
#include "backend/cuda/choose_tokens.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/primitives.cuh"

namespace quarrel::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kAtOnce = 8;                // logits of a thread that are on their way together
constexpr int kMostRanks = 8;             // blocks of a row
constexpr int kLeastOfCluster = 1 << 14;  // tokens that are worth more than one

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

constexpr int kWarps = kThreads / 32;
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

// The piece in which the number falls is gone through once more, by the first block.
__device__ int drawn_token(const float* logits, int vocabulary, const TokenDraw& draw, float largest, int likeliest,
                           int rank, int ranks, DrawSums& sums) {
  __shared__ int found;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int all_pieces = ranks * kWarps * kPieces;
  const int piece = (vocabulary + all_pieces * 32 - 1) / (all_pieces * 32) * 32;  // tokens
  const auto scale = static_cast<float>(draw.scale);
  const auto weight = [&](int i) { return static_cast<double>(expf((logits[i] - largest) * scale)); };
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

// ---- Draws from the likeliest ----

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

// The likeliest tokens that top-k, top-p and min-p leave, then a draw that counts through them by ascending id.
__device__ int drawn_from_best(const float* logits, int vocabulary, const TokenDraw& draw, float largest) {
  __shared__ Key keys[kMaxCandidates];
  __shared__ double weights[kMaxTopK];
  __shared__ int found;
  __shared__ int chosen;
  const Candidates candidates = find_candidates(logits, vocabulary, draw.top_k, largest);
  if (threadIdx.x == 0) found = 0;
  __syncthreads();
#pragma unroll 8
  for (int i = threadIdx.x; i < vocabulary; i += kThreads) {
    const Key key = key_of(logits[i], i);
    if (candidates.has(logits[i], largest, key)) keys[atomicAdd(&found, 1)] = key;
  }
  __syncthreads();
  sort_keys(keys, found);
  const int top = min(found, draw.top_k);
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

__global__ void __launch_bounds__(kThreads, 1)
    choose_tokens_kernel(const __grid_constant__ ChooseTokensOp op, int ranks) {
  extern __shared__ __align__(16) std::byte shared[];
  __shared__ RankShares shares;
  const int rank = ranks > 1 ? cluster_rank() : 0;
  if (ranks > 1) cluster_barrier();  // all blocks of the row have begun
  wait_for_previous_kernel();
  allow_next_kernel();
  const int row = blockIdx.x / ranks;
  const std::int32_t target = op.targets[row];
  if (target == kChooseNothing) return;
  const float* logits = op.logits + static_cast<std::size_t>(row) * op.vocabulary;
  const int slice = (op.vocabulary + ranks - 1) / ranks;
  const int end = min((rank + 1) * slice, op.vocabulary);
  Share share;
  for (int first = rank * slice + threadIdx.x; first < end; first += kAtOnce * kThreads) {
    float some[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int at = first + i * kThreads;
      some[i] = at < end ? logits[at] : -INFINITY;
    }
    share.add(some, first);
  }
  share = over_cluster(over_block(share), rank, ranks, shares);
  const bool bad = share.bad || share.largest == -INFINITY;
  int id = target >= 0 ? target : share.id;
  if (target == kChooseDrawn && !bad) {
    const TokenDraw draw = op.draws[row];
    if (draw.top_k > 0) {
      if (rank == 0) id = drawn_from_best(logits, op.vocabulary, draw, share.largest);
    } else {
      id = drawn_token(logits, op.vocabulary, draw, share.largest, share.id, rank, ranks,
                       *reinterpret_cast<DrawSums*>(shared));
    }
  }
  if (threadIdx.x != 0 || rank != 0) return;
  op.ids[row] = bad ? -1 : id;
  op.logprobs[row] = bad ? 0.0f : (logits[id] - share.largest) - logf(share.sum);
}

}  // namespace

void choose_tokens(const LaunchContext& context, const ChooseTokensOp& op) {
  // A matter of the vocabulary alone: the same bits for a row whatever the number of rows.
  const int ranks = context.has_wgmma && op.vocabulary >= kLeastOfCluster ? kMostRanks : 1;
  launch_clusters("choose tokens", context, ranks, choose_tokens_kernel, dim3(static_cast<unsigned>(op.rows * ranks)),
                  dim3(kThreads), static_cast<int>(sizeof(DrawSums)), op, ranks);
}

}  // namespace quarrel::cuda
