#include "app/line_screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "text/graphemes.h"

namespace quarrel {
namespace {

constexpr int kUnknown = -1;

// How many bytes both rows begin with, as far as they can stay on the screen as they are: whole characters, and the
// prompt as a whole.
std::size_t common_bytes(const LayoutRow& shown, const LayoutRow& wanted) {
  if (!shown.certain || !wanted.certain || shown.prompt_bytes != wanted.prompt_bytes) return 0;
  const std::string_view one = shown.text;
  const std::string_view other = wanted.text;
  const auto [end, ignored] = std::mismatch(one.begin(), one.end(), other.begin(), other.end());
  const auto same = static_cast<std::size_t>(end - one.begin());
  const std::size_t prompt = wanted.prompt_bytes;
  if (same < prompt) return 0;
  const auto boundary = [&](std::string_view text) {
    return prompt + grapheme_boundary(text.substr(prompt), same - prompt);
  };
  return std::min(boundary(one), boundary(other));
}

}  // namespace

void LineScreen::forget() { *this = {}; }

void LineScreen::distrust(std::size_t rows_above) {
  shown_.clear();
  row_ = rows_above;
  column_ = kUnknown;
  distrusted_ = true;
}

void LineScreen::go_to_row(std::size_t index, std::string& out) {
  const std::size_t last = std::max(shown_.size(), row_ + 1) - 1;
  const std::size_t reachable = std::min(index, last);
  if (reachable < row_) out += fmt::format("\x1b[{}A", row_ - reachable);
  if (reachable > row_) out += fmt::format("\x1b[{}B", reachable - row_);
  if (reachable != row_) column_ = kUnknown;
  // Below the last row there is nothing yet: the screen may have to move up.
  for (std::size_t i = reachable; i < index; ++i) {
    out += "\r\n";
    column_ = 0;
  }
  row_ = index;
}

void LineScreen::go_to_column(const LayoutRow& row, std::size_t bytes, int column, std::string& out) {
  if (column_ == column) return;
  out += '\r';
  // Where terminals disagree on widths, writing the row again finds the place.
  if (!row.certain) {
    out += row.text.substr(0, bytes);
  } else if (column > 0) {
    out += fmt::format("\x1b[{}C", column);
  }
  column_ = row.certain ? column : kUnknown;
}

bool LineScreen::write_row(std::size_t index, const LayoutRow& row, int columns, std::string& out) {
  const bool known = index < shown_.size();
  const std::size_t kept = known ? common_bytes(shown_[index], row) : 0;
  const int column = kept == 0
                         ? 0
                         : row.prompt_columns +
                               text_width(std::string_view(row.text).substr(row.prompt_bytes, kept - row.prompt_bytes));
  go_to_column(row, kept, column, out);
  // At the last column clearing would take the character that stands there, and in a row of doubtful width nobody knows
  // where that is: that one is cleared first.
  const bool empty = !known && !distrusted_;
  const bool covers = known && row.certain && shown_[index].certain && shown_[index].columns <= row.columns;
  const bool full = row.columns >= columns;
  if (!row.certain && !empty) out += "\x1b[K";
  out += std::string_view(row.text).substr(kept);
  if (row.certain && !full && !covers && !empty) out += "\x1b[K";
  column_ = row.certain && !full ? row.columns : kUnknown;
  return kept < row.text.size();
}

std::string LineScreen::show(const LineLayout& layout, TerminalSize size) {
  const auto height = static_cast<std::size_t>(std::max(size.rows, 1));
  first_ = std::min({first_, layout.cursor_row, layout.rows.size() - std::min(height, layout.rows.size())});
  if (layout.cursor_row >= first_ + height) first_ = layout.cursor_row - height + 1;
  const std::size_t count = std::min(height, layout.rows.size() - first_);

  std::string out;
  bool wrote_last = false;
  for (std::size_t i = 0; i < count; ++i) {
    const LayoutRow& row = layout.rows[first_ + i];
    const bool present = i < shown_.size();
    const bool after_written = std::exchange(wrote_last, false);
    if (present && shown_[i] == row) continue;
    const bool goes_on = after_written && layout.rows[first_ + i - 1].wraps && (row.certain || !distrusted_);
    if (!present && goes_on) {
      // Behind a full row the terminal goes on by itself, and remembers that the two belong together.
      if (row.text.empty()) out += " \r";
      row_ = i;
      column_ = 0;
    } else {
      go_to_row(i, out);
    }
    wrote_last = write_row(i, row, size.columns, out);
    if (!present) shown_.push_back(row);
  }
  if (shown_.size() > count) {
    go_to_row(count, out);
    out += "\r\x1b[J";
    column_ = 0;
  } else if (distrusted_ && shown_.back().columns < size.columns) {
    out += "\x1b[J";
  }
  shown_.assign(layout.rows.begin() + static_cast<std::ptrdiff_t>(first_),
                layout.rows.begin() + static_cast<std::ptrdiff_t>(first_ + count));
  distrusted_ = false;
  go_to_row(layout.cursor_row - first_, out);
  go_to_column({.text = layout.before_cursor, .certain = layout.cursor_certain}, layout.before_cursor.size(),
               layout.cursor_column, out);
  return out;
}

std::string LineScreen::show_whole(const LineLayout& layout, TerminalSize size) {
  std::string out;
  go_to_row(0, out);
  out += "\r\x1b[J";
  forget();
  size.rows = static_cast<int>(layout.rows.size());
  return out + show(layout, size);
}

std::string LineScreen::leave() {
  std::string out;
  if (!shown_.empty()) go_to_row(shown_.size() - 1, out);
  return out;
}

}  // namespace quarrel
