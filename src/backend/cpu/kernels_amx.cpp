// What AMX adds to AVX-512: products of prompt rows in tiles.
#define QUARREL_LEVEL amx_level

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "backend/cpu/kernels.h"
#include "backend/cpu/tiles.h"
#include "quant/blocks.h"

namespace quarrel {
// As quant/decode.h declares it; that header's inline conversions must not be compiled with this level's flags.
void decode_row(QuantType type, const std::byte* source, float* values, std::size_t weights) noexcept;
}  // namespace quarrel

// clang-format off: each stands on those before it.
#include "backend/cpu/simd_avx512.h"
#include "backend/cpu/unpack.inl"
#include "backend/cpu/packed.inl"
#include "backend/cpu/panels.inl"
#include "backend/cpu/matmul_amx.inl"
// clang-format on

namespace quarrel {

const BfloatKernels& amx_tiles() noexcept {
  static constexpr BfloatKernels kTable = {.has_kernel = amx_level::has_bfloat_kernel,
                                           .scratch_bytes = amx_level::bfloat_scratch_bytes,
                                           .convert_row = amx_level::to_bfloats,
                                           .matmul = amx_level::matmul_bfloats};
  return kTable;
}

}  // namespace quarrel
