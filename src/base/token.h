// The one type that text, scheduling and models share.
#pragma once

#include <cstdint>

namespace quarrel {

using TokenId = std::int32_t;

}  // namespace quarrel
