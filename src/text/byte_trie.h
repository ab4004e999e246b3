// A prefix tree over byte strings, packed into one array: how the tokenizers find the longest word at a position. Built
// once, then immutable: any thread may walk it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace quarrel {

class ByteTrie {
 public:
  using Entry = std::pair<std::string_view, std::int32_t>;  // a key, and a value >= 0

  ByteTrie() = default;
  // Empty keys are skipped; of equal keys the lowest value stays. The keys need not outlive the call.
  explicit ByteTrie(std::vector<Entry> entries);

  static constexpr std::uint32_t kRoot = 0;
  static constexpr std::uint32_t kNone = 0;  // the root is nobody's child

  std::uint32_t child(std::uint32_t node, char label) const noexcept;
  std::int32_t value(std::uint32_t node) const noexcept { return nodes_[node].value; }  // -1: no key ends here
  bool empty() const noexcept { return nodes_.size() <= 1; }

 private:
  struct Node {
    std::uint32_t first_child = 0;
    std::int32_t value = -1;
    std::uint16_t children = 0;
    std::uint8_t label = 0;
  };
  std::vector<Node> nodes_{Node{}};
};

}  // namespace quarrel
