#include <cuda_fp16.h>

#include "backend/cuda/dense_gemv.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/primitives.cuh"

namespace quarrel::cuda {
namespace {

constexpr int kWarps = 8;

// Eight weights of a row, from `column` on.
__device__ void load_eight(const __half* row, int column, float (&out)[8]) {
  const uint4 words = __ldg(reinterpret_cast<const uint4*>(row + column));
  const auto* pairs = reinterpret_cast<const __half2*>(&words);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 two = __half22float2(pairs[i]);
    out[2 * i] = two.x;
    out[2 * i + 1] = two.y;
  }
}

__device__ void load_eight(const float* row, int column, float (&out)[8]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float4 four = __ldg(reinterpret_cast<const float4*>(row + column) + half);
    out[4 * half] = four.x;
    out[4 * half + 1] = four.y;
    out[4 * half + 2] = four.z;
    out[4 * half + 3] = four.w;
  }
}

__device__ float one_weight(const __half* row, int column) { return __half2float(row[column]); }
__device__ float one_weight(const float* row, int column) { return row[column]; }

// What eight columns of an input row add to a sum.
__device__ float added(float sum, const float (&w)[8], const float (&v)[8]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) sum = fmaf(w[i], v[i], sum);
  return sum;
}

// Lane l has columns 8 l to 8 l + 7 of every 256; a warp has one weight row and kIn input rows. kVectors: rows begin at
// multiples of 16 bytes.
template <typename T, bool kVectors, int kIn>
__global__ void __launch_bounds__(kWarps * 32) dense_gemv_kernel(const __grid_constant__ DenseGemvOp op) {
  const int lane = threadIdx.x % 32;
  const int out_row = blockIdx.x * kWarps + threadIdx.x / 32;
  const int first_in = blockIdx.y * kIn;
  wait_for_previous_kernel();
  allow_next_kernel();
  if (out_row >= op.weight.rows) return;
  const int columns = op.weight.columns;
  const int ins = min(kIn, op.in.count - first_in);
  const T* weights = static_cast<const T*>(op.weight.data) + static_cast<std::size_t>(out_row) * columns;
  const float* in = op.in.data + static_cast<std::size_t>(first_in) * op.in.stride;
  float sums[kIn] = {};
#pragma unroll 4
  for (int column = lane * 8; column < columns; column += 256) {
    float w[8];
    if constexpr (kVectors) {
      load_eight(weights, column, w);
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i) w[i] = column + i < columns ? one_weight(weights, column + i) : 0.0f;
    }
#pragma unroll
    for (int r = 0; r < kIn; ++r) {
      const float* values = in + static_cast<std::size_t>(min(r, ins - 1)) * op.in.stride + column;
      float v[8];
      if constexpr (kVectors) {
        const float4 a = *reinterpret_cast<const float4*>(values);
        const float4 b = *reinterpret_cast<const float4*>(values + 4);
        v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
      } else {
#pragma unroll
        for (int i = 0; i < 8; ++i) v[i] = column + i < columns ? values[i] : 0.0f;
      }
      sums[r] = added(sums[r], w, v);
    }
  }
#pragma unroll
  for (int r = 0; r < kIn; ++r) {
    float sum = sums[r];
    for (int mask = 16; mask > 0; mask >>= 1) sum += __shfl_xor_sync(~0u, sum, mask);
    if (lane != 0 || r >= ins) continue;
    const float value = op.bias == nullptr ? sum : sum + op.bias[out_row];
    float* out = op.out + static_cast<std::size_t>(first_in + r) * op.out_stride + out_row;
    *out = op.add ? *out + op.scale * value : value;
  }
}

template <typename T, int kIn>
void launch_with(const LaunchContext& context, const DenseGemvOp& op) {
  const dim3 grid(static_cast<unsigned>((op.weight.rows + kWarps - 1) / kWarps),
                  static_cast<unsigned>((op.in.count + kIn - 1) / kIn));
  const auto kernel = op.weight.columns % 8 == 0 ? dense_gemv_kernel<T, true, kIn> : dense_gemv_kernel<T, false, kIn>;
  launch("dense gemv", context, kernel, grid, dim3(kWarps * 32), 0, op);
}

template <typename T>
void launch_for(const LaunchContext& context, const DenseGemvOp& op) {
  if (op.in.count == 1) return launch_with<T, 1>(context, op);
  launch_with<T, 4>(context, op);
}

}  // namespace

void dense_gemv(const LaunchContext& context, const DenseGemvOp& op) {
  if (op.weight.is_f16) return launch_for<__half>(context, op);
  launch_for<float>(context, op);
}

}  // namespace quarrel::cuda
