#include "text/special_matcher.h"

#include <algorithm>

namespace quarrel {
namespace {

bool is_ascii_space(char c) noexcept { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

SpecialMatcher::SpecialMatcher(const Vocabulary& vocabulary) {
  std::vector<ByteTrie::Entry> entries;
  for (std::size_t i = 0; i < vocabulary.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const TokenKind kind = vocabulary.kind(id);
    const std::string_view text = vocabulary.text(id);
    const bool always = kind == TokenKind::user_defined;
    if (!always && kind != TokenKind::control && kind != TokenKind::unknown) continue;
    if (text.empty() || text.size() > kLongest) continue;
    entries.emplace_back(text, static_cast<std::int32_t>(specials_.size()));
    specials_.push_back({id, always, std::ranges::binary_search(vocabulary.strips_left, id),
                         std::ranges::binary_search(vocabulary.strips_right, id)});
    begins_[static_cast<std::uint8_t>(text[0])] = true;
  }
  trie_ = ByteTrie(std::move(entries));
}

std::vector<TextFragment> SpecialMatcher::cut(std::string_view text, bool parse_special,
                                              std::span<const TextRange> literal, std::uint64_t& steps) const {
  std::vector<TextFragment> fragments;
  std::size_t plain = 0;         // where the plain text before `at` begins
  std::size_t next_literal = 0;  // the first range that ends after `at`
  for (std::size_t at = 0; at < text.size();) {
    ++steps;
    if (!begins_[static_cast<std::uint8_t>(text[at])]) {
      ++at;
      continue;
    }
    while (next_literal < literal.size() &&
           (literal[next_literal].end <= at || literal[next_literal].begin == literal[next_literal].end)) {
      ++next_literal;
    }
    // Control tokens must end before the next literal range begins.
    const std::size_t control_end = next_literal < literal.size() ? literal[next_literal].begin : text.size();
    const Special* best = nullptr;
    std::size_t best_end = at;
    std::uint32_t node = ByteTrie::kRoot;
    for (std::size_t end = at; end < text.size();) {
      node = trie_.child(node, text[end++]);
      ++steps;
      if (node == ByteTrie::kNone) break;
      if (trie_.value(node) < 0) continue;
      const Special& special = specials_[static_cast<std::size_t>(trie_.value(node))];
      if (special.always || (parse_special && end <= control_end)) {
        best = &special;
        best_end = end;
      }
    }
    if (best == nullptr) {
      ++at;
      continue;
    }
    std::size_t plain_end = at;
    if (best->strips_left) {
      while (plain_end > plain && is_ascii_space(text[plain_end - 1])) --plain_end;
    }
    if (plain_end > plain) fragments.push_back({{plain, plain_end}, std::nullopt});
    fragments.push_back({{at, best_end}, best->id});
    at = best_end;
    if (best->strips_right) {
      while (at < text.size() && is_ascii_space(text[at])) ++at;
    }
    plain = at;
  }
  if (plain < text.size()) fragments.push_back({{plain, text.size()}, std::nullopt});
  return fragments;
}

}  // namespace quarrel
