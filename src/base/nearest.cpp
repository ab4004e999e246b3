#include "base/nearest.h"

#include <algorithm>
#include <array>
#include <utility>

namespace quarrel {
namespace {

char lower(char letter) { return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter; }

bool begins_with(std::string_view text, std::string_view start) {
  const auto same = [](char x, char y) { return lower(x) == lower(y); };
  return text.size() >= start.size() && std::equal(start.begin(), start.end(), text.begin(), same);
}

}  // namespace

std::optional<std::size_t> edit_distance(std::string_view a, std::string_view b, std::size_t bound) {
  if (a.size() > b.size()) std::swap(a, b);
  if (b.size() - a.size() > bound) return std::nullopt;
  bound = std::min(bound, b.size());
  // Row i holds the cost of turning the first i letters of `a` into the first j of `b`. Only cells within `bound` of
  // the diagonal can matter; the others count as `beyond`.
  const std::size_t beyond = bound + 1;
  std::array<std::vector<std::size_t>, 3> rows;  // i - 2, i - 1, i
  for (auto& row : rows) row.assign(b.size() + 1, beyond);
  for (std::size_t j = 0; j <= bound; ++j) rows[2][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::rotate(rows.begin(), rows.begin() + 1, rows.end());
    auto& [two_before, before, row] = rows;
    const std::size_t first = i > bound ? i - bound : 0;
    const std::size_t last = std::min(b.size(), i + bound);
    if (first > 0) row[first - 1] = beyond;
    if (last < b.size()) row[last + 1] = beyond;
    for (std::size_t j = first; j <= last; ++j) {
      if (j == 0) {
        row[0] = i;
        continue;
      }
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      std::size_t cost = before[j - 1] + (same ? 0 : 1);
      cost = std::min({cost, before[j] + 1, row[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1]);
      if (swapped) cost = std::min(cost, two_before[j - 2] + 1);
      row[j] = std::min(cost, beyond);
    }
  }
  const std::size_t distance = rows[2][b.size()];
  return distance <= bound ? std::optional(distance) : std::nullopt;
}

std::vector<std::string> nearest(std::string_view wanted, std::span<const std::string> names, std::size_t most) {
  constexpr std::size_t kLongest = 256;  // nobody mistypes a name longer than this
  if (wanted.empty() || wanted.size() > kLongest) return {};
  const std::size_t bound = std::max<std::size_t>(1, wanted.size() / 3);
  std::vector<std::pair<std::size_t, std::string_view>> found;
  for (const std::string& name : names) {
    if (begins_with(name, wanted)) {
      found.emplace_back(0, name);
    } else if (const auto distance = edit_distance(wanted, name, bound)) {
      found.emplace_back(*distance, name);
    }
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  std::vector<std::string> result;
  for (std::size_t i = 0; i < std::min(most, found.size()); ++i) result.emplace_back(found[i].second);
  return result;
}

}  // namespace quarrel
