// The values of the toy models' weights: a pure function of seed, tensor name and shape, the same on every machine.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace quarrel::test {

// One tensor's values. Every part of a block matters in them: norms are not ones, biases not zeros, routers have no
// ties. `embedding_gain` scales the token, type and position embeddings.
std::vector<float> toy_weights(std::uint64_t seed, std::string_view name, std::span<const std::uint64_t> shape,
                               double embedding_gain);

}  // namespace quarrel::test
