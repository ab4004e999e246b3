// Scalar decoding of every type: the definition that every faster kernel is measured against. Called by the reference
// backend, by conversion and by tests. Pure functions, safe from any thread.
#pragma once

#include <cstddef>

#include "quant/half.h"
#include "quant/types.h"

namespace quarrel {

// Decodes `weights` values (a multiple of the type's block) from `source`, which need not be aligned. Any bytes decode
// without undefined behaviour; scales that are not finite give values that are not finite.
void decode_row(QuantType type, const std::byte* source, float* values, std::size_t weights) noexcept;

}  // namespace quarrel
