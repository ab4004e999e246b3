#include "editor_screen.h"

#include <algorithm>
#include <stdexcept>

#include "text/graphemes.h"
#include "text/unicode.h"

namespace quarrel::test {

Screen::Screen(int columns, int rows, Widths widths)
    : columns_(columns), rows_(rows), widths_(widths), cells_(static_cast<std::size_t>(rows), blank()) {}

void Screen::line_feed() {
  if (++row_ < rows_) return;
  row_ = rows_ - 1;
  ++scrolled_;
  cells_.erase(cells_.begin());
  cells_.push_back(blank());
}

void Screen::erase_line_from(int column) {
  Row& row = cells_[static_cast<std::size_t>(row_)];
  // A full row's cursor stands on its last cell.
  std::fill(row.begin() + std::min(column, columns_ - 1), row.end(), " ");
}

void Screen::put(std::string_view cluster, int width) {
  if (width == 0) {
    // Joins the cell before it.
    if (column_ == 0) return;
    Row& row = cells_[static_cast<std::size_t>(row_)];
    std::size_t cell = static_cast<std::size_t>(column_) - 1;
    while (cell > 0 && row[cell].empty()) --cell;
    row[cell] += cluster;
    return;
  }
  if (column_ + width > columns_) {
    column_ = 0;
    line_feed();
  }
  Row& row = cells_[static_cast<std::size_t>(row_)];
  row[static_cast<std::size_t>(column_)] = cluster;
  for (int i = 1; i < width && column_ + i < columns_; ++i) row[static_cast<std::size_t>(column_ + i)].clear();
  column_ = std::min(column_ + width, columns_);
}

std::size_t Screen::control_sequence(std::string_view bytes) {
  const std::size_t end = bytes.find_first_not_of("0123456789;?", 2);
  if (bytes.size() < 2 || bytes[1] != '[' || end == std::string_view::npos)
    throw std::runtime_error("unknown sequence");
  const std::string arguments(bytes.substr(2, end - 2));
  const char kind = bytes[end];
  if (kind == 'm' || ((kind == 'h' || kind == 'l') && arguments == "?2004")) return end + 1;
  const int count = arguments.empty() ? 1 : std::stoi(arguments);
  const int column = cursor_column();
  switch (kind) {
    case 'A': row_ = std::max(row_ - count, 0); break;
    case 'B': row_ = std::min(row_ + count, rows_ - 1); break;
    case 'C': column_ = std::min(column + count, columns_ - 1); break;
    case 'H': row_ = column_ = 0; break;
    case 'K': erase_line_from(column_); break;
    case 'J':
      if (arguments == "2")
        std::fill(cells_.begin(), cells_.end(), blank());
      else {
        erase_line_from(column_);
        std::fill(cells_.begin() + row_ + 1, cells_.end(), blank());
      }
      break;
    default: throw std::runtime_error("unknown sequence: " + std::string(bytes.substr(1, end)));
  }
  return end + 1;
}

void Screen::write(std::string_view bytes) {
  for (std::size_t at = 0; at < bytes.size();) {
    const char c = bytes[at];
    if (c == '\x1b') {
      at += control_sequence(bytes.substr(at));
    } else if (c == '\r' || c == '\n' || c == '\a') {
      // A line feed begins at the line's start, as the terminal's settings have it.
      if (c != '\a') column_ = 0;
      if (c == '\n') line_feed();
      if (c == '\a') ++bells_;
      ++at;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      throw std::runtime_error("a control character");
    } else {
      const bool clusters = widths_ == Widths::clusters;
      const std::size_t end = clusters ? next_grapheme(bytes, at) : at + decode_utf8(bytes, at).length;
      const std::string_view cluster = bytes.substr(at, end - at);
      put(cluster, clusters ? grapheme_width(cluster).columns : code_point_width(decode_utf8(cluster, 0).code));
      at = end;
    }
  }
}

std::string Screen::row(int index) const {
  std::string text;
  for (const std::string& cell : cells_[static_cast<std::size_t>(index)]) text += cell;
  text.resize(text.find_last_not_of(' ') + 1);
  return text;
}

std::string Screen::text() const {
  std::string text;
  for (int i = 0; i < rows_; ++i) text += row(i) + "\n";
  text.resize(std::min(text.find_last_not_of('\n') + 2, text.size()));
  return text == "\n" ? "" : text;
}

}  // namespace quarrel::test
