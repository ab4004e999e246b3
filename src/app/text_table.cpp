#include "app/text_table.h"

#include <algorithm>

namespace quarrel {

std::size_t display_width(const std::string& text) noexcept {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }));
}

std::string wrap_words(std::string start, std::string_view text, std::size_t indent, std::size_t width) {
  std::string line = std::move(start);
  std::string result;
  bool first = true;  // of the line's words
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string word(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!first && width > 0 && display_width(line) + 1 + display_width(word) > width) {
      result += line + "\n";
      line.assign(indent, ' ');
      first = true;
    }
    line += (first ? "" : " ") + word;
    first = false;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return result + line + "\n";
}

std::string field_line(std::string_view name, std::string_view value, std::size_t indent, std::size_t width) {
  std::string start = "  " + std::string(name);
  std::string line;
  if (!name.empty() && !value.empty() && display_width(start) >= indent) {
    line = start + "\n";
    start.clear();
  }
  const std::size_t columns = display_width(start);
  if (columns < indent) start.append(indent - columns, ' ');
  return line + wrap_words(std::move(start), value, indent, width);
}

std::string TextTable::text() const {
  const auto is_table_row = [&](const auto& row) { return row.size() == columns_.size(); };
  std::vector<std::string> titles;
  std::vector<std::size_t> widths;
  std::vector<bool> shown;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::size_t widest = 0;
    for (const auto& row : rows_) {
      if (is_table_row(row)) widest = std::max(widest, display_width(row[i]));
    }
    titles.push_back(columns_[i].title);
    widths.push_back(std::max(widest, display_width(columns_[i].title)));
    shown.push_back(widest > 0 || !columns_[i].optional);
  }

  std::string result;
  const auto put = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (!shown[i]) continue;
      if (!line.empty()) line += "  ";
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
