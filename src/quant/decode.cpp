#include "quant/decode.h"

#include <cassert>
#include <cstring>

#include "quant/decode_block.h"

namespace quarrel {

void decode_block(const BlockF32& block, float* values) noexcept { values[0] = block.value; }

void decode_block(const BlockF16& block, float* values) noexcept { values[0] = f16_to_f32(block.value); }

void decode_block(const BlockBf16& block, float* values) noexcept { values[0] = bf16_to_f32(block.value); }

void decode_block(const BlockQ4_0& block, float* values) noexcept {
  const float scale = f16_to_f32(block.scale);
  for (std::size_t j = 0; j < 16; ++j) {
    values[j] = scale * static_cast<float>((block.nibbles[j] & 15) - 8);
    values[j + 16] = scale * static_cast<float>((block.nibbles[j] >> 4) - 8);
  }
}

void decode_block(const BlockQ4_1& block, float* values) noexcept {
  const float scale = f16_to_f32(block.scale);
  const float minimum = f16_to_f32(block.minimum);
  for (std::size_t j = 0; j < 16; ++j) {
    values[j] = scale * static_cast<float>(block.nibbles[j] & 15) + minimum;
    values[j + 16] = scale * static_cast<float>(block.nibbles[j] >> 4) + minimum;
  }
}

void decode_block(const BlockQ5_0& block, float* values) noexcept {
  const float scale = f16_to_f32(block.scale);
  for (std::size_t j = 0; j < 16; ++j) {
    const auto first = static_cast<int>((block.nibbles[j] & 15u) | (block.fifth_bits >> j & 1u) << 4);
    const auto second = static_cast<int>((block.nibbles[j] >> 4) | (block.fifth_bits >> (j + 16) & 1u) << 4);
    values[j] = scale * static_cast<float>(first - 16);
    values[j + 16] = scale * static_cast<float>(second - 16);
  }
}

void decode_block(const BlockQ5_1& block, float* values) noexcept {
  const float scale = f16_to_f32(block.scale);
  const float minimum = f16_to_f32(block.minimum);
  for (std::size_t j = 0; j < 16; ++j) {
    const std::uint32_t first = (block.nibbles[j] & 15u) | (block.fifth_bits >> j & 1u) << 4;
    const std::uint32_t second = (block.nibbles[j] >> 4) | (block.fifth_bits >> (j + 16) & 1u) << 4;
    values[j] = scale * static_cast<float>(first) + minimum;
    values[j + 16] = scale * static_cast<float>(second) + minimum;
  }
}

void decode_block(const BlockQ8_0& block, float* values) noexcept {
  const float scale = f16_to_f32(block.scale);
  for (std::size_t j = 0; j < 32; ++j) values[j] = scale * static_cast<float>(block.quants[j]);
}

namespace {

// A block is copied out before it is read, so the source may lie anywhere.
template <typename Block>
void decode_blocks(const std::byte* source, float* values, std::size_t weights) noexcept {
  assert(weights % Block::kWeights == 0);
  for (std::size_t i = 0; i < weights / Block::kWeights; ++i) {
    Block block;
    std::memcpy(&block, source + i * sizeof(Block), sizeof(Block));
    decode_block(block, values + i * Block::kWeights);
  }
}

}  // namespace

void decode_row(QuantType type, const std::byte* source, float* values, std::size_t weights) noexcept {
  switch (type) {
#define QUARREL_TYPE(type, number, name, Block) \
  case QuantType::type: return decode_blocks<Block>(source, values, weights);
    QUARREL_WEIGHT_TYPES(QUARREL_TYPE)
#undef QUARREL_TYPE
  }
}

}  // namespace quarrel
