// The process's standard streams and its Ctrl-C: what is a terminal, how text gets out, who asked to stop. Used by the
// commands, on the main thread.
#pragma once

#include <atomic>
#include <csignal>
#include <string>
#include <string_view>

namespace quarrel {

enum class Stream { input = 0, output = 1, error = 2 };

bool is_terminal(Stream stream) noexcept;
// Columns of the terminal; 80 where the stream is none or does not say.
int terminal_columns(Stream stream) noexcept;
// A terminal that shows colours, for a user who has not set NO_COLOR.
bool wants_colour(Stream stream);

// Writes to standard output at once. Throws std::system_error: with std::errc::broken_pipe the reader has gone, and the
// program ends without a word.
void write_output(std::string_view text);
// The same for standard error, where a failure is nobody's business.
void write_error(std::string_view text) noexcept;

// A model's text made harmless for a terminal: control characters other than line feed and tab become U+FFFD, so that
// no answer moves the cursor or talks to the terminal. `text` is UTF-8.
std::string without_control(std::string_view text);

// While an object of this class lives, Ctrl-C (SIGINT) and SIGTERM set a flag instead of ending the process; the third
// unanswered one ends it after all. At most one object at a time.
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

// The exit code of a program that Ctrl-C ended.
inline constexpr int kInterruptedExit = 130;

}  // namespace quarrel
