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
    case QuantType::f32: return decode_blocks<BlockF32>(source, values, weights);
    case QuantType::f16: return decode_blocks<BlockF16>(source, values, weights);
    case QuantType::bf16: return decode_blocks<BlockBf16>(source, values, weights);
    case QuantType::q4_0: return decode_blocks<BlockQ4_0>(source, values, weights);
    case QuantType::q4_1: return decode_blocks<BlockQ4_1>(source, values, weights);
    case QuantType::q5_0: return decode_blocks<BlockQ5_0>(source, values, weights);
    case QuantType::q5_1: return decode_blocks<BlockQ5_1>(source, values, weights);
    case QuantType::q8_0: return decode_blocks<BlockQ8_0>(source, values, weights);
    case QuantType::q2_k: return decode_blocks<BlockQ2K>(source, values, weights);
    case QuantType::q3_k: return decode_blocks<BlockQ3K>(source, values, weights);
    case QuantType::q4_k: return decode_blocks<BlockQ4K>(source, values, weights);
    case QuantType::q5_k: return decode_blocks<BlockQ5K>(source, values, weights);
    case QuantType::q6_k: return decode_blocks<BlockQ6K>(source, values, weights);
    case QuantType::q8_k: return decode_blocks<BlockQ8K>(source, values, weights);
    case QuantType::tq1_0: return decode_blocks<BlockTq1_0>(source, values, weights);
    case QuantType::tq2_0: return decode_blocks<BlockTq2_0>(source, values, weights);
    case QuantType::iq4_nl: return decode_blocks<BlockIq4Nl>(source, values, weights);
    case QuantType::iq4_xs: return decode_blocks<BlockIq4Xs>(source, values, weights);
    case QuantType::mxfp4: return decode_blocks<BlockMxfp4>(source, values, weights);
    case QuantType::mxfp4_pairs: return decode_blocks<BlockMxfp4Pairs>(source, values, weights);
    case QuantType::iq2_xxs: return decode_blocks<BlockIq2Xxs>(source, values, weights);
    case QuantType::iq2_xs: return decode_blocks<BlockIq2Xs>(source, values, weights);
    case QuantType::iq2_s: return decode_blocks<BlockIq2S>(source, values, weights);
    case QuantType::iq3_xxs: return decode_blocks<BlockIq3Xxs>(source, values, weights);
    case QuantType::iq3_s: return decode_blocks<BlockIq3S>(source, values, weights);
    case QuantType::iq1_s: return decode_blocks<BlockIq1S>(source, values, weights);
    case QuantType::iq1_m: return decode_blocks<BlockIq1M>(source, values, weights);
  }
}

}  // namespace quarrel
