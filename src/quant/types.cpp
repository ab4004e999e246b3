#include "quant/types.h"

#include <algorithm>
#include <array>
#include <cassert>

#include "quant/blocks.h"

namespace quarrel {
namespace {

template <typename Block>
constexpr TypeInfo row(QuantType type, std::string_view name) {
  return {type, name, static_cast<std::uint32_t>(Block::kWeights), static_cast<std::uint32_t>(sizeof(Block))};
}

constexpr std::array kTypes = {
    row<BlockF32>(QuantType::f32, "F32"),
    row<BlockF16>(QuantType::f16, "F16"),
    row<BlockQ4_0>(QuantType::q4_0, "Q4_0"),
    row<BlockQ4_1>(QuantType::q4_1, "Q4_1"),
    row<BlockMxfp4Pairs>(QuantType::mxfp4_pairs, "MXFP4_PAIRS"),
    row<BlockQ5_0>(QuantType::q5_0, "Q5_0"),
    row<BlockQ5_1>(QuantType::q5_1, "Q5_1"),
    row<BlockQ8_0>(QuantType::q8_0, "Q8_0"),
    row<BlockQ2K>(QuantType::q2_k, "Q2_K"),
    row<BlockQ3K>(QuantType::q3_k, "Q3_K"),
    row<BlockQ4K>(QuantType::q4_k, "Q4_K"),
    row<BlockQ5K>(QuantType::q5_k, "Q5_K"),
    row<BlockQ6K>(QuantType::q6_k, "Q6_K"),
    row<BlockQ8K>(QuantType::q8_k, "Q8_K"),
    row<BlockIq2Xxs>(QuantType::iq2_xxs, "IQ2_XXS"),
    row<BlockIq2Xs>(QuantType::iq2_xs, "IQ2_XS"),
    row<BlockIq3Xxs>(QuantType::iq3_xxs, "IQ3_XXS"),
    row<BlockIq1S>(QuantType::iq1_s, "IQ1_S"),
    row<BlockIq4Nl>(QuantType::iq4_nl, "IQ4_NL"),
    row<BlockIq3S>(QuantType::iq3_s, "IQ3_S"),
    row<BlockIq2S>(QuantType::iq2_s, "IQ2_S"),
    row<BlockIq4Xs>(QuantType::iq4_xs, "IQ4_XS"),
    row<BlockIq1M>(QuantType::iq1_m, "IQ1_M"),
    row<BlockBf16>(QuantType::bf16, "BF16"),
    row<BlockTq1_0>(QuantType::tq1_0, "TQ1_0"),
    row<BlockTq2_0>(QuantType::tq2_0, "TQ2_0"),
    row<BlockMxfp4>(QuantType::mxfp4, "MXFP4"),
};
static_assert(std::ranges::is_sorted(kTypes, {}, &TypeInfo::type), "find_type halves the list");

constexpr char to_upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

}  // namespace

std::span<const TypeInfo> all_types() noexcept { return kTypes; }

const TypeInfo* find_type(std::uint32_t number) noexcept {
  const auto type = static_cast<QuantType>(number);
  const auto* found = std::ranges::lower_bound(kTypes, type, {}, &TypeInfo::type);
  return found != kTypes.end() && found->type == type ? &*found : nullptr;
}

const TypeInfo& type_info(QuantType type) noexcept {
  const TypeInfo* found = find_type(static_cast<std::uint32_t>(type));
  assert(found != nullptr);
  return *found;
}

const TypeInfo* find_type(std::string_view name) noexcept {
  const auto* found = std::ranges::find_if(
      kTypes, [name](const TypeInfo& info) { return std::ranges::equal(info.name, name, {}, to_upper, to_upper); });
  return found != kTypes.end() ? &*found : nullptr;
}

}  // namespace quarrel
