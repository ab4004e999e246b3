// Counts and indices of a model are 32-bit integers, which are never negative where memory is concerned.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quarrel {

constexpr std::size_t as_size(std::int32_t value) noexcept { return static_cast<std::size_t>(value); }

}  // namespace quarrel
