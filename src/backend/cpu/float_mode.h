// How threads of the CPU device compute: to the nearest, without traps, and with denormals taken and given as zero,
// which would otherwise cost a hundred cycles each. Whatever the program around has set, a step gives the same bits;
// the thread that runs one gets its own mode back. docs/numerics.md says what denormals are worth.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <cstdint>

#include "base/thread_pool.h"

namespace quarrel {

// The control register of floating point. `kFloatMode` is the mode above; `kFloatFlags` are the bits that report what
// has happened, where they share the register.
#if defined(__x86_64__)
// All exceptions masked (0x1f80), results below the smallest normal number to zero (0x8000), and such operands
// (0x0040).
inline constexpr std::uint32_t kFloatMode = 0x9fc0;
inline constexpr std::uint32_t kFloatFlags = 0x003f;
inline std::uint32_t float_control() noexcept { return _mm_getcsr(); }
inline void set_float_control(std::uint32_t mode) noexcept { _mm_setcsr(mode); }
#elif defined(__aarch64__)
// FPCR: bit 24 flushes operands and results; no trap is enabled, and rounding is to the nearest.
inline constexpr std::uint32_t kFloatMode = 1u << 24;
inline constexpr std::uint32_t kFloatFlags = 0;
inline std::uint32_t float_control() noexcept {
  std::uint64_t mode = 0;
  asm volatile("mrs %0, fpcr" : "=r"(mode));
  return static_cast<std::uint32_t>(mode);
}
inline void set_float_control(std::uint32_t mode) noexcept {
  asm volatile("msr fpcr, %0" : : "r"(std::uint64_t{mode}) : "memory");
}
#else
#error "how this processor is told to flush denormals is not known here"
#endif

inline constexpr ThreadMode kFloatThreadMode = {
    .enter = []() noexcept -> std::uint32_t {
      const std::uint32_t before = float_control();
      set_float_control(kFloatMode);
      return before;
    },
    .leave = [](std::uint32_t before) noexcept { set_float_control(before); },
};

}  // namespace quarrel
