// Finds an element of a list by its name: four bytes an element, because hostile files bring many tiny ones and memory
// must stay in proportion to the file. The list stays with its owner, who says how to get the name of element i.
// Immutable after `build`: any thread may read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string_view>
#include <vector>

namespace quarrel {

class NameIndex {
 public:
  // Gives the first element that repeats an earlier one's name; empty when all names differ.
  template <typename NameOf>
  std::optional<std::size_t> build(std::size_t count, const NameOf& name_of) {
    order_.resize(count);
    std::iota(order_.begin(), order_.end(), 0U);
    std::sort(order_.begin(), order_.end(), [&](std::uint32_t a, std::uint32_t b) {
      const int order = std::string_view(name_of(a)).compare(name_of(b));
      return order != 0 ? order < 0 : a < b;
    });
    std::optional<std::size_t> repeated;
    for (std::size_t i = 1; i < order_.size(); ++i) {
      if (name_of(order_[i - 1]) != name_of(order_[i])) continue;
      if (!repeated || order_[i] < *repeated) repeated = order_[i];
    }
    return repeated;
  }

  template <typename NameOf>
  std::optional<std::size_t> find(std::string_view name, const NameOf& name_of) const {
    const auto less = [&](std::uint32_t index, std::string_view wanted) { return name_of(index) < wanted; };
    const auto at = std::lower_bound(order_.begin(), order_.end(), name, less);
    if (at == order_.end() || name_of(*at) != name) return std::nullopt;
    return *at;
  }

 private:
  std::vector<std::uint32_t> order_;  // sorted by name
};

}  // namespace quarrel
