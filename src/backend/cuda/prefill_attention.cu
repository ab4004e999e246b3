// Four warps of sixteen rows. 64 positions, one block of the cache, are worked on at a time, two more are on their way;
// scores, weights and sums stay in registers. Operands are asked for one step ahead: two warps a scheduler cannot hide
// how long they take.
#include <cuda_fp16.h>

#include "backend/cuda/launch.cuh"
#include "backend/cuda/prefill_attention.h"
#include "backend/cuda/primitives.cuh"

namespace quarrel::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kUnitTokens = kKvBlockTokens;
constexpr int kTokenTiles = kUnitTokens / 8;  // of the first GEMM's results
constexpr int kStages = 3;
constexpr float kLog2E = 1.4426950408889634f;
static_assert(kPrefillTileRows == kWarps * 16);

constexpr int tile_bytes(int dim) { return kUnitTokens * dim * 2; }
constexpr int stage_bytes(int dim) { return 2 * tile_bytes(dim); }

// Results too small to be normal numbers are zero.
__device__ float power_of_two(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

__device__ std::uint32_t packed_halves(float a, float b) {
  const __half2 pair = __floats2half2_rn(a, b);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

// Pieces of 16 bytes are permuted within a row by this, so that those of eight rows lie in different banks.
template <int kDim>
__device__ int permutation(int token) {
  return kDim >= 64 ? token % 8 : token / 2 % 4;
}

// Keys, then values, of one block of the cache. Positions beyond the last one that a row sees become zeros: what lies
// there may be anything.
template <int kDim>
__device__ void copy_unit(const PrefillAttentionOp& op, std::int64_t block, int head, int seen, std::uint32_t to) {
  constexpr int kPieces = kDim / 8;
  const std::int64_t offset = static_cast<std::int64_t>(head) * kUnitTokens * kDim;
  const std::uint16_t* keys = op.kv.keys + block * op.kv.key_block_stride + offset;
  const std::uint16_t* values = op.kv.values + block * op.kv.value_block_stride + offset;
#pragma unroll
  for (int piece = threadIdx.x; piece < kUnitTokens * kPieces; piece += kThreads) {
    const int token = piece / kPieces;
    const int column = piece % kPieces;
    const std::uint32_t place = to + token * kDim * 2 + ((column ^ permutation<kDim>(token)) * 16);
    const int bytes = token < seen ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(keys + piece * 8), "r"(bytes)
                 : "memory");
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place + tile_bytes(kDim)),
                 "l"(values + piece * 8), "r"(bytes)
                 : "memory");
  }
  commit_copies();
}

// The rows of a warp's lanes: g and g + 8.
struct LaneRows {
  int first[2];  // the positions that it sees
  int last[2];   // -1: there is no such row
  float maximum[2] = {-INFINITY, -INFINITY};
  float total[2] = {0.0f, 0.0f};
};

// Turns scores into weights (powers of two); `correction` is what earlier sums have to be multiplied with.
__device__ void weigh(const PrefillAttentionOp& op, int first_token, bool masked, LaneRows& rows,
                      float (&scores)[kTokenTiles][4], float (&correction)[2]) {
  const int t = threadIdx.x % 4;
  if (op.soft_cap > 0.0f) {
#pragma unroll
    for (auto& tile : scores) {
#pragma unroll
      for (float& score : tile) score = op.soft_cap * kLog2E * tanhf(score / op.soft_cap);
    }
  }
  if (masked) {
#pragma unroll
    for (int i = 0; i < kTokenTiles; ++i) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int at = first_token + i * 8 + 2 * t + c % 2;
        if (at > rows.last[c / 2] || at < rows.first[c / 2]) scores[i][c] = -INFINITY;
      }
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float best = rows.maximum[r];
#pragma unroll
    for (int i = 0; i < kTokenTiles; ++i) best = fmaxf(best, fmaxf(scores[i][2 * r], scores[i][2 * r + 1]));
    best = fmaxf(best, __shfl_xor_sync(~0u, best, 1));
    best = fmaxf(best, __shfl_xor_sync(~0u, best, 2));
    const float base = best == -INFINITY ? 0.0f : best;
    correction[r] = power_of_two(rows.maximum[r] - base);
    rows.maximum[r] = best;
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kTokenTiles; ++i) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float& score = scores[i][2 * r + c];
        score = power_of_two(score - base);
        sum += score;
      }
    }
    rows.total[r] = rows.total[r] * correction[r] + sum;
  }
}

// The tensor cores' operands of 64 positions: of 16 columns of keys, or of 16 positions of 64 columns of values (32 of
// narrow heads).
template <int kDim>
struct FourOperands {
  static constexpr int kValueColumns = kDim < 64 ? kDim : 64;
  std::uint32_t b[4][4];

  __device__ void load_keys(std::uint32_t place, int step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) load_matrices(b[i], (place ^ (step * 32)) + i * 16 * kDim * 2);
  }
  __device__ void load_values(std::uint32_t place, int tokens, int columns) {
#pragma unroll
    for (int i = 0; i < kValueColumns / 16; ++i) {
      load_matrices_transposed(b[i], (place ^ ((columns * 4 + i) * 32)) + tokens * 16 * kDim * 2);
    }
  }
};

template <int kDim>
__global__ void __launch_bounds__(kThreads, 2) prefill_attention_kernel(const __grid_constant__ PrefillAttentionOp op) {
  extern __shared__ __align__(1024) std::byte shared[];
  wait_for_previous_kernel();
  allow_next_kernel();
  // The longest first.
  const PrefillTile tile = op.tiles[op.tile_count - 1 - static_cast<int>(blockIdx.y)];
  const int head = blockIdx.x;
  const int kv_head = head / (op.heads / op.kv.heads);
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int g = lane / 4;
  const int t = lane % 4;
  const int sequence = op.rows.sequences[tile.first];
  const std::int32_t* table = op.rows.tables + static_cast<std::size_t>(sequence) * op.rows.table_stride;
  const int first_row_position = op.rows.positions[tile.first];
  // The last position that row `row` of the tile sees.
  const auto last_seen = [&](int row) {
    return op.causal ? op.rows.positions[tile.first + row] : op.rows.lengths[sequence] - 1;
  };
  const int end_position = last_seen(tile.count - 1) + 1;
  const int first_seen = op.window > 0 ? max(0, first_row_position - op.window + 1) : 0;
  const int first_unit = first_seen / kUnitTokens;
  const int end_unit = (end_position + kUnitTokens - 1) / kUnitTokens;
  const std::uint32_t ring = shared_address(shared);
  const auto copy = [&](int unit) {
    if (unit < end_unit) {
      copy_unit<kDim>(op, table[unit], kv_head, end_position - unit * kUnitTokens,
                      ring + (unit - first_unit) % kStages * stage_bytes(kDim));
    } else {
      commit_copies();
    }
  };
  copy(first_unit);
  copy(first_unit + 1);

  LaneRows rows;
  constexpr int kSteps = kDim / 16;
  std::uint32_t q[kSteps][4];
  const float factor = op.soft_cap > 0.0f ? op.scale : op.scale * kLog2E;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = warp * 16 + g + 8 * r;
    const bool exists = row < tile.count;
    rows.last[r] = exists ? last_seen(row) : -1;
    rows.first[r] = op.window > 0 && exists ? max(0, op.rows.positions[tile.first + row] - op.window + 1) : 0;
    const float* source = op.q + static_cast<std::size_t>(tile.first + (exists ? row : 0)) * op.q_stride + head * kDim;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float2 pair = *reinterpret_cast<const float2*>(source + step * 16 + half * 8 + 2 * t);
        q[step][2 * half + r] = packed_halves(pair.x * factor, pair.y * factor);
      }
    }
  }
  // The last position that all rows of this warp see.
  const int warp_last_seen = warp * 16 < tile.count ? last_seen(warp * 16) : -1;

  float sums[kDim / 8][4] = {};
  const int key_token = lane % 8 + lane / 16 * 8;
  const int key_offset = key_token * kDim * 2 + (lane / 8 % 2 ^ permutation<kDim>(key_token)) * 16;
  const int value_offset = lane % 16 * kDim * 2 + (lane / 16 ^ permutation<kDim>(lane % 16)) * 16;
  for (int unit = first_unit; unit < end_unit; ++unit) {
    wait_for_copies(1);
    __syncthreads();  // and everybody is done with the unit before, whose place the next but one takes
    copy(unit + 2);
    const std::uint32_t stage = ring + (unit - first_unit) % kStages * stage_bytes(kDim);
    const int first_token = unit * kUnitTokens;
    const std::uint32_t keys = stage + key_offset;
    const std::uint32_t values = stage + tile_bytes(kDim) + value_offset;
    float scores[kTokenTiles][4] = {};
    using Operands = FourOperands<kDim>;
    Operands operands[2];
    operands[0].load_keys(keys, 0);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step + 1 < kSteps) operands[(step + 1) % 2].load_keys(keys, step + 1);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::uint32_t(&b)[4] = operands[step % 2].b[i];
        mma_f16(scores[2 * i], q[step], b[0], b[1]);
        mma_f16(scores[2 * i + 1], q[step], b[2], b[3]);
      }
    }
    operands[0].load_values(values, 0, 0);  // while the scores become weights
    float correction[2];
    const bool masked = first_token + kUnitTokens - 1 > warp_last_seen || op.window > 0;
    weigh(op, first_token, masked, rows, scores, correction);
#pragma unroll
    for (auto& sum : sums) {
      sum[0] *= correction[0];
      sum[1] *= correction[0];
      sum[2] *= correction[1];
      sum[3] *= correction[1];
    }
    constexpr int kColumnSets = kDim / Operands::kValueColumns;
#pragma unroll
    for (int j = 0; j < 4 * kColumnSets; ++j) {
      const int i = j / kColumnSets;  // of the sixteens of positions
      if (j + 1 < 4 * kColumnSets) {
        operands[(j + 1) % 2].load_values(values, (j + 1) / kColumnSets, (j + 1) % kColumnSets);
      }
      const std::uint32_t p[4] = {packed_halves(scores[2 * i][0], scores[2 * i][1]),
                                  packed_halves(scores[2 * i][2], scores[2 * i][3]),
                                  packed_halves(scores[2 * i + 1][0], scores[2 * i + 1][1]),
                                  packed_halves(scores[2 * i + 1][2], scores[2 * i + 1][3])};
#pragma unroll
      for (int n = 0; n < Operands::kValueColumns / 16; ++n) {
        const std::uint32_t(&b)[4] = operands[j % 2].b[n];
        const int place = (j % kColumnSets * 4 + n) * 2;
        mma_f16(sums[place], p, b[0], b[1]);
        mma_f16(sums[place + 1], p, b[2], b[3]);
      }
    }
  }
  wait_for_copies(0);

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float total = rows.total[r];
    total += __shfl_xor_sync(~0u, total, 1);
    total += __shfl_xor_sync(~0u, total, 2);
    float scale = 1.0f;
    if (op.sinks != nullptr) {
      const float sink = op.sinks[head] * kLog2E;
      const float best = fmaxf(rows.maximum[r], sink);
      scale = exp2f(rows.maximum[r] - best);
      total = total * scale + exp2f(sink - best);
    }
    scale /= total;
    if (rows.last[r] < 0) continue;
    float* out =
        op.out + static_cast<std::size_t>(tile.first + warp * 16 + g + 8 * r) * op.out_stride + head * kDim + 2 * t;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      *reinterpret_cast<float2*>(out + n * 8) = {sums[n][2 * r] * scale, sums[n][2 * r + 1] * scale};
    }
  }
}

template <typename Action>
void with_kernel(int dim, const Action& action) {
  if (dim == 32) return action(prefill_attention_kernel<32>);
  if (dim == 64) return action(prefill_attention_kernel<64>);
  action(prefill_attention_kernel<128>);
}

}  // namespace

bool can_prefill(int heads, int kv_heads, int dim) {
  return kv_heads > 0 && heads % kv_heads == 0 && (dim == 32 || dim == 64 || dim == 128);
}

void prepare_prefill_attention() {
  for (const int dim : {32, 64, 128}) {
    with_kernel(dim, [&](auto kernel) { allow_shared_bytes("prefill attention", kernel, kStages * stage_bytes(dim)); });
  }
}

void prefill_attention(const LaunchContext& context, const PrefillAttentionOp& op) {
  const dim3 grid(static_cast<unsigned>(op.heads), static_cast<unsigned>(op.tile_count));
  with_kernel(op.kv.dim, [&](auto kernel) {
    launch("prefill attention", context, kernel, grid, dim3(kThreads), kStages * stage_bytes(op.kv.dim), op);
  });
}

}  // namespace quarrel::cuda
