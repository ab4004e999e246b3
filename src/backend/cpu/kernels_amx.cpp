// What AMX adds to AVX-512: products of many rows in tiles.
#define QUARREL_LEVEL amx_level

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "backend/cpu/kernels.h"
#include "backend/cpu/tiles.h"
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
#include "backend/cpu/packed_grids.inl"
#include "backend/cpu/panels.inl"
#include "backend/cpu/bfloat_panels.inl"
#include "backend/cpu/matmul_amx.inl"
#include "backend/cpu/matmul_amx_int8.inl"
// clang-format on

namespace quarrel {

static std::size_t tile_scratch_bytes(std::size_t columns) {
  const std::size_t bfloats = amx_level::bfloat_scratch_bytes(columns);
  const std::size_t digits = amx_level::digit_tile_scratch_bytes(columns);
  return bfloats > digits ? bfloats : digits;
}

const TileKernels& amx_tiles() noexcept {
  static constexpr TileKernels kTable = {.has_bfloat_kernel = amx_level::has_bfloat_kernel,
                                         .scratch_bytes = tile_scratch_bytes,
                                         .convert_row = amx_level::to_bfloats,
                                         .matmul_bfloats = amx_level::matmul_bfloats,
                                         .matmul_digits = amx_level::matmul_digit_tiles};
  return kTable;
}

}  // namespace quarrel
