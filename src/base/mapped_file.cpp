#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace quarrel {
namespace {

struct Descriptor {
  int fd;
  explicit Descriptor(int value) : fd(value) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

MappedFile MappedFile::open(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a fifo must not wait for a writer that never comes.
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.fd < 0) {
    const int reason = errno;
    const auto kind = reason == ENOENT || reason == ENOTDIR ? ErrorKind::not_found : ErrorKind::io;
    fail(kind, "cannot open '{}': {}", path.string(), std::strerror(reason));
  }
  struct stat status{};
  if (::fstat(file.fd, &status) != 0) {
    fail(ErrorKind::io, "cannot read the size of '{}': {}", path.string(), std::strerror(errno));
  }
  if (S_ISDIR(status.st_mode)) fail(ErrorKind::io, "'{}' is a folder, not a file", path.string());
  if (!S_ISREG(status.st_mode)) fail(ErrorKind::io, "'{}' is not a regular file", path.string());
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return {path, std::exchange(file.fd, -1), nullptr, 0};
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED) {
    fail(ErrorKind::io, "cannot map '{}' ({} bytes): {}", path.string(), size, std::strerror(errno));
  }
  MappedFile result(path, std::exchange(file.fd, -1), static_cast<const std::byte*>(data), size);
  result.guard_ = MappingGuard(result.bytes());
  return result;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      guard_(std::move(other.guard_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    close();
    path_ = std::move(other.path_);
    descriptor_ = std::exchange(other.descriptor_, -1);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    guard_ = std::move(other.guard_);
  }
  return *this;
}

MappedFile::~MappedFile() { close(); }

void MappedFile::close() noexcept {
  guard_ = {};
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
  data_ = nullptr;
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

void MappedFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got = ::pread(descriptor_, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(ErrorKind::io, "cannot read '{}' at byte {}: {}", path_.string(), offset, std::strerror(errno));
    if (got == 0) fail(ErrorKind::io, "'{}' ends at byte {}: it was cut while in use", path_.string(), offset);
    offset += static_cast<std::uint64_t>(got);
    out = out.subspan(static_cast<std::size_t>(got));
  }
}

bool MappedFile::cut_short() const noexcept {
  if (guard_.cut_short()) return true;
  // The rest of the last page reads as zeros without any fault.
  struct stat status{};
  const bool shorter = size_ > 0 && ::fstat(descriptor_, &status) == 0 && std::cmp_less(status.st_size, size_);
  if (shorter) guard_.note_cut_short();
  return shorter;
}

void MappedFile::require_whole() const {
  if (!cut_short()) return;
  fail(ErrorKind::bad_file, "'{}' was cut short while it was being read, or its disk failed", path_.string());
}

void MappedFile::release_pages(std::size_t offset, std::size_t length) const noexcept {
  if (data_ == nullptr || offset >= size_) return;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  // Only pages that lie wholly inside the range: a neighbour's bytes stay mapped.
  const std::size_t first = (offset + page - 1) / page * page;
  const std::size_t last = (offset + std::min(length, size_ - offset)) / page * page;
  if (first < last) ::madvise(const_cast<std::byte*>(data_) + first, last - first, MADV_DONTNEED);
}

}  // namespace quarrel
