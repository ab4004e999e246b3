#include "app/text_table.h"

#include <algorithm>

namespace quarrel {

std::size_t display_width(const std::string& text) noexcept {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }));
}

std::string field_line(std::string_view name, std::string_view value, std::size_t indent, std::size_t width) {
  std::string line = "  " + std::string(name);
  std::string result;
  const auto begin_value = [&] { line.resize(std::max(line.size(), indent), ' '); };
  begin_value();
  bool first = true;
  while (!value.empty()) {
    const std::size_t end = std::min(value.find(' '), value.size());
    const std::string word(value.substr(0, end));
    value.remove_prefix(std::min(end + 1, value.size()));
    if (!first && width > 0 && display_width(line) + 1 + display_width(word) > width) {
      result += line + "\n";
      line.clear();
      begin_value();
      first = true;
    }
    line += (first ? "" : " ") + word;
    first = false;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return result + line + "\n";
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
