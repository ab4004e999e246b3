#include "backend/cpu/isa.h"

#include "base/error.h"

namespace quarrel {

std::string_view level_name(IsaLevel level) noexcept {
  switch (level) {
    case IsaLevel::scalar: return "scalar";
    case IsaLevel::avx2: return "avx2";
    case IsaLevel::avx512: return "avx512";
  }
  return "unknown";
}

std::vector<IsaLevel> available_levels() {
  // The compiler's run-time support also asks the operating system whether it saves the wide registers.
  __builtin_cpu_init();
  std::vector<IsaLevel> levels = {IsaLevel::scalar};
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  if (avx2) levels.push_back(IsaLevel::avx2);
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512vnni");
  if (avx2 && avx512) levels.push_back(IsaLevel::avx512);
  return levels;
}

IsaLevel choose_level(std::string_view forced) {
  const std::vector<IsaLevel> levels = available_levels();
  if (forced.empty()) return levels.back();
  for (const IsaLevel level : levels) {
    if (level_name(level) == forced) return level;
  }
  for (const IsaLevel level : {IsaLevel::scalar, IsaLevel::avx2, IsaLevel::avx512}) {
    if (level_name(level) == forced) {
      fail(ErrorKind::unsupported, "this processor does not have the instruction set level '{}'", forced);
    }
  }
  fail(ErrorKind::usage, "'{}' is not an instruction set level; there are scalar, avx2 and avx512", forced);
}

const CpuKernels& kernels_of(IsaLevel level) noexcept {
  switch (level) {
    case IsaLevel::avx512: return avx512_kernels();
    case IsaLevel::avx2: return avx2_kernels();
    case IsaLevel::scalar: break;
  }
  return scalar_kernels();
}

}  // namespace quarrel
