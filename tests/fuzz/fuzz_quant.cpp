// Blocks of every weight type. The first byte's lower bits choose the type; with its highest bit clear the rest are
// blocks to decode, with it set they are floats to encode.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "fuzz/targets.h"
#include "quant/decode.h"
#include "quant/encode.h"
#include "quant/types.h"

namespace quarrel::fuzz {
namespace {

constexpr std::size_t kMaxWeights = 4096;  // encoders search

bool all_finite(const std::vector<float>& values) {
  return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
}

void encode_and_check(const TypeInfo& info, const std::vector<float>& values) {
  std::vector<std::byte> blocks(row_bytes(info, values.size()));
  bool refused = false;
  try {
    encode_row(info.type, values.data(), blocks.data(), values.size());
  } catch (const Error&) {
    refused = true;
  }
  require(refused == (!can_encode(info.type) || !all_finite(values)), "what is finite and encodable is encoded");
  if (refused) return;
  std::vector<float> again(values.size());
  decode_row(info.type, blocks.data(), again.data(), again.size());
  require(all_finite(again), "what was encoded decodes to finite values");
}

}  // namespace

void quant_decode(Input input) {
  if (input.empty()) return;
  const auto selector = std::to_integer<std::uint8_t>(input[0]);
  const Input rest = input.subspan(1);
  const TypeInfo& info = all_types()[(selector & 0x7F) % all_types().size()];
  const std::size_t most = kMaxWeights / info.block_weights * info.block_weights;
  if ((selector & 0x80) != 0) {
    const std::size_t weights = std::min(rest.size() / sizeof(float) / info.block_weights * info.block_weights, most);
    std::vector<float> values(weights);
    if (weights > 0) std::memcpy(values.data(), rest.data(), weights * sizeof(float));
    encode_and_check(info, values);
    return;
  }
  const std::size_t weights = std::min(rest.size() / info.block_bytes * info.block_weights, most);
  std::vector<float> values(weights);
  decode_row(info.type, rest.data(), values.data(), weights);
  encode_and_check(info, values);
}

}  // namespace quarrel::fuzz
