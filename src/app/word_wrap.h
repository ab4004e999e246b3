// Breaks an answer's lines between words at the terminal's edge while it streams. Bytes in, bytes out: what comes is
// shown at once, and a word that turns out too long for its line is taken back and written on the next one. Lines of
// code between ``` or ~~~ are left to the terminal. Used by the chat for a terminal that can move its cursor. One
// thread.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "text/graphemes.h"

namespace quarrel {

// Finds the blocks of code in a text of Markdown that comes character by character.
class CodeFences {
 public:
  void put(char32_t code);
  // The line stands in a block of code.
  bool inside() const noexcept { return open_run_ > 0; }

 private:
  void end_line();

  int run_ = 0;              // fence characters at the line's start
  char32_t mark_ = 0;        // which
  bool in_run_ = true;       // nothing else but blanks before them so far
  bool text_after_ = false;  // and behind them
  bool mark_after_ = false;
  int open_run_ = 0;  // of the line that opened the block; 0: none is open
  char32_t open_mark_ = 0;
};

class WordWrap {
 public:
  // `columns` is asked at every push, so that a terminal may change its size meanwhile.
  explicit WordWrap(std::function<int()> columns) : columns_of_(std::move(columns)) {}

  // What to write for `text`, which is UTF-8 without control characters but line feeds and tabs; a character that is
  // cut waits for its end.
  std::string push(std::string_view text);
  // What is still held back.
  std::string finish();

 private:
  void put(std::string_view bytes, char32_t code, std::string& out);
  void put_blank(std::string_view bytes, char32_t code, std::string& out);
  void put_visible(std::string_view bytes, char32_t code, bool joins, std::string& out);
  bool begins_word(char32_t code, int width) const;
  void append(std::string_view bytes, int width, std::string& out);
  void break_line(std::string& out);
  void begin_line();
  void take_word_along(std::string& out);
  void fit_to_terminal();

  std::function<int()> columns_of_;
  int columns_ = 0;
  int column_ = 0;
  bool in_colour_ = false;      // in the midst of a colour's sequence
  bool break_pending_ = false;  // blanks at the edge: the line ends when something else comes
  std::string partial_;         // bytes of a character
  std::string line_;            // what stands on the screen's line
  bool line_certain_ = true;    // all terminals agree on its width
  std::size_t word_ = 0;        // where its last word begins; its size: there is none
  int word_width_ = 0;
  bool word_wide_ = false;      // of ideographs, which lines may break between
  bool after_opening_ = false;  // the last character was an opening bracket or quote
  GraphemeBreaker breaker_;
  CodeFences fences_;
};

}  // namespace quarrel
