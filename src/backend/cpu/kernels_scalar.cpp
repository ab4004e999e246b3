// clang-format off
#include "backend/cpu/simd_scalar.h"
#include "backend/cpu/kernel_table.inl"
// clang-format on

namespace quarrel {

const CpuKernels& scalar_kernels() noexcept {
  static constexpr CpuKernels kTable = scalar_level::make_table("scalar");
  return kTable;
}

}  // namespace quarrel
