#include "app/terminal_mode.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "base/error.h"

namespace quarrel {
namespace {

// Signal handlers have no arguments to reach an object by: state that must be global.
termios original_settings{};  // valid while the next is true
std::atomic<bool> settings_changed{false};
std::atomic<bool> paste_marked{false};
std::atomic<int> wake_descriptor{-1};
std::atomic<bool> was_resized{false};
std::atomic<bool> was_continued{false};
std::atomic<bool> was_stopped{false};

constexpr char kPasteOn[] = "\x1b[?2004h";
constexpr char kPasteOff[] = "\x1b[?2004l";

// The length without the terminating zero. What cannot be written to a terminal is lost anyway.
template <std::size_t Size>
void write_sequence(const char (&text)[Size]) noexcept {
  const ssize_t written = ::write(STDOUT_FILENO, text, Size - 1);
  static_cast<void>(written);
}

extern "C" void on_leaving(int number) {
  restore_terminal();
  ::signal(number, SIG_DFL);
  ::raise(number);
}

extern "C" void on_watched(int number) {
  if (number == SIGWINCH) was_resized.store(true, std::memory_order_relaxed);
  if (number == SIGCONT) was_continued.store(true, std::memory_order_relaxed);
  if (number == SIGTSTP) was_stopped.store(true, std::memory_order_relaxed);
  wake_terminal_reader();
}

struct sigaction handler_of(void (*function)(int)) {
  struct sigaction action = {};
  action.sa_handler = function;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  return action;
}

}  // namespace

void restore_terminal() noexcept {
  if (!settings_changed.exchange(false)) return;
  const int fault = errno;
  ::tcsetattr(STDIN_FILENO, TCSANOW, &original_settings);
  if (paste_marked.exchange(false)) write_sequence(kPasteOff);
  errno = fault;
}

void wake_terminal_reader() noexcept {
  const int descriptor = wake_descriptor.load();
  if (descriptor < 0) return;
  const int fault = errno;
  const ssize_t written = ::write(descriptor, "!", 1);  // full: it is awake already
  static_cast<void>(written);
  errno = fault;
}

TerminalMode::TerminalMode(InputMode mode) : mode_(mode) {
  terminal_ = ::isatty(STDIN_FILENO) == 1 && ::tcgetattr(STDIN_FILENO, &original_settings) == 0;
  if (!terminal_) return;
  const struct sigaction action = handler_of(on_leaving);
  for (std::size_t i = 0; i < kLeaving.size(); ++i) {
    ::sigaction(kLeaving[i], nullptr, &old_[i]);
    // Who handles or ignores it already knows what to do.
    if (old_[i].sa_handler == SIG_DFL) ::sigaction(kLeaving[i], &action, nullptr);
  }
  enter();
}

TerminalMode::~TerminalMode() {
  if (!terminal_) return;
  leave();
  for (std::size_t i = 0; i < kLeaving.size(); ++i) ::sigaction(kLeaving[i], &old_[i], nullptr);
}

void TerminalMode::enter() noexcept {
  if (!terminal_) return;
  termios settings = original_settings;
  settings.c_lflag &= ~static_cast<tcflag_t>(ECHO);
  if (mode_ == InputMode::keys) {
    settings.c_iflag &= ~static_cast<tcflag_t>(BRKINT | ICRNL | INLCR | IGNCR | INPCK | ISTRIP | IXON);
    settings.c_lflag &= ~static_cast<tcflag_t>(ICANON | IEXTEN | ISIG);
    settings.c_cc[VMIN] = 1;
    settings.c_cc[VTIME] = 0;
  }
  settings_changed.store(true);
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &settings);
  if (mode_ == InputMode::keys && !paste_marked.exchange(true)) write_sequence(kPasteOn);
}

void TerminalMode::leave() noexcept {
  if (!terminal_ || !settings_changed.load()) return;
  if (paste_marked.exchange(false)) write_sequence(kPasteOff);
  // Until that is done, which a stopped terminal may delay, a signal's handler has to know that it is not.
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &original_settings);
  settings_changed.store(false);
}

TerminalSignals::TerminalSignals() {
  if (::pipe2(pipe_.data(), O_CLOEXEC | O_NONBLOCK) != 0) fail(ErrorKind::io, "cannot create a pipe");
  wake_descriptor.store(pipe_[1]);
  was_resized = was_continued = was_stopped = false;
  const struct sigaction action = handler_of(on_watched);
  for (std::size_t i = 0; i < kWatched.size(); ++i) {
    ::sigaction(kWatched[i], nullptr, &old_[i]);
    if (old_[i].sa_handler != SIG_IGN) ::sigaction(kWatched[i], &action, nullptr);
  }
}

TerminalSignals::~TerminalSignals() {
  for (std::size_t i = 0; i < kWatched.size(); ++i) ::sigaction(kWatched[i], &old_[i], nullptr);
  wake_descriptor.store(-1);
  ::close(pipe_[0]);
  ::close(pipe_[1]);
}

void TerminalSignals::drain() noexcept {
  std::array<char, 64> bytes{};
  while (::read(pipe_[0], bytes.data(), bytes.size()) > 0) {
  }
}

bool TerminalSignals::take_resized() noexcept { return was_resized.exchange(false); }
bool TerminalSignals::take_continued() noexcept { return was_continued.exchange(false); }
bool TerminalSignals::take_stop() noexcept { return was_stopped.exchange(false); }

void TerminalSignals::stop_job() noexcept {
  struct sigaction ours = {};
  ::sigaction(SIGTSTP, nullptr, &ours);
  // The others of the job first, this thread then: kill() alone may stop us only later, in some other thread.
  ::signal(SIGTSTP, SIG_IGN);
  ::kill(0, SIGTSTP);
  ::signal(SIGTSTP, SIG_DFL);
  ::raise(SIGTSTP);
  ::sigaction(SIGTSTP, &ours, nullptr);
}

}  // namespace quarrel
