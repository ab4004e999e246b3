#include "quant/types.h"

#include <algorithm>
#include <array>
#include <cassert>

#include "quant/blocks.h"

namespace quarrel {
namespace {

constexpr std::array kTypes = {
#define QUARREL_TYPE(type, number, name, Block) \
  TypeInfo{QuantType::type, name, std::uint32_t{Block::kWeights}, std::uint32_t{sizeof(Block)}},
    QUARREL_WEIGHT_TYPES(QUARREL_TYPE)
#undef QUARREL_TYPE
};
static_assert(std::ranges::is_sorted(kTypes, {}, &TypeInfo::type), "find_type halves the list");

constexpr char to_upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

}  // namespace

static_assert(kTypes.size() == kTypeCount);

std::span<const TypeInfo> all_types() noexcept { return kTypes; }

std::size_t type_index(QuantType type) noexcept { return static_cast<std::size_t>(&type_info(type) - kTypes.data()); }

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
