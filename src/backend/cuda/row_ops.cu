#include <type_traits>

#include "backend/cuda/activation_math.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/primitives.cuh"
#include "backend/cuda/row_ops.h"
#include "backend/cuda/saturated_half.cuh"

namespace quarrel::cuda {
namespace {

constexpr int kRowThreads = 256;
constexpr int kRowWarps = kRowThreads / 32;

// The sum over the block, the same in every thread.
__device__ float sum_of_block(float value) {
  __shared__ float parts[kRowWarps];
  for (int mask = 16; mask > 0; mask >>= 1) value += __shfl_xor_sync(~0u, value, mask);
  __syncthreads();
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0.0f;
  for (int warp = 0; warp < kRowWarps; ++warp) total += parts[warp];
  return total;
}

struct RowScale {
  float mean = 0.0f;
  float scale = 1.0f;
};

// Each thread reads the columns that it wrote: threadIdx.x, threadIdx.x + kRowThreads …
__device__ RowScale row_scale(const DeviceNorm& norm, const float* values, int width, int row) {
  RowScale result;
  if (norm.kind == NormKind::none) return result;
  if (norm.kind == NormKind::layer) {
    float sum = 0.0f;
    for (int i = threadIdx.x; i < width; i += kRowThreads) sum += values[i];
    result.mean = sum_of_block(sum) / static_cast<float>(width);
  }
  float squares = 0.0f;
  for (int i = threadIdx.x; i < width; i += kRowThreads) {
    const float distance = values[i] - result.mean;
    squares += distance * distance;
  }
  squares = sum_of_block(squares);
  result.scale = 1.0f / sqrtf(squares / static_cast<float>(width) + norm.epsilon);
  if (!isfinite(squares)) {
    result.scale = __int_as_float(0x7fc00000);
    if (threadIdx.x == 0 && norm.first_bad != nullptr && norm.first_bad[row] < 0) norm.first_bad[row] = norm.layer;
  }
  return result;
}

__device__ float normed(const DeviceNorm& norm, const RowScale& scale, float value, int i) {
  if (norm.kind == NormKind::none) return value;
  value = (value - scale.mean) * scale.scale;
  if (norm.weight != nullptr) value *= norm.weight[i];
  if (norm.bias != nullptr) value += norm.bias[i];
  return value;
}

template <typename Out>
__device__ Out converted(float value) {
  if constexpr (std::is_same_v<Out, float>) {
    return value;
  } else {
    unsigned saturated = 0;
    return saturated_half(value, saturated);
  }
}

template <typename Out>
__global__ void __launch_bounds__(kRowThreads) norm_rows_kernel(RowSpan in, DeviceNorm norm, Out* out, int out_stride) {
  wait_for_previous_kernel();
  allow_next_kernel();
  const int row = blockIdx.x;
  const float* values = in.data + static_cast<std::size_t>(row) * in.stride;
  const RowScale scale = row_scale(norm, values, in.width, row);
  Out* target = out + static_cast<std::size_t>(row) * out_stride;
  for (int i = threadIdx.x; i < in.width; i += kRowThreads)
    target[i] = converted<Out>(normed(norm, scale, values[i], i));
}

__global__ void __launch_bounds__(kRowThreads) finish_branch_kernel(const __grid_constant__ FinishBranchOp op) {
  wait_for_previous_kernel();
  allow_next_kernel();
  const int row = blockIdx.x;
  const int width = op.x.width;
  float* value = op.value.data + static_cast<std::size_t>(row) * op.value.stride;
  float* x = op.x.data + static_cast<std::size_t>(row) * op.x.stride;
  if (op.bias != nullptr) {
    for (int i = threadIdx.x; i < width; i += kRowThreads) value[i] += op.bias[i];
  }
  const RowScale branch = row_scale(op.branch, value, width, row);
  for (int i = threadIdx.x; i < width; i += kRowThreads) x[i] += op.scale * normed(op.branch, branch, value[i], i);
  if (op.after.kind == NormKind::none) return;
  const RowScale after = row_scale(op.after, x, width, row);
  for (int i = threadIdx.x; i < width; i += kRowThreads) x[i] = normed(op.after, after, x[i], i);
}

__global__ void __launch_bounds__(kRowThreads)
    glu_rows_kernel(const __grid_constant__ GluRowsOp op, float* out, int out_stride, std::uint16_t* halves) {
  wait_for_previous_kernel();
  allow_next_kernel();
  const int i = blockIdx.x * kRowThreads + threadIdx.x;
  if (i >= op.up.width) return;
  const std::size_t place = static_cast<std::size_t>(blockIdx.y) * op.up.stride + i;
  float up = op.up.data[place];
  if (op.up_bias != nullptr) up += op.up_bias[i];
  float value;
  if (op.gate != nullptr) {
    float gate = op.gate[place];
    if (op.gate_bias != nullptr) gate += op.gate_bias[i];
    value = gated(op.function, gate, up);
  } else {
    value = activated(op.function.kind, up);
  }
  out[static_cast<std::size_t>(blockIdx.y) * out_stride + i] = value;
  if (halves != nullptr)
    halves[static_cast<std::size_t>(blockIdx.y) * op.up.width + i] = converted<std::uint16_t>(value);
}

constexpr int kEight = 8;

// Eight numbers of a row, saturated ones brought back: a NaN stays one.
__device__ void load_eight(const std::uint16_t* place, const float* bias, float (&values)[kEight]) {
  const auto words = *reinterpret_cast<const uint4*>(place);
  const auto* halves = reinterpret_cast<const __half*>(&words);
#pragma unroll
  for (int i = 0; i < kEight; ++i) {
    const float value = __half2float(halves[i]);
    values[i] = fabsf(value) > kLargestHalf ? copysignf(kLargestHalf, value) : value;
    if (bias != nullptr) values[i] += bias[i];
  }
}

__global__ void __launch_bounds__(kRowThreads) glu_halves_kernel(const __grid_constant__ GluHalvesOp op) {
  wait_for_previous_kernel();
  allow_next_kernel();
  const int first = (blockIdx.x * kRowThreads + threadIdx.x) * kEight;
  if (first >= op.width) return;
  const auto row = static_cast<std::size_t>(blockIdx.y);
  const auto part_of = [&](const float* bias) { return bias == nullptr ? nullptr : bias + first; };
  float up[kEight];
  float values[kEight];
  load_eight(op.up + row * op.stride + first, part_of(op.up_bias), up);
  if (op.gate != nullptr) {
    load_eight(op.gate + row * op.stride + first, part_of(op.gate_bias), values);
#pragma unroll
    for (int i = 0; i < kEight; ++i) values[i] = gated(op.function, values[i], up[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kEight; ++i) values[i] = activated(op.function.kind, up[i]);
  }
  auto* out = reinterpret_cast<float4*>(op.out + row * op.out_stride + first);
  out[0] = {values[0], values[1], values[2], values[3]};
  out[1] = {values[4], values[5], values[6], values[7]};
  std::uint32_t words[kEight / 2];
#pragma unroll
  for (int i = 0; i < kEight / 2; ++i) {
    words[i] = converted<std::uint16_t>(values[2 * i]) |
               static_cast<std::uint32_t>(converted<std::uint16_t>(values[2 * i + 1])) << 16;
  }
  *reinterpret_cast<uint4*>(op.halves + row * op.width + first) = {words[0], words[1], words[2], words[3]};
}

__global__ void __launch_bounds__(kRowThreads) add_bias_kernel(RowSpan rows, const float* bias) {
  wait_for_previous_kernel();
  allow_next_kernel();
  const int i = blockIdx.x * kRowThreads + threadIdx.x;
  if (i < rows.width) rows.data[static_cast<std::size_t>(blockIdx.y) * rows.stride + i] += bias[i];
}

__global__ void __launch_bounds__(kRowThreads) add_rows_kernel(RowSpan rows, const float* others, int stride) {
  wait_for_previous_kernel();
  allow_next_kernel();
  const int i = blockIdx.x * kRowThreads + threadIdx.x;
  if (i >= rows.width) return;
  rows.data[static_cast<std::size_t>(blockIdx.y) * rows.stride + i] +=
      others[static_cast<std::size_t>(blockIdx.y) * stride + i];
}

__global__ void __launch_bounds__(kRowThreads) gate_groups_kernel(const __grid_constant__ GateGroupsOp op) {
  wait_for_previous_kernel();
  allow_next_kernel();
  const int row = blockIdx.y;
  const int width = op.rows.width / op.groups;
  const int first = blockIdx.x * width;
  float* values = op.rows.data + static_cast<std::size_t>(row) * op.rows.stride + first;
  const float* gate = op.gate == nullptr ? nullptr : op.gate + static_cast<std::size_t>(row) * op.gate_stride + first;
  const bool is_padding = op.sequences[row] < 0;
  for (int i = threadIdx.x; i < width; i += kRowThreads) {
    const float value = gate == nullptr ? values[i] : values[i] * (gate[i] / (1.0f + expf(-gate[i])));
    values[i] = is_padding ? 0.0f : value;
  }
  if (op.norm.kind == NormKind::none || is_padding) return;
  DeviceNorm norm = op.norm;
  if (norm.weight != nullptr) norm.weight += first;
  if (norm.bias != nullptr) norm.bias += first;
  const RowScale scale = row_scale(norm, values, width, row);
  for (int i = threadIdx.x; i < width; i += kRowThreads) values[i] = normed(norm, scale, values[i], i);
}

__global__ void __launch_bounds__(kRowThreads) finish_logits_kernel(RowSpan logits, float scale, float soft_cap) {
  wait_for_previous_kernel();
  allow_next_kernel();
  const int i = blockIdx.x * kRowThreads + threadIdx.x;
  if (i >= logits.width) return;
  float& logit = logits.data[static_cast<std::size_t>(blockIdx.y) * logits.stride + i];
  const float scaled = scale * logit;
  logit = soft_cap > 0.0f ? soft_cap * tanhf(scaled / soft_cap) : scaled;
}

__global__ void __launch_bounds__(kRowThreads) gather_rows_kernel(RowSpan in, const std::int32_t* rows, RowSpan out) {
  wait_for_previous_kernel();
  allow_next_kernel();
  const int row = rows[blockIdx.x];
  const float* from = in.data + static_cast<std::ptrdiff_t>(row) * in.stride;
  float* to = out.data + static_cast<std::size_t>(blockIdx.x) * out.stride;
  for (int i = threadIdx.x; i < in.width; i += kRowThreads) to[i] = row < 0 ? 0.0f : from[i];
}

__global__ void __launch_bounds__(kRowThreads)
    resolve_tokens_kernel(const std::int32_t* tokens, const std::int32_t* sampled, int count, std::int32_t* ids) {
  wait_for_previous_kernel();
  allow_next_kernel();
  const int row = blockIdx.x * kRowThreads + threadIdx.x;
  if (row >= count) return;
  const std::int32_t token = tokens[row];
  ids[row] = token >= 0 ? token : max(sampled[~token], 0);
}

template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    look_up_rows_kernel(const T* table, int table_rows, const std::int32_t* ids, float scale, RowSpan out) {
  wait_for_previous_kernel();
  allow_next_kernel();
  const int id = ids[blockIdx.x];
  const bool exists = id >= 0 && id < table_rows;
  const T* from = table + static_cast<std::ptrdiff_t>(exists ? id : 0) * out.width;
  float* to = out.data + static_cast<std::size_t>(blockIdx.x) * out.stride;
  for (int i = threadIdx.x; i < out.width; i += kRowThreads) {
    float value;
    if constexpr (std::is_same_v<T, float>) {
      value = from[i];
    } else {
      value = __half2float(from[i]);
    }
    to[i] = exists ? scale * value : 0.0f;
  }
}

dim3 row_grid(int count) { return {static_cast<unsigned>(count)}; }
dim3 column_grid(int width, int count) {
  return {static_cast<unsigned>((width + kRowThreads - 1) / kRowThreads), static_cast<unsigned>(count)};
}

}  // namespace

void norm_rows(const LaunchContext& context, const RowSpan& in, const DeviceNorm& norm, float* out, int out_stride) {
  launch("norm", context, norm_rows_kernel<float>, row_grid(in.count), dim3(kRowThreads), 0, in, norm, out, out_stride);
}

void norm_rows(const LaunchContext& context, const RowSpan& in, const DeviceNorm& norm, std::uint16_t* out,
               int out_stride) {
  launch("norm to f16", context, norm_rows_kernel<std::uint16_t>, row_grid(in.count), dim3(kRowThreads), 0, in, norm,
         out, out_stride);
}

void finish_branch(const LaunchContext& context, const FinishBranchOp& op) {
  launch("end of a sublayer", context, finish_branch_kernel, row_grid(op.x.count), dim3(kRowThreads), 0, op);
}

void glu_rows(const LaunchContext& context, const GluRowsOp& op, float* out, int out_stride, std::uint16_t* halves) {
  launch("glu", context, glu_rows_kernel, column_grid(op.up.width, op.up.count), dim3(kRowThreads), 0, op, out,
         out_stride, halves);
}

void glu_halves(const LaunchContext& context, const GluHalvesOp& op) {
  launch("glu", context, glu_halves_kernel, column_grid((op.width + kEight - 1) / kEight, op.count), dim3(kRowThreads),
         0, op);
}

void add_bias(const LaunchContext& context, const RowSpan& rows, const float* bias) {
  launch("bias", context, add_bias_kernel, column_grid(rows.width, rows.count), dim3(kRowThreads), 0, rows, bias);
}

void add_rows(const LaunchContext& context, const RowSpan& rows, const float* others, int stride) {
  launch("sum of rows", context, add_rows_kernel, column_grid(rows.width, rows.count), dim3(kRowThreads), 0, rows,
         others, stride);
}

void gate_groups(const LaunchContext& context, const GateGroupsOp& op) {
  const dim3 grid(static_cast<unsigned>(op.groups), static_cast<unsigned>(op.rows.count));
  launch("gate of a scan", context, gate_groups_kernel, grid, dim3(kRowThreads), 0, op);
}

void finish_logits(const LaunchContext& context, const RowSpan& logits, float scale, float soft_cap) {
  launch("end of the head", context, finish_logits_kernel, column_grid(logits.width, logits.count), dim3(kRowThreads),
         0, logits, scale, soft_cap);
}

void gather_rows(const LaunchContext& context, const RowSpan& in, const std::int32_t* rows, const RowSpan& out) {
  launch("select rows", context, gather_rows_kernel, row_grid(out.count), dim3(kRowThreads), 0, in, rows, out);
}

void resolve_tokens(const LaunchContext& context, const std::int32_t* tokens, const std::int32_t* sampled, int count,
                    std::int32_t* ids) {
  launch("tokens", context, resolve_tokens_kernel, column_grid(count, 1), dim3(kRowThreads), 0, tokens, sampled, count,
         ids);
}

void look_up_rows(const LaunchContext& context, const void* table, bool is_f16, int table_rows, const std::int32_t* ids,
                  float scale, const RowSpan& out) {
  if (is_f16) {
    launch("embedding", context, look_up_rows_kernel<__half>, row_grid(out.count), dim3(kRowThreads), 0,
           static_cast<const __half*>(table), table_rows, ids, scale, out);
  } else {
    launch("embedding", context, look_up_rows_kernel<float>, row_grid(out.count), dim3(kRowThreads), 0,
           static_cast<const float*>(table), table_rows, ids, scale, out);
  }
}

}  // namespace quarrel::cuda
