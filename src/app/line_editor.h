// Editing a line: what each key does, the history, the search in it, completion, and the bytes that bring the screen up
// to date. Knows no terminal: keys in, bytes out; the line reader carries both. One thread.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "app/edit_buffer.h"
#include "app/key_decoder.h"
#include "app/line_history.h"
#include "app/line_layout.h"
#include "app/line_screen.h"
#include "app/terminal.h"

namespace quarrel {

// What could stand in place of the text from `begin` to the cursor.
struct Completion {
  std::size_t begin = 0;
  std::vector<std::string> candidates = {};
};
using Completer = std::function<Completion(std::string_view text, std::size_t cursor)>;

class LineEditor {
 public:
  // Bytes of a line at most.
  static constexpr std::size_t kLimit = 4u << 20;

  enum class Outcome { editing, accepted, interrupted, ended, suspend, quit };

  LineEditor(const LineHistory& history, const Completer& completer) : history_(history), completer_(completer) {}

  // A new line. Lines after its first begin with `continuation`.
  void begin(Prompt prompt, Prompt continuation);

  // After anything but `editing`, `suspend` and `quit` the line is over.
  Outcome press(const KeyPress& key);

  const std::string& text() const noexcept { return buffer_.text(); }
  std::size_t dropped() const noexcept { return dropped_; }  // bytes that found no room

  // What must be written to show the line as it is now; nothing if it is shown already.
  std::string draw(TerminalSize size);
  // The terminal has another size: it has wrapped what stood there again, and everything is to be drawn again.
  void resized(TerminalSize size);
  // The cursor stands at the start of an empty row: everything is to be drawn there.
  void forget_screen();
  // Brings the cursor to the last row, for what comes below; `whole` shows all of a text that was too long for the
  // screen.
  std::string leave(TerminalSize size, bool whole);

 private:
  bool edit(const KeyPress& key);
  bool move(Key key);
  bool cut(Key key);
  Outcome search_key(const KeyPress& key);
  void search_from(std::size_t index, bool forward);
  void end_search(bool keep);
  void older();
  void newer();
  void recall(std::size_t index);
  void complete();
  void insert(std::string_view text);
  LineLayout layout(int columns) const;
  std::string candidate_list(int columns) const;

  const LineHistory& history_;
  const Completer& completer_;
  Prompt prompt_;
  Prompt continuation_;
  EditBuffer buffer_{kLimit};
  std::size_t dropped_ = 0;
  std::size_t place_ = 0;  // in the history; its size: the line that is being written
  std::string draft_;      // that line, while another is shown

  bool searching_ = false;
  std::string query_;
  std::size_t match_ = 0;
  bool missed_ = false;
  std::string before_search_;
  std::size_t cursor_before_search_ = 0;

  std::vector<std::string> candidates_;  // to be listed above the line

  bool changed_ = true;
  bool bell_ = false;
  bool clear_ = false;
  LineScreen screen_;
};

}  // namespace quarrel
