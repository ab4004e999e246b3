// clang-format off
#include "backend/cpu/simd_avx2.h"
#include "backend/cpu/kernel_table.inl"
// clang-format on

namespace quarrel {

const CpuKernels& avx2_kernels() noexcept {
  static constexpr CpuKernels kTable = avx2_level::make_table("avx2");
  return kTable;
}

}  // namespace quarrel
