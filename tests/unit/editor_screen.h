// A terminal's screen as the tests need it: it understands what the line editor and the word wrap write, breaks lines
// at its edge as terminals do (the cursor waits behind a full row), and counts widths either by cluster or by code
// point.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace quarrel::test {

enum class Widths { clusters, code_points };

class Screen {
 public:
  Screen(int columns, int rows, Widths widths = Widths::clusters);

  // Throws std::runtime_error for a sequence it does not know: nobody should write one unnoticed.
  void write(std::string_view bytes);

  // A row without the blanks at its end; characters that take two cells are there once.
  std::string row(int index) const;
  // All rows down to the last that is not empty, each with a line feed.
  std::string text() const;
  int cursor_row() const noexcept { return row_; }
  int cursor_column() const noexcept { return column_ < columns_ ? column_ : columns_ - 1; }
  int bells() const noexcept { return bells_; }
  int scrolled() const noexcept { return scrolled_; }

 private:
  // A cell's text: empty for the second half of a wide character.
  using Row = std::vector<std::string>;

  void put(std::string_view cluster, int width);
  void line_feed();
  std::size_t control_sequence(std::string_view bytes);
  void erase_line_from(int column);
  Row blank() const { return Row(static_cast<std::size_t>(columns_), " "); }

  int columns_;
  int rows_;
  Widths widths_;
  std::vector<Row> cells_;
  int row_ = 0;
  int column_ = 0;  // `columns_`: behind a full row
  int bells_ = 0;
  int scrolled_ = 0;
};

}  // namespace quarrel::test
