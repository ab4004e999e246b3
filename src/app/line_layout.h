// How a text that is edited lies on the screen: rows of a terminal's width, and where the cursor is among them. Pure;
// used by the line editor. One thread.
//
// Terminals disagree on how wide joined emoji are. A row that holds one is broken early and by a line feed, and the
// cursor is brought to its place by writing what precedes it again: right on every terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace quarrel {

// `shown` may hold colours; `plain` is the same without, of one line.
struct Prompt {
  std::string plain;
  std::string shown;
};

struct LayoutRow {
  std::string text;              // as it is written, prompt included
  int columns = 0;               // the most it takes
  bool certain = true;           // every terminal agrees on that
  bool wraps = false;            // the terminal goes on to the next row by itself
  std::size_t prompt_bytes = 0;  // of the text
  int prompt_columns = 0;

  bool operator==(const LayoutRow&) const = default;
};

struct LineLayout {
  std::vector<LayoutRow> rows;  // at least one; the last is never full
  std::size_t cursor_row = 0;
  int cursor_column = 0;
  std::string before_cursor;   // what the cursor's row holds before the cursor
  bool cursor_certain = true;  // the column is right on every terminal
};

// `cursor` is a boundary between clusters of `text`. Lines after the first begin with `continuation`.
LineLayout lay_out(const Prompt& prompt, const Prompt& continuation, std::string_view text, std::size_t cursor,
                   int columns);

}  // namespace quarrel
