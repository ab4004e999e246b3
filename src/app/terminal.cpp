#include "app/terminal.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "app/terminal_mode.h"
#include "base/environment.h"
#include "base/error.h"

namespace quarrel {
namespace {

// A signal handler has no arguments to reach an object by: the one place where state must be global.
std::atomic<bool> interrupt_requested{false};
std::atomic<bool> terminate_requested{false};
std::atomic<int> interrupt_count{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

constexpr int kPatience = 3;

extern "C" void on_interrupt(int number) {
  interrupt_requested.store(true, std::memory_order_relaxed);
  if (number == SIGTERM) terminate_requested.store(true, std::memory_order_relaxed);
  if (interrupt_count.fetch_add(1, std::memory_order_relaxed) + 1 >= kPatience) {
    restore_terminal();
    ::signal(number, SIG_DFL);
    ::raise(number);
  }
  wake_terminal_reader();
}

}  // namespace

void keep_standard_streams() noexcept {
  for (const Stream stream : {Stream::input, Stream::output, Stream::error}) {
    const bool closed = ::fcntl(static_cast<int>(stream), F_GETFD) < 0 && errno == EBADF;
    // The lowest free number is the stream's, since those below it are open by now.
    if (closed) static_cast<void>(::open("/dev/null", O_RDONLY));
  }
}

bool is_terminal(Stream stream) noexcept { return ::isatty(static_cast<int>(stream)) == 1; }

TerminalSize terminal_size(Stream stream) noexcept {
  TerminalSize result;
  winsize size{};
  if (::ioctl(static_cast<int>(stream), TIOCGWINSZ, &size) != 0) return result;
  if (size.ws_col > 0) result.columns = size.ws_col;
  if (size.ws_row > 0) result.rows = size.ws_row;
  return result;
}

int terminal_columns(Stream stream) noexcept { return terminal_size(stream).columns; }

bool moves_cursor(Stream stream) {
  const std::string kind = environment("TERM").value_or("");
  return is_terminal(stream) && !kind.empty() && kind != "dumb";
}

bool wants_colour(Stream stream) { return moves_cursor(stream) && environment("NO_COLOR").value_or("").empty(); }

void write_output(std::string_view text) {
  constexpr const char* kFailure = "cannot write to standard output";
  errno = 0;
  // What others left in the buffer goes first; the rest past it, since a stream cannot tell what of an interrupted
  // write came out.
  if (std::fflush(stdout) != 0) throw std::system_error(errno, std::generic_category(), kFailure);
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      throw std::system_error(errno, std::generic_category(), kFailure);
    } else if (interrupt_pending()) {
      fail(ErrorKind::cancelled, "interrupted");
    }
  }
}

void write_error(std::string_view text) noexcept {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

std::string without_control(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool c0 = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F;
    // U+0080 to U+009F, in UTF-8: C2 80 to C2 9F.
    const bool c1 = byte == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if (c0 || c1) {
      result += "\xEF\xBF\xBD";
      if (c1) ++i;
    } else {
      result += text[i];
    }
  }
  return result;
}

Interrupts::Interrupts() {
  take();
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // no SA_RESTART: a read of the terminal must return
  ::sigaction(SIGINT, &action, &old_interrupt_);
  ::sigaction(SIGTERM, &action, &old_terminate_);
}

Interrupts::~Interrupts() {
  if (terminated()) return;
  ::sigaction(SIGINT, &old_interrupt_, nullptr);
  ::sigaction(SIGTERM, &old_terminate_, nullptr);
}

bool interrupt_pending() noexcept { return interrupt_requested.load(std::memory_order_relaxed); }

const std::atomic<bool>& Interrupts::requested() const noexcept { return interrupt_requested; }

bool Interrupts::terminated() const noexcept { return terminate_requested.load(std::memory_order_relaxed); }

int Interrupts::take() noexcept {
  interrupt_requested.store(false, std::memory_order_relaxed);
  return interrupt_count.exchange(0, std::memory_order_relaxed);
}

}  // namespace quarrel
