// Lines from a terminal, with editing and a history that outlives the session. Used by the chat, on the main thread; at
// most one at a time.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

namespace quarrel {

enum class LineEvent { line, interrupted, end };

struct LineInput {
  LineEvent event = LineEvent::line;
  std::string text;  // without its line feed; when interrupted, what stood there
};

class LineReader {
 public:
  // `history` is a file that need not exist; empty: nothing is kept. A history that cannot be read or written is no
  // reason to fail.
  explicit LineReader(std::filesystem::path history);
  ~LineReader();

  // Interrupted: Ctrl-C, or a signal came (see Interrupts); end: Ctrl-D on an empty line, or the terminal is gone.
  LineInput read(const std::string& prompt);
  void remember(const std::string& line);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Where the chat's history lies: quarrel/history below XDG_STATE_HOME or ~/.local/state. Empty when QUARREL_HISTORY is
// 0 or there is no home.
std::filesystem::path history_path();

}  // namespace quarrel
