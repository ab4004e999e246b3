#include "backend/cuda/activation_split.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/primitives.cuh"
#include "backend/cuda/rowwise.h"
#include "backend/cuda/saturated_half.cuh"

namespace quarrel::cuda {
namespace {

__global__ void __launch_bounds__(kSplitThreads)
    split_kernel(const __grid_constant__ SplitInput input, int rows, std::byte* split) {
  __shared__ float scratch[kSplitWarps];
  FirstChunk first(input);
  wait_for_previous_kernel();
  allow_next_kernel();
  const int row = blockIdx.x;
  const int chunks = (input.columns + kChunkColumns - 1) / kChunkColumns;
  auto* squares = reinterpret_cast<float*>(split + static_cast<std::size_t>(chunks) * split_chunk_bytes(rows));
  first.load_row(input, row);
  split_row(input, first, row, true, row, rows, squares + row * kSplitWarps, scratch, split);
}

__global__ void rope_angles_kernel(StepRows rows, const double* frequencies, int pairs, float magnitude, float2* out) {
  constexpr double kTurn = 6.283185307179586476925;
  wait_for_previous_kernel();
  allow_next_kernel();
  const int pair = threadIdx.x;
  if (pair >= pairs) return;
  const double angle = static_cast<double>(rows.positions[blockIdx.x]) * frequencies[pair];
  float sine;
  float cosine;
  sincosf(static_cast<float>(angle - rint(angle / kTurn) * kTurn), &sine, &cosine);
  out[blockIdx.x * pairs + pair] = {cosine * magnitude, sine * magnitude};
}

// ---- Heads: one warp each ----

constexpr int kHeadWarps = 4;
constexpr int kMaxHeadElements = 8;  // a lane's share of a head of 256

// Element e of a lane: the pairs of a rotation lie in neighbouring elements of one lane, what is not rotated behind.
struct HeadPlaces {
  int pairs;
  bool interleaved;

  __device__ int operator()(int lane, int e) const {
    const int number = lane + e / 2 * 32;  // of a pair of elements
    if (number < pairs) return interleaved ? 2 * number + e % 2 : number + e % 2 * pairs;
    return 2 * number + e % 2;
  }
};

__global__ void __launch_bounds__(kHeadWarps * 32) rope_store_kernel(const __grid_constant__ RopeStoreOp op) {
  allow_next_kernel();
  const int row = blockIdx.y;
  const int lane = threadIdx.x % 32;
  const int number = blockIdx.x * kHeadWarps + threadIdx.x / 32;  // heads of q, then of k, then of v
  // What the step's rows are was there before its first kernel.
  const int sequence = op.rows.sequences[row];
  const int position = op.rows.positions[row];
  const bool exists = number < op.heads + 2 * op.kv.heads && sequence >= 0;
  std::int64_t block = 0;
  if (exists) block = op.rows.tables[sequence * op.rows.table_stride + position / kKvBlockTokens];
  wait_for_previous_kernel();
  if (!exists) return;
  const bool is_q = number < op.heads;
  const bool is_v = number >= op.heads + op.kv.heads;
  const int head = is_q ? number : (number - op.heads) % op.kv.heads;
  const int dim = is_v ? op.kv.values_dim() : op.kv.dim;
  const float* in_q = op.q_in == nullptr ? op.q : op.q_in;
  const int heads_width = (is_q ? op.heads : op.kv.heads) * dim;
  const int given_stride = is_q   ? (op.q_in == nullptr ? op.q_stride : op.q_in_stride)
                           : is_v ? op.v_stride
                                  : op.k_stride;
  const std::size_t stride = given_stride == 0 ? heads_width : given_stride;
  const float* source = (is_q ? in_q : is_v ? op.v : op.k) + row * stride + head * dim;
  const HeadPlaces places{.pairs = is_v || op.angles == nullptr ? 0 : op.pairs, .interleaved = op.interleaved};

  // All that is read from memory is asked for at once.
  float2 angles[kMaxHeadElements / 2];
#pragma unroll
  for (int i = 0; i < kMaxHeadElements / 2; ++i) {
    const int pair = lane + i * 32;
    if (pair < places.pairs) angles[i] = reinterpret_cast<const float2*>(op.angles)[row * op.pairs + pair];
  }
  float values[kMaxHeadElements] = {};
#pragma unroll 4
  for (int part = 0; part < op.parts; ++part) {
#pragma unroll
    for (int e = 0; e < kMaxHeadElements; ++e) {
      const int at = places(lane, e);
      if (at < dim) values[e] += source[part * op.part_stride + at];
    }
  }
  const float* bias = is_q ? op.q_bias : is_v ? op.v_bias : op.k_bias;
  float squares = 0.0f;
#pragma unroll
  for (int e = 0; e < kMaxHeadElements; ++e) {
    const int at = places(lane, e);
    if (bias != nullptr && at < dim) values[e] += bias[head * dim + at];
    squares += values[e] * values[e];
  }
  const float* norm = is_q ? op.q_norm : is_v ? nullptr : op.k_norm;
  if (norm != nullptr) {
    for (int mask = 16; mask > 0; mask >>= 1) squares += __shfl_xor_sync(~0u, squares, mask);
    const bool bad = !isfinite(squares);
    const float scale = bad ? __int_as_float(0x7fc00000) : 1.0f / sqrtf(squares / static_cast<float>(dim) + op.epsilon);
    // Whichever head writes last, it writes the same.
    if (bad && lane == 0 && op.first_bad != nullptr && op.first_bad[row] < 0) op.first_bad[row] = op.layer;
#pragma unroll
    for (int e = 0; e < kMaxHeadElements; ++e) {
      const int at = places(lane, e);
      if (at < dim) values[e] *= scale * norm[at];
    }
  }
#pragma unroll
  for (int e = 0; e < kMaxHeadElements; e += 2) {
    const int pair = lane + e / 2 * 32;
    if (pair < places.pairs) {
      const float2 angle = angles[e / 2];
      const float first = values[e];
      const float second = values[e + 1];
      values[e] = first * angle.x - second * angle.y;
      values[e + 1] = first * angle.y + second * angle.x;
    }
  }
  if (is_q) {
    const std::size_t q_stride = op.q_stride == 0 ? heads_width : op.q_stride;
#pragma unroll
    for (int e = 0; e < kMaxHeadElements; ++e) {
      const int at = places(lane, e);
      if (at < dim) op.q[row * q_stride + head * dim + at] = values[e];
    }
    return;
  }
  std::uint16_t* base = is_v ? op.kv.values : op.kv.keys;
  const std::int64_t offset = block * (is_v ? op.kv.value_block_stride : op.kv.key_block_stride) +
                              (head * kKvBlockTokens + position % kKvBlockTokens) * dim;
  if (op.kv.is_f32) {
    float* target = reinterpret_cast<float*>(base) + offset;
#pragma unroll
    for (int e = 0; e < kMaxHeadElements; ++e) {
      const int at = places(lane, e);
      if (at < dim) target[at] = values[e];
    }
    return;
  }
  std::uint16_t* target = base + offset;
  unsigned saturated = 0;
#pragma unroll
  for (int e = 0; e < kMaxHeadElements; ++e) {
    const int at = places(lane, e);
    if (at < dim) target[at] = saturated_half(values[e], saturated);
  }
  if (saturated > 0 && op.saturated != nullptr) atomicAdd(op.saturated, static_cast<unsigned long long>(saturated));
}

// ---- The largest logit ----

constexpr int kArgmaxThreads = 1024;

__global__ void __launch_bounds__(kArgmaxThreads) argmax_kernel(const float* logits, int count, std::int32_t* ids) {
  __shared__ float best_values[32];
  __shared__ int best_ids[32];
  wait_for_previous_kernel();
  allow_next_kernel();
  const float* row = logits + static_cast<std::size_t>(blockIdx.x) * count;
  float best = -INFINITY;
  int id = count;
  for (int i = threadIdx.x; i < count; i += kArgmaxThreads) {
    if (row[i] > best || (row[i] == best && i < id)) {
      best = row[i];
      id = i;
    }
  }
  const auto reduce = [&] {
    for (int mask = 16; mask > 0; mask >>= 1) {
      const float other = __shfl_xor_sync(~0u, best, mask);
      const int other_id = __shfl_xor_sync(~0u, id, mask);
      if (other > best || (other == best && other_id < id)) {
        best = other;
        id = other_id;
      }
    }
  };
  reduce();
  if (threadIdx.x % 32 == 0) {
    best_values[threadIdx.x / 32] = best;
    best_ids[threadIdx.x / 32] = id;
  }
  __syncthreads();
  if (threadIdx.x >= 32) return;
  best = best_values[threadIdx.x];
  id = best_ids[threadIdx.x];
  reduce();
  if (threadIdx.x == 0) ids[blockIdx.x] = id < count ? id : 0;
}

}  // namespace

bool kernels_wait_for_previous() {
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, argmax_kernel), "kernel attributes");
  return attributes.ptxVersion >= 90;
}

void split_activations(const LaunchContext& context, const SplitInput& input, int room, std::byte* split) {
  launch("split activations", context, split_kernel, dim3(static_cast<unsigned>(input.count)), dim3(kSplitThreads), 0,
         input, room, split);
}

void rope_angles(const LaunchContext& context, const StepRows& rows, const double* frequencies, int pairs,
                 float magnitude, float* angles) {
  launch("rope angles", context, rope_angles_kernel, dim3(static_cast<unsigned>(rows.count)),
         dim3(static_cast<unsigned>(pairs)), 0, rows, frequencies, pairs, magnitude, reinterpret_cast<float2*>(angles));
}

void rope_store(const LaunchContext& context, const RopeStoreOp& op) {
  const int heads = op.heads + 2 * op.kv.heads;
  const dim3 grid(static_cast<unsigned>((heads + kHeadWarps - 1) / kHeadWarps), static_cast<unsigned>(op.rows.count));
  launch("rope and store", context, rope_store_kernel, grid, dim3(kHeadWarps * 32), 0, op);
}

void argmax(const LaunchContext& context, const float* logits, int rows, int count, std::int32_t* ids) {
  launch("argmax", context, argmax_kernel, dim3(static_cast<unsigned>(rows)), dim3(kArgmaxThreads), 0, logits, count,
         ids);
}

}  // namespace quarrel::cuda
