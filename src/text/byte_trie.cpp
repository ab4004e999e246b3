#include "text/byte_trie.h"

#include <algorithm>

namespace quarrel {

ByteTrie::ByteTrie(std::vector<Entry> entries) {
  std::erase_if(entries, [](const Entry& entry) { return entry.first.empty(); });
  std::sort(entries.begin(), entries.end());
  entries.erase(
      std::unique(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.first == b.first; }),
      entries.end());

  // Breadth first, so that the children of a node lie side by side in the order of their labels.
  struct Range {
    std::size_t begin, end;
  };
  std::vector<Range> keys_of{{0, entries.size()}};
  std::vector<std::size_t> depth_of{0};
  for (std::size_t at = 0; at < nodes_.size(); ++at) {
    auto [begin, end] = keys_of[at];
    const std::size_t depth = depth_of[at];
    if (begin < end && entries[begin].first.size() == depth) nodes_[at].value = entries[begin++].second;
    nodes_[at].first_child = static_cast<std::uint32_t>(nodes_.size());
    while (begin < end) {
      const char label = entries[begin].first[depth];
      std::size_t stop = begin;
      while (stop < end && entries[stop].first[depth] == label) ++stop;
      nodes_.push_back({.first_child = 0, .value = -1, .children = 0, .label = static_cast<std::uint8_t>(label)});
      keys_of.push_back({begin, stop});
      depth_of.push_back(depth + 1);
      ++nodes_[at].children;
      begin = stop;
    }
  }
}

std::uint32_t ByteTrie::child(std::uint32_t node, char label) const noexcept {
  const Node& parent = nodes_[node];
  const auto wanted = static_cast<std::uint8_t>(label);
  const auto first = nodes_.begin() + parent.first_child;
  const auto last = first + parent.children;
  const auto found =
      std::lower_bound(first, last, wanted, [](const Node& child, std::uint8_t key) { return child.label < key; });
  return found != last && found->label == wanted ? static_cast<std::uint32_t>(found - nodes_.begin()) : kNone;
}

}  // namespace quarrel
