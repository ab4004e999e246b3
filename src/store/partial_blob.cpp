#include "store/partial_blob.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <system_error>
#include <thread>

#include "store/store_fault.h"

namespace quarrel {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = ".pull-";
constexpr std::chrono::hours kKept{24 * 7};
constexpr std::chrono::milliseconds kLook{100};

[[noreturn]] void refuse(int error) {
  throw StoreFault(fmt::format("the model store cannot be written: {}", std::strerror(error)),
                   StoreFault::is_full(error));
}

// Whether the path still names the open file: who had it before may have given it its final name.
bool names_open_file(const fs::path& path, int descriptor) {
  struct stat held{};
  struct stat named{};
  return ::fstat(descriptor, &held) == 0 && ::lstat(path.c_str(), &named) == 0 && held.st_ino == named.st_ino &&
         held.st_dev == named.st_dev;
}

}  // namespace

PartialBlob::PartialBlob(const fs::path& folder, std::string_view digest, const std::function<void()>& wait)
    : path_(folder / fmt::format("{}{}", kPrefix, digest)) {
  for (;;) {
    descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (descriptor_ < 0) refuse(errno);
    int fault = 0;
    while ((fault = ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 ? 0 : errno) == EWOULDBLOCK) {
      try {
        wait();
      } catch (...) {
        ::close(descriptor_);
        throw;
      }
      std::this_thread::sleep_for(kLook);
    }
    if (names_open_file(path_, descriptor_)) break;
    ::close(descriptor_);
  }
  struct stat status{};
  if (::fstat(descriptor_, &status) == 0) bytes_ = static_cast<std::uint64_t>(status.st_size);
}

PartialBlob::~PartialBlob() {
  if (bytes_ == 0) ::unlink(path_.c_str());
  ::close(descriptor_);
}

void PartialBlob::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) refuse(errno);
    bytes_ += static_cast<std::uint64_t>(written);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void PartialBlob::restart() {
  if (::ftruncate(descriptor_, 0) != 0) refuse(errno);
  bytes_ = 0;
}

void PartialBlob::sync() {
  if (::fsync(descriptor_) != 0) refuse(errno);
}

void PartialBlob::clean_up(const fs::path& folder) {
  std::error_code fault;
  for (fs::directory_iterator it(folder, fault), end; !fault && it != end; it.increment(fault)) {
    std::error_code ignored;
    if (!it->path().filename().string().starts_with(kPrefix) || !it->is_regular_file(ignored)) continue;
    const auto written = it->last_write_time(ignored);
    if (!ignored && fs::file_time_type::clock::now() - written > kKept) fs::remove(it->path(), ignored);
  }
}

}  // namespace quarrel
