// The weight types: numbers, names and sizes of what type_list.h lists. A type's number is what GGUF files carry.
// Constant data: safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "quant/type_list.h"

namespace quarrel {

enum class QuantType : std::uint32_t {
#define QUARREL_TYPE(type, number, name, Block) type = (number),
  QUARREL_WEIGHT_TYPES(QUARREL_TYPE)
#undef QUARREL_TYPE
};

inline constexpr std::size_t kTypeCount =
#define QUARREL_TYPE(type, number, name, Block) +1
    QUARREL_WEIGHT_TYPES(QUARREL_TYPE);
#undef QUARREL_TYPE

struct TypeInfo {
  QuantType type;
  std::string_view name;        // as people write it: "Q4_K"
  std::uint32_t block_weights;  // weights a block
  std::uint32_t block_bytes;    // bytes a block
};

// Every known type, in the order of its number.
std::span<const TypeInfo> all_types() noexcept;

// A type's place in all_types().
std::size_t type_index(QuantType type) noexcept;

// The row of a type's number as a file carries it; null for a number nobody here knows.
const TypeInfo* find_type(std::uint32_t number) noexcept;

// The row of a known type.
const TypeInfo& type_info(QuantType type) noexcept;

// By name, without regard to case ("q4_k", "Q4_K"); null if there is none.
const TypeInfo* find_type(std::string_view name) noexcept;

// Bytes of a row of `weights` values; `weights` must be a multiple of the block.
inline std::size_t row_bytes(const TypeInfo& info, std::size_t weights) noexcept {
  return weights / info.block_weights * info.block_bytes;
}

}  // namespace quarrel
