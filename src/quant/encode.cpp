#include "quant/encode.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "quant/encode_block.h"

namespace quarrel {
namespace {

// The value farthest from zero, with its sign.
float extreme(const float* values, std::size_t count) noexcept {
  float farthest = 0.0f;
  for (std::size_t i = 0; i < count; ++i) farthest = std::abs(values[i]) > std::abs(farthest) ? values[i] : farthest;
  return farthest;
}

// value = scale * (quant - half_range): the extreme value takes the lowest quant, which has no counterpart above.
template <int half_range>
HalfBits quantise_symmetric(const float* values, std::uint8_t* quants) noexcept {
  const HalfBits stored = half_for_scale(extreme(values, 32) / static_cast<float>(-half_range));
  const float factor = inverse(f16_to_f32(stored));
  for (std::size_t i = 0; i < 32; ++i) {
    quants[i] = static_cast<std::uint8_t>(nearest(values[i] * factor, -half_range, half_range - 1) + half_range);
  }
  return stored;
}

struct ScaleAndMinimum {
  HalfBits scale;
  HalfBits minimum;
};

// value = scale * quant + minimum.
template <int highest>
ScaleAndMinimum quantise_range(const float* values, std::uint8_t* quants) noexcept {
  const auto [low, high] = std::minmax_element(values, values + 32);
  // Divided before the difference is taken, which could overflow.
  const float step = *high / static_cast<float>(highest) - *low / static_cast<float>(highest);
  const ScaleAndMinimum stored = {half_for_scale(step), f32_to_f16_saturating(*low)};
  const float factor = inverse(f16_to_f32(stored.scale));
  const float minimum = f16_to_f32(stored.minimum);
  for (std::size_t i = 0; i < 32; ++i) {
    quants[i] = static_cast<std::uint8_t>(nearest((values[i] - minimum) * factor, 0, highest));
  }
  return stored;
}

void pack_nibbles(const std::uint8_t* quants, std::uint8_t (&nibbles)[16]) noexcept {
  for (std::size_t j = 0; j < 16; ++j) {
    nibbles[j] = static_cast<std::uint8_t>((quants[j] & 15) | (quants[j + 16] & 15) << 4);
  }
}

std::uint32_t pack_fifth_bits(const std::uint8_t* quants) noexcept {
  std::uint32_t bits = 0;
  for (std::size_t j = 0; j < 32; ++j) bits |= (quants[j] >> 4 & 1u) << j;
  return bits;
}

using RowEncoder = void (*)(const float*, std::byte*, std::size_t) noexcept;

template <typename Block>
constexpr bool kHasEncoder = requires(const float* values, Block& block) { encode_block(values, block); };

template <typename Block>
void encode_blocks(const float* values, std::byte* destination, std::size_t weights) noexcept {
  for (std::size_t i = 0; i < weights / Block::kWeights; ++i) {
    Block block;
    encode_block(values + i * Block::kWeights, block);
    std::memcpy(destination + i * sizeof(Block), &block, sizeof(Block));
  }
}

template <typename Block>
constexpr RowEncoder encoder_of() noexcept {
  if constexpr (kHasEncoder<Block>) return encode_blocks<Block>;
  return nullptr;
}

// Null for a type without an encoder.
RowEncoder find_encoder(QuantType type) noexcept {
  switch (type) {
#define QUARREL_TYPE(type, number, name, Block) \
  case QuantType::type: return encoder_of<Block>();
    QUARREL_WEIGHT_TYPES(QUARREL_TYPE)
#undef QUARREL_TYPE
  }
  return nullptr;
}

}  // namespace

void encode_block(const float* values, BlockF32& block) noexcept { block.value = values[0]; }

void encode_block(const float* values, BlockF16& block) noexcept { block.value = f32_to_f16_saturating(values[0]); }

void encode_block(const float* values, BlockBf16& block) noexcept {
  const float largest = bf16_to_f32(0x7f7f);
  block.value = f32_to_bf16(std::clamp(values[0], -largest, largest));
}

void encode_block(const float* values, BlockQ4_0& block) noexcept {
  std::uint8_t quants[32];
  block.scale = quantise_symmetric<8>(values, quants);
  pack_nibbles(quants, block.nibbles);
}

void encode_block(const float* values, BlockQ4_1& block) noexcept {
  std::uint8_t quants[32];
  const ScaleAndMinimum stored = quantise_range<15>(values, quants);
  block.scale = stored.scale;
  block.minimum = stored.minimum;
  pack_nibbles(quants, block.nibbles);
}

void encode_block(const float* values, BlockQ5_0& block) noexcept {
  std::uint8_t quants[32];
  block.scale = quantise_symmetric<16>(values, quants);
  block.fifth_bits = pack_fifth_bits(quants);
  pack_nibbles(quants, block.nibbles);
}

void encode_block(const float* values, BlockQ5_1& block) noexcept {
  std::uint8_t quants[32];
  const ScaleAndMinimum stored = quantise_range<31>(values, quants);
  block.scale = stored.scale;
  block.minimum = stored.minimum;
  block.fifth_bits = pack_fifth_bits(quants);
  pack_nibbles(quants, block.nibbles);
}

void encode_block(const float* values, BlockQ8_0& block) noexcept {
  block.scale = half_for_scale(std::abs(extreme(values, 32)) / 127.0f);
  const float factor = inverse(f16_to_f32(block.scale));
  for (std::size_t i = 0; i < 32; ++i) {
    block.quants[i] = static_cast<std::int8_t>(nearest(values[i] * factor, -127, 127));
  }
}

bool can_encode(QuantType type) noexcept { return find_encoder(type) != nullptr; }

void encode_row(QuantType type, const float* values, std::byte* destination, std::size_t weights) {
  const RowEncoder encode = find_encoder(type);
  if (encode == nullptr) {
    const TypeInfo* known = find_type(static_cast<std::uint32_t>(type));
    fail(ErrorKind::unsupported, "Writing weights as {} is not supported.", known != nullptr ? known->name : "?");
  }
  const TypeInfo& info = type_info(type);
  if (weights % info.block_weights != 0) {
    fail(ErrorKind::bad_input, "A row of {} values cannot be written as {}, which takes {} at a time.", weights,
         info.name, info.block_weights);
  }
  for (std::size_t i = 0; i < weights; ++i) {
    if (!std::isfinite(values[i])) {
      fail(ErrorKind::bad_input, "Value {} of a row to be written as {} is not a finite number.", i, info.name);
    }
  }
  encode(values, destination, weights);
}

}  // namespace quarrel
