// How threads of the CPU device compute: to the nearest, without traps, and with denormals taken and given as zero,
// which would otherwise cost a hundred cycles each. Whatever the program around has set, a step gives the same bits;
// the thread that runs one gets its own mode back. docs/numerics.md says what denormals are worth.
#pragma once

#include <xmmintrin.h>

#include <cstdint>

#include "base/thread_pool.h"

namespace quarrel {

// All exceptions masked (0x1f80), results below the smallest normal number to zero (0x8000), and such operands
// (0x0040).
inline constexpr std::uint32_t kFloatMode = 0x9fc0;

inline constexpr ThreadMode kFloatThreadMode = {
    .enter = []() noexcept -> std::uint32_t {
      const std::uint32_t before = _mm_getcsr();
      _mm_setcsr(kFloatMode);
      return before;
    },
    .leave = [](std::uint32_t before) noexcept { _mm_setcsr(before); },
};

}  // namespace quarrel
