#include "backend/cuda/choose_tokens.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/primitives.cuh"

namespace quarrel::cuda {
namespace {

constexpr int kThreads = 1024;

// The largest of some logits, which it is, and Σ exp(logit - largest).
struct Share {
  float largest = -INFINITY;
  int id = 0x7fffffff;
  float sum = 0.0f;
  bool bad = false;

  __device__ void add(float logit, int at) {
    bad = bad || logit != logit || logit == INFINITY;
    if (logit > largest) {
      sum = sum * expf(largest - logit) + 1.0f;
      largest = logit;
      id = at;
    } else if (logit != -INFINITY) {
      sum += expf(logit - largest);
    }
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

// Warps have runs of neighbouring tokens, in pieces; the piece in which the number falls is gone through once more.
__device__ int drawn_token(const float* logits, int vocabulary, const TokenDraw& draw, float largest, int likeliest) {
  __shared__ double warps[kWarps];
  __shared__ double pieces[kWarps][kPieces];
  __shared__ int found;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int piece = (vocabulary + kWarps * kPieces * 32 - 1) / (kWarps * kPieces * 32) * 32;  // tokens
  const auto scale = static_cast<float>(draw.scale);
  const auto weight = [&](int i) { return static_cast<double>(expf((logits[i] - largest) * scale)); };
  double all = 0.0;
  for (int p = 0; p < kPieces; ++p) {
    const int first = (warp * kPieces + p) * piece;
    const int end = min(first + piece, vocabulary);
    double sum = 0.0;
#pragma unroll 4
    for (int i = first + lane; i < end; i += 32) sum += weight(i);
    sum = warp_sum(sum);
    all += sum;
    if (lane == 0) pieces[warp][p] = sum;
  }
  if (lane == 0) warps[warp] = all;
  __syncthreads();
  if (warp == 0) {
    double total = 0.0;
    for (const double sum : warps) total += sum;
    const double target = draw.random * total;
    double reached = 0.0;
    const int w = place_above(warps, kWarps, target, reached);
    const int p = place_above(pieces[w], kPieces, target, reached);
    const int begin = (w * kPieces + p) * piece;
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

__global__ void __launch_bounds__(kThreads) choose_tokens_kernel(const __grid_constant__ ChooseTokensOp op) {
  wait_for_previous_kernel();
  allow_next_kernel();
  const int row = blockIdx.x;
  const std::int32_t target = op.targets[row];
  if (target == kChooseNothing) return;
  const float* logits = op.logits + static_cast<std::size_t>(row) * op.vocabulary;
  Share share;
  for (int i = threadIdx.x; i < op.vocabulary; i += kThreads) share.add(logits[i], i);
  share = over_block(share);
  const bool bad = share.bad || share.largest == -INFINITY;
  int id = target >= 0 ? target : share.id;
  if (target == kChooseDrawn && !bad) id = drawn_token(logits, op.vocabulary, op.draws[row], share.largest, share.id);
  if (threadIdx.x != 0) return;
  op.ids[row] = bad ? -1 : id;
  op.logprobs[row] = bad ? 0.0f : (logits[id] - share.largest) - logf(share.sum);
}

}  // namespace

void choose_tokens(const LaunchContext& context, const ChooseTokensOp& op) {
  launch("choose tokens", context, choose_tokens_kernel, dim3(static_cast<unsigned>(op.rows)), dim3(kThreads), 0, op);
}

}  // namespace quarrel::cuda
