#include "server/watch/log_sink.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace quarrel {
namespace {

// What a pipe takes at once if it takes anything.
constexpr std::size_t kPipeRoom = 4096;

int open_log(const std::string& path) {
  return ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0640);
}

}  // namespace

LogSink::LogSink(std::string path) : path_(std::move(path)) {
  const int descriptor = path_.empty() ? STDERR_FILENO : open_log(path_);
  if (descriptor < 0) {
    fail(ErrorKind::io, "the log {} cannot be opened: {}", path_, std::generic_category().message(errno));
  }
  take(descriptor);
}

LogSink::~LogSink() {
  if (descriptor_ != STDERR_FILENO) ::close(descriptor_);
}

void LogSink::take(int descriptor) {
  descriptor_ = descriptor;
  struct stat status = {};
  may_block_ = ::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode);
}

bool LogSink::reopen() {
  if (path_.empty()) return true;
  const int descriptor = open_log(path_);
  if (descriptor < 0) return false;
  const std::scoped_lock lock(mutex_);
  ::close(descriptor_);
  take(descriptor);
  torn_ = false;
  return true;
}

void LogSink::sink_it_(const spdlog::details::log_msg& message) {
  spdlog::memory_buf_t line;
  if (torn_) line.push_back('\n');
  formatter_->format(message, line);
  if (!write_whole({line.data(), line.size()})) ++lost_;
}

bool LogSink::write_whole(std::string_view text) {
  while (!text.empty()) {
    std::size_t size = text.size();
    if (may_block_) {
      struct pollfd place = {.fd = descriptor_, .events = POLLOUT, .revents = 0};
      if (::poll(&place, 1, 0) != 1 || (place.revents & POLLOUT) == 0) return false;
      size = std::min(size, kPipeRoom);
    }
    const ssize_t written = ::write(descriptor_, text.data(), size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
    torn_ = !text.empty();
  }
  return true;
}

}  // namespace quarrel
