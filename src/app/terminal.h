// The process's standard streams and its Ctrl-C: what is a terminal, how text gets out, who asked to stop. Used by the
// commands, on the main thread.
#pragma once

#include <atomic>
#include <csignal>
#include <string>
#include <string_view>

namespace quarrel {

enum class Stream { input = 0, output = 1, error = 2 };

// A stream that came closed is read as empty and cannot be written to, and no file that is opened later gets its
// number: called once, before any is.
void keep_standard_streams() noexcept;

bool is_terminal(Stream stream) noexcept;
struct TerminalSize {
  int columns = 80;
  int rows = 24;
};
// 80 columns and 24 rows where the stream is no terminal or does not say.
TerminalSize terminal_size(Stream stream) noexcept;
int terminal_columns(Stream stream) noexcept;
// It understands more than lines: the cursor can be moved, text be erased.
bool moves_cursor(Stream stream);
// A terminal that shows colours, for a user who has not set NO_COLOR.
bool wants_colour(Stream stream);

// Writes to standard output at once. Throws std::system_error: with std::errc::broken_pipe the reader has gone, and the
// program ends without a word. Error(cancelled) when the reader takes nothing and the user asked to stop meanwhile.
void write_output(std::string_view text);
// The same for standard error, where a failure is nobody's business.
void write_error(std::string_view text) noexcept;

// A model's text made harmless for a terminal: control characters other than line feed and tab become U+FFFD, so that
// no answer moves the cursor or talks to the terminal. `text` is UTF-8.
std::string without_control(std::string_view text);

// While an object of this class lives, Ctrl-C (SIGINT) and SIGTERM set a flag instead of ending the process; the third
// unanswered one ends it after all. After a SIGTERM that stays so: the program is ending, and not by the next signal.
// At most one object at a time.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  const std::atomic<bool>& requested() const noexcept;
  // How many came since the last call.
  int take() noexcept;
  // A SIGTERM came: not this answer but the program is to end.
  bool terminated() const noexcept;

 private:
  struct sigaction old_interrupt_ = {};
  struct sigaction old_terminate_ = {};
};

// Whether an Interrupts object has seen a signal that nobody has taken yet.
bool interrupt_pending() noexcept;

// The exit code of a program that Ctrl-C ended.
inline constexpr int kInterruptedExit = 130;

}  // namespace quarrel
