// Inside quant only: the decoder of one block, an overload a type. `values` takes Block::kWeights floats.
// A product is always formed as (scale * small integer) * value, in that order, because the result's last bit is part
// of the definition.
#pragma once

#include "quant/blocks.h"
#include "quant/type_list.h"

namespace quarrel {

#define QUARREL_TYPE(type, number, name, Block) void decode_block(const Block& block, float* values) noexcept;
QUARREL_WEIGHT_TYPES(QUARREL_TYPE)
#undef QUARREL_TYPE

}  // namespace quarrel
