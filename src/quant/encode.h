// Encoders, for conversion, tests and caches: nearest values by straightforward search, not the last word in quality.
// Pure functions, safe from any thread.
#pragma once

#include <cstddef>

#include "quant/half.h"
#include "quant/types.h"

namespace quarrel {

// True for the types `encode_row` can write.
bool can_encode(QuantType type) noexcept;

// Encodes `weights` values (a multiple of the block) into `destination`, row_bytes() long, which need not be aligned.
// Throws Error(unsupported) for a type without an encoder and Error(bad_input) for a value that is not finite or a
// length that is not a multiple; `destination` is then untouched. What it writes always decodes to finite values:
// those beyond the type's range go to the nearest it has.
void encode_row(QuantType type, const float* values, std::byte* destination, std::size_t weights);

}  // namespace quarrel
