// clang-format off
#include "backend/cpu/simd_avx512.h"
#include "backend/cpu/kernel_table.inl"
// clang-format on

namespace quarrel {

const CpuKernels& avx512_kernels() noexcept {
  static constexpr CpuKernels kTable = avx512_level::make_table("avx512");
  return kTable;
}

}  // namespace quarrel
