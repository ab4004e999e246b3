#include "base/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/printable.h"

namespace quarrel {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 40;            // as many as Linux follows
constexpr std::size_t kMostOfName = 200;  // in the temporary file's: of 255 bytes, what is added to it takes up to 32

// N when the path is an entry N of our own table of open files, as /dev/fd/N is: such an entry looks like a link to
// what was opened, but reopening that would lose the place in it and its append mode.
std::optional<int> own_descriptor(const fs::path& path) {
  const std::string name = path.filename().string();
  int number = -1;
  const auto [end, fault] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (fault != std::errc{} || end != name.data() + name.size() || number < 0) return std::nullopt;
  std::error_code ignored;
  const fs::path table = fs::canonical("/proc/self/fd", ignored);
  if (table.empty() || fs::canonical(path.parent_path(), ignored) != table) return std::nullopt;
  return number;
}

// How much to write at once. A pipe takes so much whole or not at all: a signal that ends the wait for its reader is
// told then, where of a longer write a part would be done and the next one would wait again.
std::size_t most_at_once(int descriptor) {
  struct stat status{};
  const bool is_pipe = ::fstat(descriptor, &status) == 0 && S_ISFIFO(status.st_mode);
  return is_pipe ? PIPE_BUF : SSIZE_MAX;
}

// Follows links to the last path, which may be absent; stops at one of our own descriptors.
fs::path last_of_links(fs::path path) {
  std::error_code fault;
  for (int i = 0; i < kMostLinks && fs::is_symlink(fs::symlink_status(path, fault)); ++i) {
    if (own_descriptor(path)) break;
    const fs::path next = fs::read_symlink(path, fault);
    if (fault) break;
    path = next.is_absolute() ? next : path.parent_path() / next;
  }
  return path;
}

}  // namespace

OutputFile::OutputFile(const fs::path& path, OutputAccess access) : access_(access), path_(path) {
  if (path.empty()) fail(ErrorKind::usage, "the name of the output file is empty");
  const fs::path target = last_of_links(path);
  if (const std::optional<int> number = own_descriptor(target)) {
    descriptor_ = ::fcntl(*number, F_DUPFD_CLOEXEC, 0);
    if (descriptor_ < 0) refuse(errno);
    return;
  }
  struct stat status{};
  const bool exists = ::stat(target.c_str(), &status) == 0;
  if (!exists && errno != ENOENT) refuse(errno);
  if (!exists && target.filename().empty()) {
    fail(ErrorKind::usage, "cannot write '{}': there is no such folder", printable(path.string(), 512));
  }
  if (exists && S_ISDIR(status.st_mode)) {
    fail(ErrorKind::usage, "cannot write '{}': it is a folder", printable(path.string(), 512));
  }
  if (!exists || S_ISREG(status.st_mode)) {
    create_pending(target);
    // What was private stays so. That it fails on a file system without modes is no loss.
    if (exists && access_ == OutputAccess::as_usual) static_cast<void>(::fchmod(descriptor_, status.st_mode & 0777));
    return;
  }
  descriptor_ = ::open(target.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC);
  if (descriptor_ >= 0) return;
  if (errno == EINTR) interrupted("opening");
  refuse(errno);
}

OutputFile::~OutputFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  if (!pending_.empty()) ::unlink(pending_.c_str());
}

// O_EXCL with a few names: two writers of one path must not share a file, and what a killed one left may stay.
void OutputFile::create_pending(const fs::path& target) {
  target_ = target;
  const mode_t mode = access_ == OutputAccess::owner ? 0600 : 0666;
  const std::string start = target.filename().string().substr(0, kMostOfName);
  for (int attempt = 0; attempt < 1000 && descriptor_ < 0; ++attempt) {
    pending_ = target.parent_path() / fmt::format("{}.partial-{}-{}", start, ::getpid(), attempt);
    descriptor_ = ::open(pending_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (descriptor_ < 0 && errno != EEXIST) break;
  }
  if (descriptor_ < 0) refuse(errno);
}

void OutputFile::write(std::span<const std::byte> bytes) {
  const std::size_t most = most_at_once(descriptor_);
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), std::min(bytes.size(), most));
    if (written < 0 && errno == EINTR) interrupted("writing");
    if (written < 0) refuse(errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void OutputFile::commit() {
  if (access_ == OutputAccess::owner && !pending_.empty() && ::fsync(descriptor_) != 0) refuse(errno);
  if (!pending_.empty() && std::rename(pending_.c_str(), target_.c_str()) != 0) refuse(errno);
  if (::close(std::exchange(descriptor_, -1)) != 0) refuse(errno);
}

void OutputFile::interrupted(const char* doing) const {
  fail(ErrorKind::cancelled, "interrupted while {} '{}'", doing, printable(path_.string(), 512));
}

void OutputFile::refuse(int error) const {
  fail(ErrorKind::io, "cannot write '{}': {}", printable(path_.string(), 512), std::generic_category().message(error));
}

}  // namespace quarrel
