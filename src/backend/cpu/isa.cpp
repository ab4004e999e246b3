#include "backend/cpu/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "backend/cpu/amx_tiles.h"
#include "base/error.h"

namespace quarrel {

#if defined(__x86_64__)
namespace {

// AVX-512's conversion to bf16, which the tiles' kernels use.
bool converts_to_bf16() {
  unsigned int a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & (1u << 5)) != 0;
}

void add_vector_levels(std::vector<IsaLevel>& levels) {
  // The compiler's run-time support also asks the operating system whether it saves the wide registers.
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  if (avx2) levels.push_back(IsaLevel::avx2);
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512vnni");
  if (avx2 && avx512) levels.push_back(IsaLevel::avx512);
  const TileSupport tiles = request_tiles();
  if (avx2 && avx512 && converts_to_bf16() && tiles.int8 && tiles.bf16) levels.push_back(IsaLevel::amx);
}

const CpuKernels& vector_kernels(IsaLevel level) noexcept {
  // Put together here: nothing compiled for AMX may run before it is known to be there.
  static const CpuKernels kAmx = [] {
    const AmxKernels& amx = amx_kernels();
    CpuKernels table = avx512_kernels();
    table.name = "amx";
    table.to_bf16_row = amx.to_bf16_row;
    table.amx_scratch_bytes = amx.scratch_bytes;
    for (std::size_t i = 0; i < kTypeCount; ++i) {
      table.types[i].gemm_int8_amx = amx.types[i].gemm_int8_amx;
      table.types[i].gemm_bf16_amx = amx.types[i].gemm_bf16_amx;
    }
    return table;
  }();
  if (level == IsaLevel::amx) return kAmx;
  return level == IsaLevel::avx512 ? avx512_kernels() : avx2_kernels();
}

}  // namespace

TileSupport request_tiles() {
  unsigned int a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return {};
  constexpr unsigned int kBf16 = 1u << 22;
  constexpr unsigned int kTiles = 1u << 24;
  constexpr unsigned int kInt8 = 1u << 25;
  if ((d & kTiles) == 0) return {};
  // The system refuses what it does not save for a thread, so its yes is all that there is to know.
  constexpr long kRequestPermission = 0x1023;
  constexpr long kTileData = 18;
  if (::syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0) return {};
  return {.int8 = (d & kInt8) != 0, .bf16 = (d & kBf16) != 0};
}
#else
// Other processors have no kernels of their own yet: the scalar level is all there is.
static void add_vector_levels(std::vector<IsaLevel>&) {}
static const CpuKernels& vector_kernels(IsaLevel) noexcept { return scalar_kernels(); }
TileSupport request_tiles() { return {}; }
#endif

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
  std::vector<IsaLevel> levels = {IsaLevel::scalar};
  add_vector_levels(levels);
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

const TypeKernels& CpuKernels::of(QuantType type) const noexcept { return types[type_index(type)]; }

const CpuKernels& kernels_of(IsaLevel level) noexcept {
  return level == IsaLevel::scalar ? scalar_kernels() : vector_kernels(level);
}

}  // namespace quarrel
