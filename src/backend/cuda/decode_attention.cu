#include <cuda_fp16.h>

#include <algorithm>

#include "backend/cuda/decode_attention.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/primitives.cuh"
#include "backend/cuda/register_image.cuh"

namespace quarrel::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kWarpTokens = 16;                    // one k16 of the second GEMM
constexpr int kUnitTokens = kWarps * kWarpTokens;  // what the thread block looks at at a time: a block of the cache
static_assert(kUnitTokens == kKvBlockTokens);
constexpr int kStages = 3;         // units that are on their way or worked on
constexpr int kMinSplitUnits = 4;  // joining two splits takes longer than walking over a few units more
constexpr float kLog2E = 1.4426950408889634f;

// The positions that a row sees, and how they are split: runs of units, which begin at multiples of kUnitTokens. From
// the row's own position alone.
struct Partition {
  int first_position;
  int last_position;
  int first_unit;
  int units;
  int units_a_split;
  int splits;

  __device__ Partition(int position, int window) {
    first_position = window > 0 ? max(0, position - window + 1) : 0;
    last_position = position;
    first_unit = first_position / kUnitTokens;
    units = position / kUnitTokens + 1 - first_unit;
    units_a_split = max((units + kMaxAttentionSplits - 1) / kMaxAttentionSplits, kMinSplitUnits);
    splits = (units + units_a_split - 1) / units_a_split;
  }
};

constexpr int tile_bytes(int dim) { return kWarpTokens * dim * 2; }
constexpr int ring_bytes(int dim) { return kWarps * kStages * 2 * tile_bytes(dim); }
constexpr int kMaxGroup = 16;
constexpr int result_floats(int dim) { return dim + 4; }  // a head's sums, its maximum, its total, nothing

// Copies this warp's share of a block, keys then values; positions that the row does not see become zeros. Pieces of
// 16 bytes are permuted within a row by its number, so that those of eight rows lie in different banks. Tiles are
// aligned to their rows, so a permutation is one exclusive or.
template <int kDim>
__device__ void copy_block(const DecodeAttentionOp& op, std::int64_t block, int first_token, const Partition& seen,
                           int head, std::uint32_t to, int lane) {
  constexpr int kPieces = kDim / 8;
  constexpr int kTokensACopy = 32 / kPieces;  // of one instruction of the warp; 512 bytes
  const int token = lane / kPieces;
  const std::int64_t offset =
      static_cast<std::int64_t>(head * kKvBlockTokens + first_token % kKvBlockTokens) * kDim + lane * 8;
  const std::uint16_t* keys = op.kv.keys + block * op.kv.key_block_stride + offset;
  const std::uint16_t* values = op.kv.values + block * op.kv.value_block_stride + offset;
  const std::uint32_t target = to + token * kDim * 2 + (lane % kPieces ^ token) * 16;
  const int from_first = first_token + token - seen.first_position;
  const auto length = static_cast<unsigned>(seen.last_position - seen.first_position);
#pragma unroll
  for (int i = 0; i < kWarpTokens / kTokensACopy; ++i) {
    const int bytes = static_cast<unsigned>(from_first + i * kTokensACopy) <= length ? 16 : 0;
    const std::uint32_t place = (target ^ (i * kTokensACopy % 8 * 16)) + i * 512;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(keys + i * 256), "r"(bytes)
                 : "memory");
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place + tile_bytes(kDim)), "l"(values + i * 256),
                 "r"(bytes)
                 : "memory");
  }
  commit_copies();
}

__device__ std::uint32_t packed_halves(__half a, __half b) {
  return static_cast<std::uint32_t>(__half_as_ushort(a)) | static_cast<std::uint32_t>(__half_as_ushort(b)) << 16;
}

// Two numbers as F16, and what that leaves.
__device__ void split_pair(float a, float b, std::uint32_t& value, std::uint32_t& rest) {
  const __half ha = __float2half_rn(a);
  const __half hb = __float2half_rn(b);
  value = packed_halves(ha, hb);
  rest = packed_halves(__float2half_rn(a - __half2float(ha)), __float2half_rn(b - __half2float(hb)));
}

// How much each warp's part of a head counts; `parts` has each one's maximum and total, `stride` floats apart. Scores
// are powers of two. The maximum and total of all are returned. Every thread does this for itself: that takes less time
// than another barrier.
__device__ float2 weigh_warps(const float* parts, int stride, float sink, float (&weights)[kWarps]) {
  float2 of_warp[kWarps];
  float best = sink;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) {
    of_warp[warp] = *reinterpret_cast<const float2*>(parts + warp * stride);
    best = fmaxf(best, of_warp[warp].x);
  }
  float total = sink == -INFINITY ? 0.0f : exp2f(sink - best);
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) {
    const bool sees_any = of_warp[warp].x != -INFINITY;
    weights[warp] = sees_any ? exp2f(of_warp[warp].x - best) : 0.0f;
    if (sees_any) total += weights[warp] * of_warp[warp].y;
  }
  return {best, total};
}

// How much each split of a head counts, divided by the total of all: one warp, a lane a split. `part` has a split's
// maximum and total.
__device__ float weigh_parts(bool exists, float2 part, float sink) {
  float best = exists ? part.x : -INFINITY;
  for (int mask = 16; mask > 0; mask >>= 1) best = fmaxf(best, __shfl_xor_sync(~0u, best, mask));
  best = fmaxf(best, sink);
  const float weight = exists && part.x != -INFINITY ? exp2f(part.x - best) : 0.0f;
  float total = exists ? weight * part.y : 0.0f;
  for (int mask = 16; mask > 0; mask >>= 1) total += __shfl_xor_sync(~0u, total, mask);
  if (sink != -INFINITY) total += exp2f(sink - best);
  return weight / total;
}

// Σ weight * part, in ascending order. Parts are `stride` floats apart.
__device__ float4 sum_of_parts(const float* parts, std::size_t stride, int count, const float* weights) {
  float4 sum = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 8
  for (int i = 0; i < count; ++i) {
    const float4 part = *reinterpret_cast<const float4*>(parts + i * stride);
    const float weight = weights[i];
    sum = {fmaf(weight, part.x, sum.x), fmaf(weight, part.y, sum.y), fmaf(weight, part.z, sum.z),
           fmaf(weight, part.w, sum.w)};
  }
  return sum;
}

// kResidual: at most eight heads share keys; rows g + 8 of the `mma` are then the residuals of rows g.
template <int kDim, bool kResidual>
__global__ void __launch_bounds__(kThreads) decode_attention_kernel(const __grid_constant__ DecodeAttentionOp op) {
  extern __shared__ __align__(1024) std::byte shared[];
  __shared__ int is_last;
  __shared__ float weights_of_parts[kMaxGroup][kMaxAttentionSplits];
  const int row = blockIdx.z;
  const int kv_head = blockIdx.y;
  const int split = blockIdx.x;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int g = lane / 4;
  const int t = lane % 4;
  const int group = op.heads / op.kv.heads;
  // What the step's rows are was there before its first kernel, and so were the keys of the positions before it: they
  // are asked for before the wait.
  const int sequence = op.rows.sequences[row];
  const Partition seen(op.rows.positions[row], op.window);
  const int first_new_unit = op.rows.first_new[row] / kUnitTokens;
  // Blocks that have nothing to do are gone at once; the first one of each head stays to hold the kernels' order.
  if (split > 0 && (sequence < 0 || split >= seen.splits)) return;
  if (sequence < 0) return wait_for_previous_kernel();
  const std::int32_t* table = op.rows.tables + static_cast<std::size_t>(sequence) * op.rows.table_stride;
  const int first_unit = seen.first_unit + split * seen.units_a_split;
  const int end_unit = min(first_unit + seen.units_a_split, seen.first_unit + seen.units);

  const std::uint32_t ring = shared_address(shared) + warp * kStages * 2 * tile_bytes(kDim);
  // Lane l knows the l-th block of the run; every 32 units they are read again.
  int blocks_from = first_unit;
  int block_of_lane = first_unit + lane < end_unit ? table[first_unit + lane] : 0;
  const auto copy = [&](int unit) {
    if (unit < end_unit) {
      if (unit - blocks_from >= 32) {
        blocks_from = unit;
        block_of_lane = unit + lane < end_unit ? table[unit + lane] : 0;
      }
      copy_block<kDim>(op, __shfl_sync(~0u, block_of_lane, unit - blocks_from), unit * kUnitTokens + warp * kWarpTokens,
                       seen, kv_head, ring + (unit - first_unit) % kStages * 2 * tile_bytes(kDim), lane);
    } else {
      commit_copies();
    }
  };
  // Code that runs once is code that is not in the instruction cache: loops here are not unrolled.
  const int early = min(max(first_new_unit - first_unit, 0), kStages);
#pragma unroll 1
  for (int i = 0; i < early; ++i) copy(first_unit + i);
  allow_next_kernel();
  wait_for_previous_kernel();

  // Q: asked for before the remaining keys, used after.
  constexpr int kSteps = kDim / 16;
  constexpr int kQRows = kResidual ? 1 : 2;
  float2 loaded[kSteps][2][kQRows];
  const int q_stride = op.q_stride == 0 ? op.heads * kDim : op.q_stride;
  const float* heads = op.q + static_cast<std::size_t>(row) * q_stride + kv_head * group * kDim;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int r = 0; r < kQRows; ++r) {
        const int head = g + 8 * r;
        loaded[step][half][r] =
            head < group ? *reinterpret_cast<const float2*>(heads + head * kDim + step * 16 + half * 8 + 2 * t)
                         : float2{0.0f, 0.0f};
      }
    }
  }
#pragma unroll 1
  for (int i = early; i < kStages; ++i) copy(first_unit + i);

  // Scaled for scores in powers of two (with a soft cap these come later).
  std::uint32_t q[kSteps][4];
  const float factor = op.soft_cap > 0.0f ? op.scale : op.scale * kLog2E;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float2 first = loaded[step][half][0];
      if constexpr (kResidual) {
        split_pair(first.x * factor, first.y * factor, q[step][2 * half], q[step][2 * half + 1]);
      } else {
        const float2 second = loaded[step][half][kQRows - 1];
        q[step][2 * half] = packed_halves(__float2half_rn(first.x * factor), __float2half_rn(first.y * factor));
        q[step][2 * half + 1] = packed_halves(__float2half_rn(second.x * factor), __float2half_rn(second.y * factor));
      }
    }
  }

  constexpr int kRows = kResidual ? 1 : 2;  // heads a lane keeps books for
  float maximum[kRows];
  float total[kRows] = {};
  float sums[kDim / 8][4] = {};
  for (float& m : maximum) m = -INFINITY;
  // The rows that a lane names when four matrices are loaded, permuted as copy_block does it.
  const int key_token = lane % 8 + lane / 16 * 8;
  const int key_offset = key_token * kDim * 2 + (lane / 8 % 2 ^ key_token % 8) * 16;
  const int value_offset = lane % 16 * kDim * 2 + (lane / 16 ^ lane % 8) * 16;

  for (int unit = first_unit; unit < end_unit; ++unit) {
    wait_for_copies(kStages - 1);
    __syncwarp();
    const std::uint32_t tile = ring + (unit - first_unit) % kStages * 2 * tile_bytes(kDim);
    const std::uint32_t keys = tile + key_offset;
    const std::uint32_t values = tile + tile_bytes(kDim) + value_offset;
    float scores[2][4] = {};  // two times eight positions
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      std::uint32_t b[4];
      load_matrices(b, keys ^ (step * 32));
      mma_f16(scores[0], q[step], b[0], b[1]);
      mma_f16(scores[1], q[step], b[2], b[3]);
    }
    const int first_token = unit * kUnitTokens + warp * kWarpTokens;
    float weights[kRows][4];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float best = maximum[r];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int position = first_token + i / 2 * 8 + 2 * t + i % 2;
        float score = kResidual ? scores[i / 2][i % 2] + scores[i / 2][2 + i % 2] : scores[i / 2][2 * r + i % 2];
        if (op.soft_cap > 0.0f) score = op.soft_cap * kLog2E * tanhf(score / op.soft_cap);
        if (position < seen.first_position || position > seen.last_position) score = -INFINITY;
        weights[r][i] = score;
        best = score > best || score != score ? score : best;  // a NaN stays
      }
      best = fmaxf(best, __shfl_xor_sync(~0u, best, 1));
      best = fmaxf(best, __shfl_xor_sync(~0u, best, 2));
      const float base = best == -INFINITY ? 0.0f : best;
      const float correction = exp2f(maximum[r] - base);
      maximum[r] = best;
      total[r] *= correction;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        weights[r][i] = exp2f(weights[r][i] - base);
        total[r] += weights[r][i];
      }
      // Most units do not move the maximum.
      if (__any_sync(~0u, correction != 1.0f)) {
#pragma unroll
        for (int n = 0; n < kDim / 8; ++n) {
          if constexpr (kResidual) {
#pragma unroll
            for (float& sum : sums[n]) sum *= correction;
          } else {
            sums[n][2 * r] *= correction;
            sums[n][2 * r + 1] *= correction;
          }
        }
      }
    }
    std::uint32_t p[4];
    if constexpr (kResidual) {
      split_pair(weights[0][0], weights[0][1], p[0], p[1]);
      split_pair(weights[0][2], weights[0][3], p[2], p[3]);
    } else {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        p[r] = packed_halves(__float2half_rn(weights[r][0]), __float2half_rn(weights[r][1]));
        p[2 + r] = packed_halves(__float2half_rn(weights[r][2]), __float2half_rn(weights[r][3]));
      }
    }
#pragma unroll
    for (int n = 0; n < kDim / 16; ++n) {
      std::uint32_t b[4];
      load_matrices_transposed(b, values ^ (n * 32));
      mma_f16(sums[2 * n], p, b[0], b[1]);
      mma_f16(sums[2 * n + 1], p, b[2], b[3]);
    }
    __syncwarp();
    copy(unit + kStages);
  }
  wait_for_copies(0);

  // The warps' results, joined in their order.
  __syncthreads();
  constexpr int kResult = result_floats(kDim);
  auto* results = reinterpret_cast<float*>(shared);  // [warps][16 heads][result]
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    total[r] += __shfl_xor_sync(~0u, total[r], 1);
    total[r] += __shfl_xor_sync(~0u, total[r], 2);
    float* place = results + (warp * kMaxGroup + g + 8 * r) * kResult;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        place[n * 8 + 2 * t + i] = kResidual ? sums[n][i] + sums[n][2 + i] : sums[n][2 * r + i];
      }
    }
    if (t == 0) {
      place[kDim] = maximum[r];
      place[kDim + 1] = total[r];
    }
  }
  __syncthreads();

  const bool is_only = seen.splits == 1;
  auto* workspace = reinterpret_cast<float*>(op.workspace);
  const auto workspace_of = [&](int head, int part) {
    return workspace +
           ((static_cast<std::size_t>(row) * op.heads + kv_head * group + head) * kMaxAttentionSplits + part) * kResult;
  };
  const auto sink_of = [&](int head) {
    return op.sinks == nullptr ? -INFINITY : op.sinks[kv_head * group + head] * kLog2E;
  };
  const int out_stride = op.out_stride == 0 ? op.heads * kDim : op.out_stride;
  float* out = op.out + static_cast<std::size_t>(row) * out_stride + kv_head * group * kDim;
  const auto put_result = [&](int i, float4 result) {
    *reinterpret_cast<float4*>(out + i) = result;
    if (op.image == nullptr) return;
    RegisterImage{.numbers = op.image, .rows = op.image_rows}.put_four(op.image_first + row, kv_head * group * kDim + i,
                                                                       result);
  };
  for (int i = threadIdx.x * 4; i < group * kDim; i += kThreads * 4) {
    const int head = i / kDim;
    const float* of_head = results + head * kResult;
    float weights[kWarps];
    const float2 all = weigh_warps(of_head + kDim, kMaxGroup * kResult, is_only ? sink_of(head) : -INFINITY, weights);
    if (is_only) {
#pragma unroll
      for (float& weight : weights) weight *= 1.0f / all.y;
    } else if (i % kDim == 0) {
      *reinterpret_cast<float2*>(workspace_of(head, split) + kDim) = all;
    }
    const float4 sum = sum_of_parts(of_head + i % kDim, kMaxGroup * kResult, kWarps, weights);
    if (is_only) {
      put_result(i, sum);
    } else {
      *reinterpret_cast<float4*>(workspace_of(head, split) + i % kDim) = sum;
    }
  }
  if (is_only) return;

  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    int* arrivals = op.arrivals + row * op.kv.heads + kv_head;
    is_last = atomicAdd(arrivals, 1) == seen.splits - 1;
    if (is_last) *arrivals = 0;
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  for (int head = warp; head < group; head += kWarps) {
    const bool exists = lane < seen.splits;
    const float2 part = exists ? *reinterpret_cast<const float2*>(workspace_of(head, lane) + kDim) : float2{0.0f, 0.0f};
    weights_of_parts[head][lane] = weigh_parts(exists, part, sink_of(head));
  }
  __syncthreads();
  for (int i = threadIdx.x * 4; i < group * kDim; i += kThreads * 4) {
    const int head = i / kDim;
    put_result(i, sum_of_parts(workspace_of(head, 0) + i % kDim, kResult, seen.splits, weights_of_parts[head]));
  }
}

constexpr int kStaticBytes = 3 * 1024;  // what the kernels have beside it, rounded up

constexpr int shared_bytes(int dim) {
  const int results = kWarps * kMaxGroup * result_floats(dim) * 4;
  return results > ring_bytes(dim) ? results : ring_bytes(dim);
}

template <typename Action>
void with_kernels(int dim, bool residual, const Action& action) {
  switch (dim) {
    case 64: residual ? action(decode_attention_kernel<64, true>) : action(decode_attention_kernel<64, false>); break;
    case 128:
      residual ? action(decode_attention_kernel<128, true>) : action(decode_attention_kernel<128, false>);
      break;
    default: residual ? action(decode_attention_kernel<256, true>) : action(decode_attention_kernel<256, false>); break;
  }
}

// As many as any row of the context may have: thread blocks that only find that they have nothing to do take time too.
// A shorter row may have more splits than the longest one, whose splits are longer.
int most_splits(int positions) {
  if (positions <= 0) return kMaxAttentionSplits;
  const int units = (positions + kUnitTokens - 1) / kUnitTokens + 1;  // a window may begin within one
  return std::min(kMaxAttentionSplits, (units + kMinSplitUnits - 1) / kMinSplitUnits);
}

}  // namespace

bool can_attend(const LaunchContext& context, int heads, int kv_heads, int dim) {
  return kv_heads > 0 && heads % kv_heads == 0 && heads / kv_heads <= kMaxGroup &&
         (dim == 64 || dim == 128 || dim == 256) && shared_bytes(dim) + kStaticBytes <= context.shared_bytes;
}

std::size_t decode_attention_workspace(int rows, int heads, int dim) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(heads) * kMaxAttentionSplits *
         static_cast<std::size_t>(result_floats(dim)) * sizeof(float);
}

void prepare_decode_attention(const LaunchContext& context) {
  for (const int dim : {64, 128, 256}) {
    if (!can_attend(context, 1, 1, dim)) continue;
    for (const bool residual : {false, true}) {
      const int bytes = std::max(shared_bytes(dim), context.shared_bytes / 2);
      with_kernels(dim, residual, [&](auto kernel) { allow_shared_bytes("attention", kernel, bytes); });
    }
  }
}

void decode_attention(const LaunchContext& context, const DecodeAttentionOp& op) {
  const dim3 grid(static_cast<unsigned>(most_splits(op.context)), static_cast<unsigned>(op.kv.heads),
                  static_cast<unsigned>(op.rows.count));
  // Where there are no more blocks than multiprocessors, no two shall pile up on one: they would leave no room for a
  // block of the GEMM that follows.
  const bool is_lone =
      op.image != nullptr && grid.x * grid.y * grid.z <= static_cast<unsigned>(context.multiprocessors);
  const int bytes = std::max(shared_bytes(op.kv.dim), is_lone ? context.shared_bytes / 2 : 0);
  with_kernels(op.kv.dim, op.heads / op.kv.heads <= 8,
               [&](auto kernel) { launch("attention", context, kernel, grid, dim3(kThreads), bytes, op); });
}

}  // namespace quarrel::cuda
