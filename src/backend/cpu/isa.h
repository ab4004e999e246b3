// Instruction-set levels: what this machine has, and which one runs. Chosen once when a device is made.
#pragma once

#include <string_view>
#include <vector>

#include "backend/cpu/kernels.h"

namespace quarrel {

enum class IsaLevel { scalar, avx2, avx512, amx };

std::string_view level_name(IsaLevel level) noexcept;

// Levels that the processor and the operating system support, best last. `scalar` is always there.
std::vector<IsaLevel> available_levels();

// The level of that name, or the best one for an empty name. Throws Error(usage) for an unknown name and
// Error(unsupported) for a level this machine lacks: a forced choice is never replaced in silence.
IsaLevel choose_level(std::string_view forced);

const CpuKernels& kernels_of(IsaLevel level) noexcept;

}  // namespace quarrel
