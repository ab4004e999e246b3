// What a model's weights can be written as: the encoders' types and two mixes of them, and the rule that gives each
// tensor its own. Constant data and pure functions: any thread may call.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "quant/types.h"

namespace quarrel {

struct TargetType {
  std::string_view name;    // as people write it: "Q8_0", "Q4_K_M"
  QuantType type;           // of most matrices
  QuantType better;         // of those that feel rounding most; the same where it is no mix
  std::uint32_t file_type;  // the number of general.file_type
};

std::span<const TargetType> target_types() noexcept;

// By name, without regard to case. Throws Error(usage) with the nearest names.
const TargetType& find_target_type(std::string_view name);

// Vectors, norms, biases, routers and the tables of positions and token types: they are small, and what they hold is
// added to or multiplied with everything, so they keep their values.
bool keeps_values(std::string_view name, std::size_t dimensions) noexcept;

// A matrix's type, before it is known to fit. `tied` says that the embedding table is the output matrix as well.
QuantType wanted_type(const TargetType& target, std::string_view name, bool tied) noexcept;

// `wanted` where rows of `row` values are whole blocks of it, else a type of about its size with blocks of 32, else
// F16.
QuantType fitting_type(QuantType wanted, std::uint64_t row) noexcept;

}  // namespace quarrel
