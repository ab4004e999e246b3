// Lines from a terminal, with editing, completion and a history that outlives the session; plain lines where a terminal
// understands nothing else. Used by the chat, on the main thread; at most one at a time.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>

#include "app/line_editor.h"

namespace quarrel {

enum class LineEvent { line, interrupted, end };

struct LineInput {
  LineEvent event = LineEvent::line;
  std::string text = {};    // without line feeds at its end; when interrupted, what stood there
  std::size_t dropped = 0;  // bytes beyond the most that a line holds
};

// What the line is for: an answer to a question has neither history nor completion.
enum class LineUse { message, answer };

class LineReader {
 public:
  // `history` is a file that need not exist; empty: nothing is kept. A history that cannot be read or written is no
  // reason to fail. `completer` may be empty.
  LineReader(std::filesystem::path history, Completer completer);
  ~LineReader();

  // Interrupted: Ctrl-C, or a signal came (see Interrupts); end: Ctrl-D on an empty line, or the terminal is gone. What
  // was typed ahead stays for the next call. A text of several lines was pasted, or written with Alt-Enter.
  LineInput read(const Prompt& prompt, LineUse use = LineUse::message);
  // Kept in the file at once.
  void remember(const std::string& line);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Where the chat's history lies: quarrel/history below XDG_STATE_HOME or ~/.local/state. Empty when QUARREL_HISTORY is
// 0 or there is no home.
std::filesystem::path history_path();

}  // namespace quarrel
