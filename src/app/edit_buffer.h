// A text that is being edited: what stands there, where the cursor is, what was cut out last. Moves and deletes by
// grapheme cluster, so that nobody ever sees half a character; may hold several lines. Pure; used by the line editor.
// One thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace quarrel {

class EditBuffer {
 public:
  // `limit` bytes are the most it takes.
  explicit EditBuffer(std::size_t limit) : limit_(limit) {}

  const std::string& text() const noexcept { return text_; }
  std::size_t cursor() const noexcept { return cursor_; }  // a byte's offset, always at a cluster's boundary
  bool empty() const noexcept { return text_.empty(); }

  // Replaces everything; the cursor stands at the end, or at the boundary at or before `cursor`.
  void set(std::string text);
  void set(std::string text, std::size_t cursor);
  // At the cursor. What exceeds the limit is left out, whole clusters of it; their bytes are counted and given back.
  std::size_t insert(std::string_view text);
  // `length` bytes from `begin` become `text`; the cursor stands behind it.
  void replace(std::size_t begin, std::size_t length, std::string_view text);

  // Moves and deletions say whether there was anything to do.
  bool left();
  bool right();
  bool word_left();
  bool word_right();
  void line_start();
  void line_end();
  // To the line above or below, at the same column as far as that has one.
  bool line_up();
  bool line_down();
  bool erase_back();
  bool erase_forward();
  bool transpose();

  // What these take out can be put back by yank(); what follows each other is put together.
  bool kill_to_line_end();
  bool kill_to_line_start();
  bool kill_word();
  bool kill_word_back();
  bool kill_blank_word_back();
  bool yank();
  // Another kind of key came: the next cut starts a new text.
  void end_kill() noexcept { killing_ = false; }

 private:
  std::size_t start_of_line(std::size_t offset) const;
  std::size_t end_of_line(std::size_t offset) const;
  std::size_t word_start() const;
  std::size_t word_end() const;
  bool kill(std::size_t begin, std::size_t end);
  // The offset in the line from `begin` to `end` that lies at `column` or before.
  std::size_t at_column(std::size_t begin, std::size_t end, int column) const;

  std::string text_;
  std::size_t cursor_ = 0;
  std::size_t limit_;
  std::string killed_;
  bool killing_ = false;
};

}  // namespace quarrel
