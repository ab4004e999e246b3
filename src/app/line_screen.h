// What an edited line has left on the screen, and the bytes that turn it into what it should be: only what differs is
// written again. Bytes out, no terminal; used by the line editor. One thread.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "app/line_layout.h"
#include "app/terminal.h"

namespace quarrel {

class LineScreen {
 public:
  // A text with more rows than the terminal is shown in part, around the cursor.
  std::string show(const LineLayout& layout, TerminalSize size);
  // Everything, however much of it goes out at the top, and the cursor behind it.
  std::string show_whole(const LineLayout& layout, TerminalSize size);
  // Brings the cursor to the last row, for what comes below.
  std::string leave();

  // The cursor stands at the start of an empty row, and nothing is on the screen.
  void forget();
  // What is shown may look different by now, but the cursor stands `rows_above` rows below its first row.
  void distrust(std::size_t rows_above);

 private:
  // Whether the cursor stands behind the row's text now because that was written.
  bool write_row(std::size_t index, const LayoutRow& row, int columns, std::string& out);
  void go_to_row(std::size_t index, std::string& out);
  void go_to_column(const LayoutRow& row, std::size_t bytes, int column, std::string& out);

  std::vector<LayoutRow> shown_;
  std::size_t first_ = 0;    // which row of the layout is the first on the screen
  std::size_t row_ = 0;      // where the cursor is
  int column_ = 0;           // -1: not known
  bool distrusted_ = false;  // what is shown may be anything
};

}  // namespace quarrel
