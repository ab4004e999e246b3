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

__global__ void __launch_bounds__(kThreads) choose_tokens_kernel(const __grid_constant__ ChooseTokensOp op) {
  __shared__ float largest[32];
  __shared__ int ids[32];
  __shared__ float sums[32];
  __shared__ int bads[32];
  wait_for_previous_kernel();
  allow_next_kernel();
  const int row = blockIdx.x;
  const std::int32_t target = op.targets[row];
  if (target == kChooseNothing) return;
  const float* logits = op.logits + static_cast<std::size_t>(row) * op.vocabulary;
  Share share;
  for (int i = threadIdx.x; i < op.vocabulary; i += kThreads) share.add(logits[i], i);
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
  if (warp != 0) return;
  share.largest = largest[lane];
  share.id = ids[lane];
  share.sum = sums[lane];
  share.bad = bads[lane] != 0;
  for (int mask = 16; mask > 0; mask >>= 1) share.join(share.from_lane(mask));
  if (lane != 0) return;
  const bool bad = share.bad || share.largest == -INFINITY;
  const int id = target >= 0 ? target : share.id;
  op.ids[row] = bad ? -1 : id;
  op.logprobs[row] = bad ? 0.0f : (logits[id] - share.largest) - logf(share.sum);
}

}  // namespace

void choose_tokens(const LaunchContext& context, const ChooseTokensOp& op) {
  launch("choose tokens", context, choose_tokens_kernel, dim3(static_cast<unsigned>(op.rows)), dim3(kThreads), 0, op);
}

}  // namespace quarrel::cuda
