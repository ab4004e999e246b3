// A file mapped read-only into memory, and open for those who would rather read it. The mapping is private to the
// object and unmapped with it; views into `bytes()` must not outlive it. Immutable after `open`, so any thread may
// read. Who reads a file that somebody cuts short meanwhile gets zeros and not a signal: ask `cut_short` afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "base/mapping_guard.h"

namespace quarrel {

class MappedFile {
 public:
  // Throws Error (not_found, io) with the path in the message; a directory or other non-file is refused. An empty file
  // maps to an empty span.
  static MappedFile open(const std::filesystem::path& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }
  const std::filesystem::path& path() const noexcept { return path_; }

  // Reads bytes [offset, offset + out.size()) with the system's read call, so that a file which was cut or whose disk
  // fails gives Error(io) and no signal.
  void read(std::uint64_t offset, std::span<std::byte> out) const;

  // The file is shorter than when it was opened, or a read through the mapping has failed: what was read may be zeros.
  // Once it is so, it stays so.
  bool cut_short() const noexcept;
  // Throws Error(bad_file) then.
  void require_whole() const;

  // Gives the pages of a range back to the system; the page cache keeps the file warm, and a later read maps it again.
  void release_pages(std::size_t offset, std::size_t length) const noexcept;

 private:
  MappedFile(std::filesystem::path path, int descriptor, const std::byte* data, std::size_t size) noexcept
      : path_(std::move(path)), descriptor_(descriptor), data_(data), size_(size) {}
  void close() noexcept;

  std::filesystem::path path_;
  int descriptor_ = -1;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  MappingGuard guard_;
};

}  // namespace quarrel
