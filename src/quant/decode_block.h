// Inside quant only: the decoder of one block, an overload a type. `values` takes Block::kWeights floats.
// A product is always formed as (scale * small integer) * value, in that order, because the result's last bit is part
// of the definition.
#pragma once

#include "quant/blocks.h"

namespace quarrel {

// decode.cpp
void decode_block(const BlockF32& block, float* values) noexcept;
void decode_block(const BlockF16& block, float* values) noexcept;
void decode_block(const BlockBf16& block, float* values) noexcept;
void decode_block(const BlockQ4_0& block, float* values) noexcept;
void decode_block(const BlockQ4_1& block, float* values) noexcept;
void decode_block(const BlockQ5_0& block, float* values) noexcept;
void decode_block(const BlockQ5_1& block, float* values) noexcept;
void decode_block(const BlockQ8_0& block, float* values) noexcept;

// decode_k.cpp
void decode_block(const BlockQ2K& block, float* values) noexcept;
void decode_block(const BlockQ3K& block, float* values) noexcept;
void decode_block(const BlockQ4K& block, float* values) noexcept;
void decode_block(const BlockQ5K& block, float* values) noexcept;
void decode_block(const BlockQ6K& block, float* values) noexcept;
void decode_block(const BlockQ8K& block, float* values) noexcept;
void decode_block(const BlockTq1_0& block, float* values) noexcept;
void decode_block(const BlockTq2_0& block, float* values) noexcept;

// decode_iq.cpp
void decode_block(const BlockIq4Nl& block, float* values) noexcept;
void decode_block(const BlockIq4Xs& block, float* values) noexcept;
void decode_block(const BlockMxfp4& block, float* values) noexcept;
void decode_block(const BlockMxfp4Pairs& block, float* values) noexcept;
void decode_block(const BlockIq2Xxs& block, float* values) noexcept;
void decode_block(const BlockIq2Xs& block, float* values) noexcept;
void decode_block(const BlockIq2S& block, float* values) noexcept;
void decode_block(const BlockIq3Xxs& block, float* values) noexcept;
void decode_block(const BlockIq3S& block, float* values) noexcept;
void decode_block(const BlockIq1S& block, float* values) noexcept;
void decode_block(const BlockIq1M& block, float* values) noexcept;

}  // namespace quarrel
