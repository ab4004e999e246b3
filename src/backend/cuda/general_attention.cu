#include <cuda_fp16.h>

#include "backend/cuda/general_attention.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/primitives.cuh"

namespace quarrel::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kMaxShare = kMaxGeneralDim / kThreads;  // values of the result that one thread adds up

__device__ float number(const __half* place) { return __half2float(*place); }
__device__ float number(const float* place) { return *place; }

template <typename Combine>
__device__ float over_block(float value, float* parts, const Combine& combine) {
  for (int mask = 16; mask > 0; mask >>= 1) value = combine(value, __shfl_xor_sync(~0u, value, mask));
  __syncthreads();
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  float all = parts[0];
  for (int warp = 1; warp < kWarps; ++warp) all = combine(all, parts[warp]);
  return all;
}

// A thread scores one of kThreads positions at a time, then adds up its share of the values over all of them.
template <typename T>
__global__ void __launch_bounds__(kThreads) general_attention_kernel(const __grid_constant__ GeneralAttentionOp op) {
  __shared__ float query[kMaxGeneralDim];
  __shared__ float weights[kThreads];
  __shared__ int blocks[kThreads];
  __shared__ float parts[kWarps];
  wait_for_previous_kernel();
  allow_next_kernel();
  const int row = blockIdx.y;
  const int head = blockIdx.x;
  const int sequence = op.rows.sequences[row];
  if (sequence < 0) return;
  const int kv_head = head / (op.heads / op.kv.heads);
  const int key_dim = op.kv.dim;
  const int value_dim = op.kv.values_dim();
  const int position = op.rows.positions[row];
  const int first = op.window > 0 ? max(0, position - op.window + 1) : 0;
  const int end = op.causal ? position + 1 : op.rows.lengths[sequence];
  const std::int32_t* table = op.rows.tables + static_cast<std::size_t>(sequence) * op.rows.table_stride;
  const T* keys = reinterpret_cast<const T*>(op.kv.keys);
  const T* values = reinterpret_cast<const T*>(op.kv.values);
  const float* source = op.q + static_cast<std::size_t>(row) * op.q_stride + head * key_dim;
  for (int i = threadIdx.x; i < key_dim; i += kThreads) query[i] = source[i];

  float maximum = op.sinks == nullptr ? -INFINITY : op.sinks[head];
  float total = op.sinks == nullptr ? 0.0f : 1.0f;
  float sums[kMaxShare] = {};
  for (int begin = first; begin < end; begin += kThreads) {
    __syncthreads();
    const int at = begin + static_cast<int>(threadIdx.x);
    float score = -INFINITY;
    if (at < end) {
      const std::int64_t block = table[at / kKvBlockTokens];
      blocks[threadIdx.x] = static_cast<int>(block);
      const T* key = keys + block * op.kv.key_block_stride +
                     static_cast<std::int64_t>(kv_head * kKvBlockTokens + at % kKvBlockTokens) * key_dim;
      float sum = 0.0f;
      for (int i = 0; i < key_dim; ++i) sum = fmaf(query[i], number(key + i), sum);
      score = sum * op.scale;
      if (op.soft_cap > 0.0f) score = op.soft_cap * tanhf(score / op.soft_cap);
    }
    // A NaN stays one.
    const float best =
        over_block(score, parts, [](float a, float b) { return a != a || b != b ? a + b : fmaxf(a, b); });
    const float next = best != best ? best : fmaxf(maximum, best);
    const float base = next == -INFINITY ? 0.0f : next;
    const float correction = expf(maximum - base);
    const float weight = at < end ? expf(score - base) : 0.0f;
    weights[threadIdx.x] = weight;
    total = total * correction + over_block(weight, parts, [](float a, float b) { return a + b; });
    maximum = next;
    __syncthreads();
    const int count = min(kThreads, end - begin);
#pragma unroll
    for (int share = 0; share < kMaxShare; ++share) {
      const int i = share * kThreads + static_cast<int>(threadIdx.x);
      if (i >= value_dim) break;
      float sum = sums[share] * correction;
      for (int j = 0; j < count; ++j) {
        const T* value = values + blocks[j] * op.kv.value_block_stride +
                         static_cast<std::int64_t>(kv_head * kKvBlockTokens + (begin + j) % kKvBlockTokens) * value_dim;
        sum = fmaf(weights[j], number(value + i), sum);
      }
      sums[share] = sum;
    }
  }
  float* out = op.out + static_cast<std::size_t>(row) * op.out_stride + head * value_dim;
#pragma unroll
  for (int share = 0; share < kMaxShare; ++share) {
    const int i = share * kThreads + static_cast<int>(threadIdx.x);
    if (i < value_dim) out[i] = sums[share] / total;
  }
}

}  // namespace

void general_attention(const LaunchContext& context, const GeneralAttentionOp& op) {
  if (op.kv.dim > kMaxGeneralDim || op.kv.values_dim() > kMaxGeneralDim) {
    fail_launch("attention", "a head is wider than 512");
  }
  const dim3 grid(static_cast<unsigned>(op.heads), static_cast<unsigned>(op.rows.count));
  if (op.kv.is_f32) {
    launch("attention", context, general_attention_kernel<float>, grid, dim3(kThreads), 0, op);
  } else {
    launch("attention", context, general_attention_kernel<__half>, grid, dim3(kThreads), 0, op);
  }
}

}  // namespace quarrel::cuda
