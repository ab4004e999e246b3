#include "app/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/printable.h"

namespace quarrel {

OutputFile::OutputFile(const std::filesystem::path& path) : path_(path) {
  std::error_code ignored;
  if (path.filename().empty() || std::filesystem::is_directory(path, ignored)) {
    fail(ErrorKind::io, "cannot write '{}': it is a directory", printable(path.string(), 512));
  }
  // O_EXCL with a few names: two writers of one path must not share a file, and what an ended one left may stay.
  for (int attempt = 0; attempt < 100 && descriptor_ < 0; ++attempt) {
    pending_ = path;
    pending_ += fmt::format(".partial-{}-{}", ::getpid(), attempt);
    descriptor_ = ::open(pending_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0 && errno != EEXIST) break;
  }
  if (descriptor_ < 0) refuse("create");
}

OutputFile::~OutputFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(pending_.c_str());
}

void OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) refuse("write");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void OutputFile::commit() {
  if (std::rename(pending_.c_str(), path_.c_str()) != 0) refuse("rename");
  if (::close(std::exchange(descriptor_, -1)) != 0) refuse("close");
}

void OutputFile::refuse(const char* action) const {
  fail(ErrorKind::io, "cannot {} '{}': {}", action, printable(pending_.string(), 512),
       std::generic_category().message(errno));
}

}  // namespace quarrel
