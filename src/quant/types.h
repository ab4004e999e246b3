// The list of weight types: one row and one block struct a type. A type's number is what GGUF files carry.
// To add a type: an enumerator here, a struct with its size assert in blocks.h, a row in types.cpp, a decode_block of
// the struct in one of the decode files and its line in decode_row. Constant data: safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace quarrel {

// clang-format off
enum class QuantType : std::uint32_t {
  f32 = 0, f16 = 1, q4_0 = 2, q4_1 = 3, mxfp4_pairs = 4, q5_0 = 6, q5_1 = 7, q8_0 = 8,
  q2_k = 10, q3_k = 11, q4_k = 12, q5_k = 13, q6_k = 14, q8_k = 15,
  iq2_xxs = 16, iq2_xs = 17, iq3_xxs = 18, iq1_s = 19, iq4_nl = 20, iq3_s = 21, iq2_s = 22, iq4_xs = 23,
  iq1_m = 29, bf16 = 30, tq1_0 = 34, tq2_0 = 35, mxfp4 = 39,
};
// clang-format on

struct TypeInfo {
  QuantType type;
  std::string_view name;        // as people write it: "Q4_K"
  std::uint32_t block_weights;  // weights a block
  std::uint32_t block_bytes;    // bytes a block
};

// Every known type, in the order of its number.
std::span<const TypeInfo> all_types() noexcept;

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
