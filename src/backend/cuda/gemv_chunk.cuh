// The inner loop of the GEMV: what a warp does with one chunk, 16 rows by 256 columns of weights in shared memory.
//
// An `mma` has eight columns, and an input row needs two of them (hi and lo). With one row the
// other six are not left idle: four steps go into one set of sums, each step's activations in columns of their own and
// zeros in the others', so that lane t of a quad ends up with the sum of step t and scales it, while its neighbours
// scale theirs. With two rows two steps share a set; from four rows on, every lane has a row.
//
// So a row's sums are kept in four parts, by step modulo four, and added in one order, whatever the number of rows.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "backend/cuda/activation_split.h"
#include "backend/cuda/packed_chunk.cuh"
#include "backend/cuda/primitives.cuh"
#include "backend/cuda/weight_format.h"

namespace quarrel::cuda {

template <typename T>
__device__ inline T at(const std::byte* place) {
  return *reinterpret_cast<const T*>(place);
}

__device__ inline std::uint32_t element(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

__device__ inline float half_of(std::uint32_t pair, int i) {
  const __half2 halves = *reinterpret_cast<const __half2*>(&pair);
  return i == 0 ? __low2float(halves) : __high2float(halves);
}

__device__ inline std::uint32_t shifted(std::uint32_t word, int left) {
  return left >= 0 ? word << left : word >> -left;
}

// A byte of a word as a number. A selector of eight or more repeats the byte's sign; __byte_perm does not offer that.
template <bool kSigned>
__device__ inline int byte_of_word(std::uint32_t word, int i) {
  const auto s = static_cast<std::uint32_t>(i);
  const std::uint32_t selector = kSigned ? 0x8880u + 0x1111u * s : 0x4440u + s;
  int byte;
  asm("prmt.b32 %0, %1, 0, %2;" : "=r"(byte) : "r"(word), "r"(selector));
  return byte;
}

// How kRows input rows share the columns of an `mma`, and where a lane 4 g + t finds what it needs of the activations.
template <int kRows>
struct ColumnPlan {
  static constexpr int kSharing = kRows >= 4 ? 1 : 4 / kRows;  // scale groups that go into one set of sums
  static constexpr int kParts = 4 / kSharing;                  // of the four parts of a row's sum, those of a lane
  static constexpr int kRowSets = (kRows + 3) / 4;             // sets of sums for all rows
  static constexpr int kStepBytes = 2 * kRows * kStepColumns;
  static constexpr int kRowSetBytes = 8 * kStepColumns;  // of operands and of sums

  int g;
  int t;
  int shares_b;  // which of the sharing groups the lane has activations for, as B column g
  int shares_c;  // which one's sums it gets, as C columns 2 t and 2 t + 1
  int scales;    // of its row
  int sums;

  __device__ explicit ColumnPlan(int lane) : g(lane / 4), t(lane % 4) {
    shares_b = g / 2 / (4 / kSharing);
    shares_c = t / (4 / kSharing);
    scales = split_operand_bytes(kRows) + t % (4 / kSharing) * kChunkSteps * 4;
    sums = split_operand_bytes(kRows) + split_scale_bytes(kRows) + (min(g, 2 * kRows - 1) * 4 + t) * 8;
  }
};

// The four parts of each sum, as far as they are this lane's: of rows g and g + 8 of the weights.
template <int kRows>
struct Sums {
  using Plan = ColumnPlan<kRows>;
  float parts[Plan::kRowSets][2][Plan::kParts] = {};

  // The whole sum of row set j, weight row g + 8 h. After it, lane t has input row t; with fewer than four rows the
  // others have it as well.
  __device__ float whole(int j, int h) const {
    const float(&p)[Plan::kParts] = parts[j][h];
    if constexpr (Plan::kParts == 4) {
      return (p[0] + p[1]) + (p[2] + p[3]);
    } else if constexpr (Plan::kParts == 2) {
      const float first = p[0] + __shfl_xor_sync(~0u, p[0], 2);
      return first + (p[1] + __shfl_xor_sync(~0u, p[1], 2));
    } else {
      const float pair = p[0] + __shfl_xor_sync(~0u, p[0], 1);
      return pair + __shfl_xor_sync(~0u, pair, 2);
    }
  }
};

// Formats whose codes of odd steps are left in the high nibbles: their sums are shifted instead, two numbers for four.
constexpr bool shifts_sums(WeightFormat format) { return code_bits(format) == 4 && !is_symmetric(format); }

// What a code at the top of its byte, or MXFP4's entry of its table, must be multiplied with.
constexpr float code_scale(WeightFormat format) {
  if (format == WeightFormat::mxfp4) return 0.5f;
  return is_symmetric(format) ? 1.0f / static_cast<float>(1 << (8 - code_bits(format))) : 1.0f;
}

// Four of MXFP4's numbers from the low nibbles of `nibbles`, four times as large as they are. Bytes of seven bits from
// two tables, of numbers and of what their negatives differ by; then one bit up.
__device__ inline std::uint32_t quadrupled_e2m1(std::uint32_t nibbles) {
  const std::uint32_t magnitudes = nibbles & 0x7777u;
  const std::uint32_t numbers = __byte_perm(0x03020100u, 0x0c080604u, magnitudes);
  const std::uint32_t differences = __byte_perm(0x7e7c7e00u, 0x78707c78u, magnitudes);
  std::uint32_t signs;  // 0xff where a nibble has its highest bit set, 0x80 elsewhere
  asm("prmt.b32 %0, %1, %1, %2;" : "=r"(signs) : "r"(0x80808080u), "r"(nibbles));
  return (numbers ^ (signs & differences)) << 1;
}

// The A operand of step `step` (a constant after unrolling). Symmetric codes end at the top of their byte.
template <WeightFormat F>
__device__ inline void operand(const uint4& codes, const uint4& high, int step, std::uint32_t (&a)[4]) {
  constexpr int kBits = code_bits(F);
  constexpr int kTop = is_symmetric(F) ? 8 - kBits : 0;  // how far codes are shifted up
  constexpr std::uint32_t kNibbles = 0x0f0f0f0fu << kTop;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t word = element(codes, i);
    if constexpr (kBits == 8) {
      a[i] = word;
    } else if constexpr (F == WeightFormat::mxfp4) {
      a[i] = quadrupled_e2m1(step % 2 == 0 ? word : word >> 16);
    } else if constexpr (shifts_sums(F)) {
      a[i] = word & (step % 2 == 0 ? 0x0f0f0f0fu : 0xf0f0f0f0u);
    } else {
      a[i] = shifted(word, kTop - step % 2 * 4) & kNibbles;
    }
    if constexpr (kBits == 5) a[i] |= shifted(element(high, i), 4 + kTop - step) & (0x10101010u << kTop);
    if constexpr (kBits == 6) a[i] |= shifted(element(high, i), 4 + kTop - step % 4 * 2) & (0x30303030u << kTop);
  }
}

// Reads the codes of a chunk in order.
template <WeightFormat F>
struct CodeReader {
  const std::byte* chunk;
  int lane;
  uint4 codes = {};
  uint4 high = {};

  __device__ void operand_of(int step, std::uint32_t (&a)[4]) {
    constexpr int kBits = code_bits(F);
    if (kBits == 8) {
      codes = at<uint4>(chunk + step * 512 + lane * 16);
    } else if (step % 2 == 0) {
      codes = at<uint4>(chunk + step / 2 * 512 + lane * 16);
    }
    if (kBits == 5 && step == 0) high = at<uint4>(chunk + high_bits_offset(F) + lane * 16);
    if (kBits == 6 && step % 4 == 0) high = at<uint4>(chunk + high_bits_offset(F) + step / 4 * 512 + lane * 16);
    operand<F>(codes, high, step, a);
  }
};

// Q4_K's and Q5_K's six-bit scales and minimums of a row, a byte each: steps 0-3 and 4-7.
struct UnpackedScales {
  std::uint32_t scales[2];
  std::uint32_t minimums[2];

  __device__ explicit UnpackedScales(const uint4& record) {
    scales[0] = record.y & 0x3f3f3f3fu;
    minimums[0] = record.z & 0x3f3f3f3fu;
    scales[1] = (record.w & 0x0f0f0f0fu) | (record.y >> 2 & 0x30303030u);
    minimums[1] = (record.w >> 4 & 0x0f0f0f0fu) | (record.z >> 2 & 0x30303030u);
  }
};

// The integer products of one set: hi and lo joined to one number, for weight rows g and g + 8.
struct SetProducts {
  int row0;
  int row1;
};

// Set number `set` of a chunk with scale groups of 32 columns: steps [set * kSharing, (set + 1) * kSharing).
template <WeightFormat F, int kRows>
__device__ inline SetProducts products_of_32(const std::uint32_t (&a)[ColumnPlan<kRows>::kSharing][4],
                                             const std::byte* activations, const ColumnPlan<kRows>& plan, int set,
                                             int row_set) {
  using Plan = ColumnPlan<kRows>;
  const auto own = at<uint2>(activations + (plan.g * 4 + plan.t) * 8 + row_set * Plan::kRowSetBytes +
                             set * Plan::kSharing * Plan::kStepBytes);
  int c[4] = {0, 0, 0, 0};
#pragma unroll
  for (int e = 0; e < Plan::kSharing; ++e) {
    const bool has = Plan::kSharing == 1 || plan.shares_b == e;
    mma_k32<is_symmetric(F)>(c, a[e], has ? own : uint2{0u, 0u});
  }
  SetProducts products{.row0 = c[0] * kSplitBase + c[1], .row1 = c[2] * kSplitBase + c[3]};
  if constexpr (shifts_sums(F)) {
    const int shift = (set * Plan::kSharing + (Plan::kSharing == 1 ? 0 : plan.shares_c)) % 2 * 4;
    products = {.row0 = products.row0 >> shift, .row1 = products.row1 >> shift};
  }
  return products;
}

// The activations' scales of a lane's groups, for sets of groups of 32 columns: four at a time where the lane has them
// all.
template <int kRows>
struct ScaleReader {
  using Plan = ColumnPlan<kRows>;
  const std::byte* scales;
  float4 four[Plan::kRowSets];

  __device__ ScaleReader(const std::byte* activations, const ColumnPlan<kRows>& plan)
      : scales(activations + plan.scales + plan.shares_c * 4) {}

  // Sets come in ascending order.
  __device__ void next_set(int set) {
    if (Plan::kSharing == 1 && set % 4 == 0) {
#pragma unroll
      for (int j = 0; j < Plan::kRowSets; ++j) four[j] = at<float4>(scales + j * 4 * kChunkSteps * 4 + set * 4);
    }
  }
  __device__ float scale(int set, int row_set) const {
    if constexpr (Plan::kSharing == 1) {
      const float4& f = four[row_set];
      return set % 4 == 0 ? f.x : set % 4 == 1 ? f.y : set % 4 == 2 ? f.z : f.w;
    } else {
      return at<float>(scales + set * Plan::kSharing * 4);
    }
  }
};

// The minimums' part of a chunk's sums: an `mma` of width eight, one column a group.
template <int kRows>
__device__ inline float2 minimum_products(const float (&m)[4], const std::byte* activations,
                                          const ColumnPlan<kRows>& plan, int row_set) {
  const auto b = at<float2>(activations + plan.sums + row_set * ColumnPlan<kRows>::kRowSetBytes);
  float c[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  mma_tf32(c, m[0], m[1], m[2], m[3], b.x, b.y);
  // With fewer than four rows several lanes stand for one row; the first of them takes the minimums.
  const bool takes = ColumnPlan<kRows>::kSharing == 1 || plan.shares_c == 0;
  return takes ? float2{c[0] + c[1], c[2] + c[3]} : float2{0.0f, 0.0f};
}

// Blocks of 32 with a scale each, and a minimum if they are not symmetric.
template <WeightFormat F, int kRows>
__device__ inline void consume_block_scales(const std::byte* chunk, const std::byte* activations,
                                            const ColumnPlan<kRows>& plan, int lane, Sums<kRows>& sums) {
  using Plan = ColumnPlan<kRows>;
  constexpr float kUnit = code_scale(F);
  constexpr int kOther = 8 * record_bytes(F);  // from row g to row g + 8
  const std::byte* records = chunk + records_offset(F) + plan.g * record_bytes(F);
  const auto half_at = [&](int offset) { return __half2float(at<__half>(records + offset)); };
  CodeReader<F> reader{.chunk = chunk, .lane = lane};
  ScaleReader<kRows> activation_scales(activations, plan);
  uint4 halves[2] = {};
  if constexpr (Plan::kSharing == 1) {
    halves[0] = at<uint4>(records);
    halves[1] = at<uint4>(records + kOther);
  }
#pragma unroll
  for (int set = 0; set < kChunkSteps / Plan::kSharing; ++set) {
    activation_scales.next_set(set);
    std::uint32_t a[Plan::kSharing][4];
#pragma unroll
    for (int e = 0; e < Plan::kSharing; ++e) reader.operand_of(set * Plan::kSharing + e, a[e]);
    const auto weight_of = [&](int row) {
      if constexpr (Plan::kSharing == 1) return half_of(element(halves[row], set / 2), set % 2) * kUnit;
      return half_at(row * kOther + (set * Plan::kSharing + plan.shares_c) * 2) * kUnit;
    };
    const float weight0 = weight_of(0);
    const float weight1 = weight_of(1);
#pragma unroll
    for (int j = 0; j < Plan::kRowSets; ++j) {
      const SetProducts products = products_of_32<F, kRows>(a, activations, plan, set, j);
      const float scale = activation_scales.scale(set, j);
      float& sum0 = sums.parts[j][0][set % Plan::kParts];
      float& sum1 = sums.parts[j][1][set % Plan::kParts];
      sum0 = fmaf(static_cast<float>(products.row0), weight0 * scale, sum0);
      sum1 = fmaf(static_cast<float>(products.row1), weight1 * scale, sum1);
    }
  }
  if constexpr (!is_symmetric(F)) {
    constexpr int kMinimums = kChunkSteps * 2;
    const float m[4] = {half_at(kMinimums + plan.t * 2), half_at(kOther + kMinimums + plan.t * 2),
                        half_at(kMinimums + plan.t * 2 + 8), half_at(kOther + kMinimums + plan.t * 2 + 8)};
#pragma unroll
    for (int j = 0; j < Plan::kRowSets; ++j) {
      const float2 products = minimum_products<kRows>(m, activations, plan, j);
      sums.parts[j][0][0] += products.x;
      sums.parts[j][1][0] += products.y;
    }
  }
}

// Four of MXFP4's numbers, twice as large as they are, where they are not negative, and zeros elsewhere: a selector of
// eight or more repeats the sign of what it selects.
__device__ inline std::uint32_t doubled_positives(std::uint32_t nibbles) {
  std::uint32_t numbers;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(numbers) : "r"(0x03020100u), "r"(0x0c080604u), "r"(nibbles));
  return numbers;
}

// MXFP4: positive and negative numbers are two operands, which takes half as many instructions as joining them in one.
template <int kRows>
__device__ inline void consume_mxfp4(const std::byte* chunk, const std::byte* activations,
                                     const ColumnPlan<kRows>& plan, int lane, Sums<kRows>& sums) {
  using Plan = ColumnPlan<kRows>;
  constexpr WeightFormat kFormat = WeightFormat::mxfp4;
  const std::byte* records = chunk + records_offset(kFormat) + plan.g * record_bytes(kFormat);
  ScaleReader<kRows> activation_scales(activations, plan);
  uint4 codes = {};
#pragma unroll
  for (int set = 0; set < kChunkSteps / Plan::kSharing; ++set) {
    activation_scales.next_set(set);
    int c[Plan::kRowSets][2][4] = {};
    uint2 own[Plan::kRowSets];
#pragma unroll
    for (int j = 0; j < Plan::kRowSets; ++j) {
      own[j] = at<uint2>(activations + (plan.g * 4 + plan.t) * 8 + j * Plan::kRowSetBytes +
                         set * Plan::kSharing * Plan::kStepBytes);
    }
#pragma unroll
    for (int e = 0; e < Plan::kSharing; ++e) {
      const int step = set * Plan::kSharing + e;
      if (step % 2 == 0) codes = at<uint4>(chunk + step / 2 * 512 + lane * 16);
      std::uint32_t a[2][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::uint32_t nibbles = step % 2 == 0 ? element(codes, i) : element(codes, i) >> 16;
        a[0][i] = doubled_positives(nibbles);
        a[1][i] = doubled_positives(nibbles ^ 0x8888u);
      }
      const bool has = Plan::kSharing == 1 || plan.shares_b == e;
#pragma unroll
      for (int j = 0; j < Plan::kRowSets; ++j) {
        mma_k32<true>(c[j][0], a[0], has ? own[j] : uint2{0u, 0u});
        mma_k32<true>(c[j][1], a[1], has ? own[j] : uint2{0u, 0u});
      }
    }
    const int group = set * Plan::kSharing + (Plan::kSharing == 1 ? 0 : plan.shares_c);
    const float weight0 = mxfp4_scale(at<std::uint8_t>(records + group));
    const float weight1 = mxfp4_scale(at<std::uint8_t>(records + 8 * record_bytes(kFormat) + group));
#pragma unroll
    for (int j = 0; j < Plan::kRowSets; ++j) {
      const auto& p = c[j][0];
      const auto& n = c[j][1];
      const float scale = activation_scales.scale(set, j);
      float& sum0 = sums.parts[j][0][set % Plan::kParts];
      float& sum1 = sums.parts[j][1][set % Plan::kParts];
      sum0 = fmaf(static_cast<float>((p[0] - n[0]) * kSplitBase + (p[1] - n[1])), weight0 * scale, sum0);
      sum1 = fmaf(static_cast<float>((p[2] - n[2]) * kSplitBase + (p[3] - n[3])), weight1 * scale, sum1);
    }
  }
}

// Q4_K and Q5_K: the group's integer scale is multiplied in as an integer, at most 32 * 31 * 32512 * 63 < 2^31.
template <WeightFormat F, int kRows>
__device__ inline void consume_k_scales(const std::byte* chunk, const std::byte* activations,
                                        const ColumnPlan<kRows>& plan, int lane, Sums<kRows>& sums) {
  using Plan = ColumnPlan<kRows>;
  const std::byte* records = chunk + records_offset(F) + plan.g * record_bytes(F);
  const auto record0 = at<uint4>(records);
  const auto record1 = at<uint4>(records + 8 * record_bytes(F));
  const UnpackedScales row0(record0);
  const UnpackedScales row1(record1);
  CodeReader<F> reader{.chunk = chunk, .lane = lane};
  ScaleReader<kRows> activation_scales(activations, plan);
  float parts[Plan::kRowSets][2][Plan::kParts] = {};
#pragma unroll
  for (int set = 0; set < kChunkSteps / Plan::kSharing; ++set) {
    activation_scales.next_set(set);
    std::uint32_t a[Plan::kSharing][4];
#pragma unroll
    for (int e = 0; e < Plan::kSharing; ++e) reader.operand_of(set * Plan::kSharing + e, a[e]);
    const int step = set * Plan::kSharing;  // the first one
    const int weight0 = byte_of_word<false>(row0.scales[step / 4], step % 4 + plan.shares_c);
    const int weight1 = byte_of_word<false>(row1.scales[step / 4], step % 4 + plan.shares_c);
#pragma unroll
    for (int j = 0; j < Plan::kRowSets; ++j) {
      const SetProducts products = products_of_32<F, kRows>(a, activations, plan, set, j);
      const float scale = activation_scales.scale(set, j);
      float& part0 = parts[j][0][set % Plan::kParts];
      float& part1 = parts[j][1][set % Plan::kParts];
      part0 = fmaf(static_cast<float>(products.row0 * weight0), scale, part0);
      part1 = fmaf(static_cast<float>(products.row1 * weight1), scale, part1);
    }
  }
  const auto minimum = [&](const UnpackedScales& row, int half) {
    return static_cast<float>(byte_of_word<false>(row.minimums[half], plan.t));
  };
  const float m[4] = {minimum(row0, 0), minimum(row1, 0), minimum(row0, 1), minimum(row1, 1)};
#pragma unroll
  for (int j = 0; j < Plan::kRowSets; ++j) {
#pragma unroll
    for (int p = 0; p < Plan::kParts; ++p) {
      sums.parts[j][0][p] = fmaf(half_of(record0.x, 0), parts[j][0][p], sums.parts[j][0][p]);
      sums.parts[j][1][p] = fmaf(half_of(record1.x, 0), parts[j][1][p], sums.parts[j][1][p]);
    }
    const float2 products = minimum_products<kRows>(m, activations, plan, j);
    sums.parts[j][0][0] = fmaf(half_of(record0.x, 1), -products.x, sums.parts[j][0][0]);
    sums.parts[j][1][0] = fmaf(half_of(record1.x, 1), -products.y, sums.parts[j][1][0]);
  }
}

// Q6_K: a scale every 16 columns, so the groups that share a set are half a step each. Codes stand four times too large
// at the top of their bytes; the sums are made smaller again before the scales come, at most 16 * 32 * 32512 * 128 <
// 2^31.
template <int kRows>
__device__ inline void consume_q6_k(const std::byte* chunk, const std::byte* activations, const ColumnPlan<kRows>& plan,
                                    int lane, Sums<kRows>& sums) {
  using Plan = ColumnPlan<kRows>;
  constexpr WeightFormat F = WeightFormat::q6_k;
  const auto scales0 = at<uint4>(chunk + records_offset(F) + plan.g * 16);
  const auto scales1 = at<uint4>(chunk + records_offset(F) + plan.g * 16 + 128);
  CodeReader<F> reader{.chunk = chunk, .lane = lane};
  float parts[Plan::kRowSets][2][Plan::kParts] = {};
  std::uint32_t a[4];
  // Where a lane's own word lies: its column, its group's step and half of it.
  const int own =
      (plan.g % (2 * Plan::kParts) * 4 + plan.t) * 8 + plan.shares_b / 2 * Plan::kStepBytes + plan.shares_b % 2 * 4;
#pragma unroll
  for (int set = 0; set < 2 * kChunkSteps / Plan::kSharing; ++set) {
    const int first = set * Plan::kSharing;  // of the chunk's sixteen groups
    int c[Plan::kRowSets][4] = {};
    std::uint32_t b[Plan::kRowSets];
#pragma unroll
    for (int j = 0; j < Plan::kRowSets; ++j) {
      b[j] =
          at<std::uint32_t>(activations + own + j * Plan::kRowSetBytes + first / 2 * Plan::kStepBytes + first % 2 * 4);
    }
#pragma unroll
    for (int e = 0; e < Plan::kSharing; ++e) {
      const int half = (first + e) % 2;
      if (half == 0) reader.operand_of((first + e) / 2, a);
      const bool has = Plan::kSharing == 1 || plan.shares_b == e;
#pragma unroll
      for (int j = 0; j < Plan::kRowSets; ++j) mma_k16(c[j], a[2 * half], a[2 * half + 1], has ? b[j] : 0u);
    }
    const int weight0 = byte_of_word<true>(element(scales0, first / 4), first % 4 + plan.shares_c);
    const int weight1 = byte_of_word<true>(element(scales1, first / 4), first % 4 + plan.shares_c);
#pragma unroll
    for (int j = 0; j < Plan::kRowSets; ++j) {
      const auto scale = at<float>(activations + plan.scales + j * 4 * kChunkSteps * 4 + first / 2 * 4 +
                                   (first % 2 + plan.shares_c) / 2 * 4);
      const int product0 = c[j][0] * (kSplitBase / 4) + (c[j][1] >> 2);
      const int product1 = c[j][2] * (kSplitBase / 4) + (c[j][3] >> 2);
      float& part0 = parts[j][0][set % Plan::kParts];
      float& part1 = parts[j][1][set % Plan::kParts];
      part0 = fmaf(static_cast<float>(product0 * weight0), scale, part0);
      part1 = fmaf(static_cast<float>(product1 * weight1), scale, part1);
    }
  }
  const float row0 = __half2float(at<__half>(chunk + row_scales_offset(F) + plan.g * 2));
  const float row1 = __half2float(at<__half>(chunk + row_scales_offset(F) + (plan.g + 8) * 2));
#pragma unroll
  for (int j = 0; j < Plan::kRowSets; ++j) {
#pragma unroll
    for (int p = 0; p < Plan::kParts; ++p) {
      sums.parts[j][0][p] = fmaf(row0, parts[j][0][p], sums.parts[j][0][p]);
      sums.parts[j][1][p] = fmaf(row1, parts[j][1][p], sums.parts[j][1][p]);
    }
  }
}

template <WeightFormat F, int kRows>
__device__ inline void consume_chunk(const std::byte* chunk, const std::byte* activations,
                                     const ColumnPlan<kRows>& plan, int lane, Sums<kRows>& sums) {
  if constexpr (F == WeightFormat::q6_k) {
    consume_q6_k<kRows>(chunk, activations, plan, lane, sums);
  } else if constexpr (F == WeightFormat::mxfp4) {
    consume_mxfp4<kRows>(chunk, activations, plan, lane, sums);
  } else if constexpr (is_k_format(F)) {
    consume_k_scales<F, kRows>(chunk, activations, plan, lane, sums);
  } else {
    consume_block_scales<F, kRows>(chunk, activations, plan, lane, sums);
  }
}

}  // namespace quarrel::cuda
