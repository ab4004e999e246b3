#include "base/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>

#include "base/environment.h"
#include "base/error.h"
#include "base/printable.h"

namespace quarrel {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTick{100};
constexpr std::chrono::milliseconds kGrace{2000};

// What posix_spawn needs, released on every way out.
struct SpawnSettings {
  posix_spawn_file_actions_t actions{};
  posix_spawnattr_t attributes{};

  SpawnSettings() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;
  ~SpawnSettings() {
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
  }

  int set_up(int output, const std::filesystem::path& directory) {
    if (const int fault = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0))
      return fault;
    if (const int fault = posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO)) return fault;
    if (const int fault = posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO)) return fault;
    if (!directory.empty()) {
      if (const int fault = posix_spawn_file_actions_addchdir_np(&actions, directory.c_str())) return fault;
    }
    // A server blocks and ignores signals that the child must feel.
    sigset_t none;
    sigset_t all;
    sigemptyset(&none);
    sigfillset(&all);
    sigdelset(&all, SIGKILL);
    sigdelset(&all, SIGSTOP);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setpgroup(&attributes, 0);
    return posix_spawnattr_setflags(&attributes,
                                    POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
};

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

struct Pipe {
  std::array<int, 2> ends{-1, -1};

  Pipe() {
    if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
      fail(ErrorKind::io, "cannot create a pipe: {}", std::strerror(errno));
    }
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  void close_end(std::size_t index) {
    if (ends[index] >= 0) ::close(ends[index]);
    ends[index] = -1;
  }
};

class Child {
 public:
  Child(std::vector<std::string> arguments, const ProcessOptions& options) : limit_(options.output_limit) {
    // The child writes as to any pipe; only our end must not block.
    ::fcntl(pipe_.ends[1], F_SETFL, ::fcntl(pipe_.ends[1], F_GETFL) & ~O_NONBLOCK);
    SpawnSettings settings;
    int fault = settings.set_up(pipe_.ends[1], options.directory);
    std::vector<std::string> variables = environment_with(options.environment);
    if (fault == 0) {
      fault = ::posix_spawnp(&pid_, arguments[0].c_str(), &settings.actions, &settings.attributes,
                             pointers(arguments).data(), pointers(variables).data());
    }
    if (fault != 0) {
      pid_ = -1;
      const auto kind = fault == ENOENT ? ErrorKind::not_found : ErrorKind::io;
      fail(kind, "cannot run '{}': {}", printable(arguments[0]), std::strerror(fault));
    }
    pipe_.close_end(1);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ < 0) return;
    signal_group(SIGTERM);
    const auto patience = Clock::now() + kGrace;
    while (Clock::now() < patience) {
      if (ended(kTick / 4)) return;
    }
    signal_group(SIGKILL);
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
  }

  // Collects output for at most `wait`; true once the child has ended and its output is complete.
  bool ended(std::chrono::milliseconds wait) {
    collect(wait);
    int status = 0;
    const pid_t found = ::waitpid(pid_, &status, WNOHANG);
    if (found == 0 || (found < 0 && errno == EINTR)) return false;
    pid_ = -1;
    collect(std::chrono::milliseconds(0));
    if (found > 0) exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return true;
  }

  ProcessResult result() && { return {exit_code_, std::move(output_)}; }

 private:
  // The leader has not been waited for when this is called, so its number still names our group.
  void signal_group(int number) const { ::kill(-pid_, number); }

  void collect(std::chrono::milliseconds wait) {
    if (pipe_.ends[0] < 0) {
      // The child closed its output but lives on; look again soon.
      std::this_thread::sleep_for(std::min(wait, std::chrono::milliseconds(10)));
      return;
    }
    pollfd ready{pipe_.ends[0], POLLIN, 0};
    if (::poll(&ready, 1, static_cast<int>(wait.count())) <= 0) return;
    std::array<char, 16384> piece{};
    // Bounded, so that a child that never stops writing does not keep us from looking at the time.
    for (int i = 0; i < 64; ++i) {
      const ssize_t count = ::read(pipe_.ends[0], piece.data(), piece.size());
      if (count == 0) pipe_.close_end(0);
      if (count <= 0) return;
      output_.append(piece.data(), static_cast<std::size_t>(count));
      if (output_.size() > 2 * limit_) output_.erase(0, output_.size() - limit_);
    }
  }

  Pipe pipe_;
  std::size_t limit_;
  pid_t pid_ = -1;
  int exit_code_ = -1;
  std::string output_;
};

}  // namespace

ProcessResult run_process(const std::vector<std::string>& arguments, const ProcessOptions& options) {
  if (arguments.empty() || arguments[0].empty()) fail(ErrorKind::usage, "no program to run");
  const auto start = Clock::now();
  auto next_tick = start;
  Child child(arguments, options);
  while (!child.ended(kTick)) {
    if (options.stop.stop_requested()) fail(ErrorKind::cancelled, "'{}' was cancelled", printable(arguments[0]));
    if (options.timeout && Clock::now() - start > *options.timeout) {
      fail(ErrorKind::io, "'{}' did not finish within {} ms", printable(arguments[0]), options.timeout->count());
    }
    if (!options.tick || Clock::now() < next_tick) continue;
    options.tick();
    next_tick = Clock::now() + kTick;
  }
  ProcessResult result = std::move(child).result();
  if (result.output.size() > options.output_limit) {
    result.output.erase(0, result.output.size() - options.output_limit);
  }
  return result;
}

}  // namespace quarrel
