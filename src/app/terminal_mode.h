// The terminal's own settings while something here needs others, and the signals that concern them. Whatever ends the
// process, an exception or a signal, the terminal gets its settings back. Used by the line reader and the chat, on the
// main thread.
#pragma once

#include <signal.h>
#include <termios.h>

#include <array>
#include <cstddef>

namespace quarrel {

enum class InputMode {
  keys,   // every key comes at once and is not shown; Ctrl-C and Ctrl-Z are keys
  quiet,  // as usual, but what is typed is not shown: an answer is being written
};

// Standard input in another mode for as long as this object lives; at most one at a time. Where standard input is no
// terminal, nothing happens.
class TerminalMode {
 public:
  explicit TerminalMode(InputMode mode);
  ~TerminalMode();
  TerminalMode(const TerminalMode&) = delete;
  TerminalMode& operator=(const TerminalMode&) = delete;

  // Back to what it was, and into the mode again: around a time in the background.
  void leave() noexcept;
  void enter() noexcept;

 private:
  // What ends or stops the process.
  static constexpr std::array kLeaving{SIGHUP, SIGQUIT, SIGABRT, SIGSEGV, SIGFPE, SIGILL, SIGINT, SIGTERM, SIGTSTP};

  InputMode mode_;
  bool terminal_ = false;
  std::array<struct sigaction, kLeaving.size()> old_{};
};

// For a signal handler that is about to end or stop the process. Safe in one.
void restore_terminal() noexcept;
// Wakes whoever waits on TerminalSignals::descriptor(). Safe in a signal handler, from any thread.
void wake_terminal_reader() noexcept;

// Tells a reader of the terminal, whichever thread a signal reaches, that it has another size, that the process is to
// stop or goes on, or that wake_terminal_reader() was called. At most one object at a time.
class TerminalSignals {
 public:
  TerminalSignals();
  ~TerminalSignals();
  TerminalSignals(const TerminalSignals&) = delete;
  TerminalSignals& operator=(const TerminalSignals&) = delete;

  int descriptor() const noexcept { return pipe_[0]; }  // readable when something came
  void drain() noexcept;
  // Whether it came since the last call.
  bool take_resized() noexcept;
  bool take_continued() noexcept;
  bool take_stop() noexcept;

  // Stops the process and the others of its job, as Ctrl-Z does elsewhere; returns when it goes on.
  void stop_job() noexcept;

 private:
  static constexpr std::array kWatched{SIGWINCH, SIGCONT, SIGTSTP};

  std::array<int, 2> pipe_{-1, -1};
  std::array<struct sigaction, kWatched.size()> old_{};
};

}  // namespace quarrel
