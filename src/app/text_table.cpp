#include "app/text_table.h"

#include <algorithm>

namespace quarrel {

std::size_t display_width(const std::string& text) noexcept {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }));
}

std::string TextTable::text() const {
  std::vector<std::string> titles;
  std::vector<std::size_t> widths;
  titles.reserve(columns_.size());
  widths.reserve(columns_.size());
  for (const Column& column : columns_) {
    titles.push_back(column.title);
    widths.push_back(display_width(column.title));
  }
  const auto is_table_row = [&](const auto& row) { return row.size() == columns_.size(); };
  for (const auto& row : rows_) {
    if (!is_table_row(row)) continue;
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  }

  std::string result;
  const auto put = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (i > 0) line += "  ";
      const std::string padding(widths[i] - std::min(widths[i], display_width(cells[i])), ' ');
      line += columns_[i].side == Side::right ? padding + cells[i] : cells[i] + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    result += line + "\n";
  };
  put(titles);
  for (const auto& row : rows_) {
    if (is_table_row(row)) {
      put(row);
    } else {
      result += row.front() + "\n";
    }
  }
  return result;
}

}  // namespace quarrel
