#include "backend/cpu/isa.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"

namespace quarrel {
namespace {

// Tiles of bf16 and int8 numbers, and the conversion to bf16.
bool has_amx() {
  unsigned int a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned int kTiles = (1u << 22) | (1u << 24) | (1u << 25);
  if ((d & kTiles) != kTiles) return false;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & (1u << 5)) != 0;
}

// The system saves a thread's tiles only for a process that has asked for it. Asking again changes nothing.
bool tiles_permitted() {
  constexpr long kRequestPermission = 0x1023;
  constexpr long kTileData = 18;
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

std::string_view level_name(IsaLevel level) noexcept {
  switch (level) {
    case IsaLevel::scalar: return "scalar";
    case IsaLevel::avx2: return "avx2";
    case IsaLevel::avx512: return "avx512";
    case IsaLevel::amx: return "amx";
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
  if (avx2 && avx512 && has_amx() && tiles_permitted()) levels.push_back(IsaLevel::amx);
  return levels;
}

IsaLevel choose_level(std::string_view forced) {
  const std::vector<IsaLevel> levels = available_levels();
  if (forced.empty()) return levels.back();
  for (const IsaLevel level : levels) {
    if (level_name(level) == forced) return level;
  }
  for (const IsaLevel level : {IsaLevel::scalar, IsaLevel::avx2, IsaLevel::avx512, IsaLevel::amx}) {
    if (level_name(level) == forced) {
      fail(ErrorKind::unsupported, "this processor does not have the instruction set level '{}'", forced);
    }
  }
  fail(ErrorKind::usage, "'{}' is not an instruction set level; there are scalar, avx2, avx512 and amx", forced);
}

const CpuKernels& kernels_of(IsaLevel level) noexcept {
  // Put together here: nothing compiled for AMX may run before it is known to be there.
  static const CpuKernels kAmx = [] {
    CpuKernels table = avx512_kernels();
    table.name = "amx";
    table.bfloat = amx_tiles();
    return table;
  }();
  switch (level) {
    case IsaLevel::amx: return kAmx;
    case IsaLevel::avx512: return avx512_kernels();
    case IsaLevel::avx2: return avx2_kernels();
    case IsaLevel::scalar: break;
  }
  return scalar_kernels();
}

}  // namespace quarrel
