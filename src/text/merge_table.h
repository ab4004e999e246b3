// The merges of a BPE vocabulary: which symbol two neighbours become, and how early. An open-addressing hash table,
// since every pair of every text asks it. Filled while loading, then immutable: any thread may ask.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

namespace quarrel {

using SymbolId = std::uint32_t;
inline constexpr SymbolId kNoSymbol = std::numeric_limits<SymbolId>::max();

struct Merge {
  SymbolId left = kNoSymbol;  // kNoSymbol: a free place
  SymbolId right = kNoSymbol;
  std::uint32_t rank = 0;
  SymbolId merged = kNoSymbol;
};

class MergeTable {
 public:
  explicit MergeTable(std::size_t count) : places_(std::bit_ceil(count * 2 + 2)) {}

  // At most `count` times. Of equal pairs the first stays.
  void add(SymbolId left, SymbolId right, std::uint32_t rank, SymbolId merged) {
    Merge& place = places_[locate(left, right)];
    if (place.left == kNoSymbol) place = {left, right, rank, merged};
  }

  // Null when the two do not merge.
  const Merge* find(SymbolId left, SymbolId right) const noexcept {
    if (left == kNoSymbol || right == kNoSymbol) return nullptr;
    const Merge& place = places_[locate(left, right)];
    return place.left == kNoSymbol ? nullptr : &place;
  }

 private:
  // The pair's place, or the free one where it would go: the table is never full.
  std::size_t locate(SymbolId left, SymbolId right) const noexcept {
    std::uint64_t hash = (static_cast<std::uint64_t>(left) << 32 | right) * 0x9E3779B97F4A7C15U;
    hash = (hash ^ (hash >> 32)) * 0xD6E8FEB86659FD93U;
    std::size_t at = (hash ^ (hash >> 32)) & (places_.size() - 1);
    while (places_[at].left != kNoSymbol && (places_[at].left != left || places_[at].right != right)) {
      at = (at + 1) & (places_.size() - 1);
    }
    return at;
  }

  std::vector<Merge> places_;
};

}  // namespace quarrel
