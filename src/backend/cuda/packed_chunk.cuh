// Reading and writing single weights of a packed chunk (weight_format.h): for repacking, for embedding rows and for
// matrices decoded to 16 bits. The GEMV kernels read whole registers of it instead.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "backend/cuda/weight_format.h"
#include "quant/blocks.h"

namespace quarrel::cuda {

// Where the code of a weight lies: a byte within the 512 of its plane. Lane 4 g + t of a warp holds rows g and g + 8
// and columns 4 t to 4 t + 3 of each half of a step.
struct CodePlace {
  int row;     // 0-15
  int column;  // 0-31
};

__device__ inline int byte_of(CodePlace place) {
  const int lane = place.row % 8 * 4 + place.column % 16 / 4;
  const int word = place.row / 8 + place.column / 16 * 2;
  return lane * 16 + word * 4 + place.column % 4;
}

__device__ inline CodePlace place_of(int byte) {
  const int lane = byte / 16;
  const int word = byte / 4 % 4;
  return {.row = lane / 4 + word % 2 * 8, .column = word / 2 * 16 + lane % 4 * 4 + byte % 4};
}

__device__ inline float half_bits_to_float(HalfBits bits) { return __half2float(__ushort_as_half(bits)); }

// The stored code of a weight, `column` within its chunk.
template <WeightFormat F>
__device__ inline std::uint32_t stored_code(const std::uint8_t* chunk, int row, int column) {
  const int step = column / kStepColumns;
  const int byte = byte_of({.row = row, .column = column % kStepColumns});
  constexpr int kBits = code_bits(F);
  if constexpr (kBits == 8) return chunk[step * 512 + byte];
  if constexpr (F == WeightFormat::mxfp4) {
    const int nibble = step % 2 * 4 + byte % 4;
    return chunk[step / 2 * 512 + byte / 4 * 4 + nibble / 2] >> (nibble % 2 * 4) & 15u;
  }
  std::uint32_t code = chunk[step / 2 * 512 + byte] >> (step % 2 * 4) & 15u;
  if constexpr (kBits == 5) code |= (chunk[high_bits_offset(F) + byte] >> step & 1u) << 4;
  if constexpr (kBits == 6) code |= (chunk[high_bits_offset(F) + step / 4 * 512 + byte] >> (step % 4 * 2) & 3u) << 4;
  return code;
}

// MXFP4's E2M1 numbers are halves; twice as large they are integers, and the scale of an exponent half as large.
__device__ inline float mxfp4_scale(std::uint32_t exponent) {
  return __uint_as_float(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23);
}

__device__ inline int doubled_e2m1(std::uint32_t nibble) {
  const int magnitude = static_cast<int>(0xc8643210u >> (nibble % 8 * 4) & 15u);
  return nibble < 8 ? magnitude : -magnitude;
}

// The weight itself, with the roundings of quant/'s decoders: a product, then a sum.
template <WeightFormat F>
__device__ inline float decoded_weight(const std::uint8_t* chunk, int row, int column) {
  const std::uint32_t stored = stored_code<F>(chunk, row, column);
  const std::uint8_t* record = chunk + records_offset(F) + row * record_bytes(F);
  const int step = column / kStepColumns;
  int code = static_cast<int>(stored);
  if constexpr (F == WeightFormat::mxfp4) {
    return __fmul_rn(mxfp4_scale(record[step]), static_cast<float>(doubled_e2m1(stored)));
  } else if constexpr (is_symmetric(F)) {
    constexpr int kShift = 32 - code_bits(F);
    code = static_cast<int>(stored << kShift) >> kShift;
  }
  const auto value = static_cast<float>(code);
  if constexpr (F == WeightFormat::q6_k) {
    const auto scales = reinterpret_cast<const std::int8_t*>(record);
    const float scale = half_bits_to_float(reinterpret_cast<const HalfBits*>(chunk + row_scales_offset(F))[row]);
    return __fmul_rn(__fmul_rn(scale, static_cast<float>(scales[column / 16])), value);
  } else if constexpr (is_k_format(F)) {
    const auto halves = reinterpret_cast<const HalfBits*>(record);
    const auto& packed = *reinterpret_cast<const std::uint8_t(*)[12]>(record + 4);
    const ScaleMin pair = q4_k_scale_min(packed, static_cast<std::size_t>(step));
    const float scale = __fmul_rn(half_bits_to_float(halves[0]), static_cast<float>(pair.scale));
    const float minimum = __fmul_rn(half_bits_to_float(halves[1]), static_cast<float>(pair.minimum));
    return __fsub_rn(__fmul_rn(scale, value), minimum);
  } else {
    const auto halves = reinterpret_cast<const HalfBits*>(record);
    const float product = __fmul_rn(half_bits_to_float(halves[step]), value);
    if constexpr (is_symmetric(F)) return product;
    return __fadd_rn(product, half_bits_to_float(halves[kChunkSteps + step]));
  }
}

}  // namespace quarrel::cuda
