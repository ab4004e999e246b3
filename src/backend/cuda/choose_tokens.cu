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

// The sum of all threads below this one; `total` is that of all.
__device__ double sum_below(double value, double& total) {
  __shared__ double warps[32];
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  double through = value;
  for (int distance = 1; distance < 32; distance <<= 1) {
    const double other = __shfl_up_sync(~0u, through, distance);
    if (lane >= distance) through += other;
  }
  if (lane == 31) warps[warp] = through;
  __syncthreads();
  double below = 0.0;
  total = 0.0;
  for (int w = 0; w < 32; ++w) {
    if (w < warp) below += warps[w];
    total += warps[w];
  }
  return below + (through - value);
}

// Each thread has a run of neighbouring tokens; the one in whose run the number falls goes through it once more.
__device__ int drawn_token(const float* logits, int vocabulary, const TokenDraw& draw, float largest, int likeliest) {
  __shared__ int found;
  if (threadIdx.x == 0) found = likeliest;
  const int each = (vocabulary + kThreads - 1) / kThreads;
  const int first = min(static_cast<int>(threadIdx.x) * each, vocabulary);
  const int end = min(first + each, vocabulary);
  const auto scale = static_cast<float>(draw.scale);
  const auto weight = [&](int i) { return static_cast<double>(expf((logits[i] - largest) * scale)); };
  double sum = 0.0;
#pragma unroll 8
  for (int i = first; i < end; ++i) sum += weight(i);
  double total = 0.0;
  const double below = sum_below(sum, total);
  const double target = draw.random * total;
  if (target >= below && target < below + sum) {
    double reached = below;
    int last = likeliest;
    for (int i = first; i < end; ++i) {
      const double own = weight(i);
      if (own == 0.0) continue;
      last = i;
      reached += own;
      if (reached > target) break;
    }
    found = last;
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
