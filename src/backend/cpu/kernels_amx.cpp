// What AMX adds to AVX-512: GEMM of many rows on tiles.
#define QUARREL_LEVEL amx_level

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "backend/cpu/amx_tiles.h"
#include "backend/cpu/kernels.h"
#include "quant/blocks.h"
#include "quant/iq_codes.h"

namespace quarrel {
// As quant/decode.h declares it; that header's inline conversions must not be compiled with this level's flags.
void decode_row(QuantType type, const std::byte* source, float* values, std::size_t weights) noexcept;
}  // namespace quarrel

// clang-format off: each stands on those before it.
#include "backend/cpu/simd_avx512.h"
#include "backend/cpu/packed.inl"
#include "backend/cpu/packed_bits.inl"
#include "backend/cpu/packed_codebooks.inl"
#include "backend/cpu/unpacked_panels.inl"
#include "backend/cpu/float_panels.inl"
#include "backend/cpu/bf16_panels.inl"
#include "backend/cpu/gemm_amx_bf16.inl"
#include "backend/cpu/gemm_amx_int8.inl"
// clang-format on

namespace quarrel {
namespace amx_level {

template <typename Block>
static constexpr TypeKernels type_kernels() {
  TypeKernels kernels = {};
  if constexpr (kHasPacked<Block>) kernels.gemm_int8_amx = gemm_int8_amx<Block>;
  if constexpr (kHasBf16<Block>) kernels.gemm_bf16_amx = gemm_bf16<Block>;
  return kernels;
}

static std::size_t scratch_bytes(std::size_t columns) {
  const std::size_t bf16 = bf16_scratch_bytes(columns);
  const std::size_t int8 = int8_scratch_bytes(columns);
  return bf16 > int8 ? bf16 : int8;
}

}  // namespace amx_level

const AmxKernels& amx_kernels() noexcept {
  static constexpr AmxKernels kTable = {.types =
                                            {
#define QUARREL_TYPE(type, number, name, Block) amx_level::type_kernels<Block>(),
                                                QUARREL_WEIGHT_TYPES(QUARREL_TYPE)
#undef QUARREL_TYPE
                                            },
                                        .scratch_bytes = amx_level::scratch_bytes,
                                        .to_bf16_row = amx_level::to_bf16_row};
  return kTable;
}

}  // namespace quarrel
