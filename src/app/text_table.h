// A table of text in columns, for people: widths fit the widest cell, numbers stand to the right. One thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace quarrel {

class TextTable {
 public:
  enum class Side { left, right };
  struct Column {
    std::string title;
    Side side = Side::left;
    bool optional = false;  // left out where no row has anything in it
  };

  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // As many cells as there are columns.
  void add_row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // A line across all columns.
  void add_line(std::string text) { rows_.push_back({std::move(text)}); }

  // All lines, each with its line feed and no blanks at its end.
  std::string text() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// The words of `text` after `start`, broken where they would pass `width` columns (0: not at all); further lines begin
// in column `indent`. With a line feed at its end.
std::string wrap_words(std::string start, std::string_view text, std::size_t indent, std::size_t width);
// "  name   value": the value from column `indent` on, its further lines below its first one. A name that leaves no
// blank before that column has a line of its own.
std::string field_line(std::string_view name, std::string_view value, std::size_t indent, std::size_t width);

// Characters of a UTF-8 text, for lining up: continuation bytes do not count.
std::size_t display_width(const std::string& text) noexcept;

}  // namespace quarrel
