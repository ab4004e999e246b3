// A file of entries that only grows, for what must be known after a crash. An entry that was synced is there whole; one
// that was cut short, and all that follows it, is as if it had never been written.
//
// Layout: a line that names format and version; then entries of a length (32 bits), a kind (8 bits), so many bytes, and
// a checksum (64 bits) over all of these. Numbers lie with their low byte first.
//
// One process at a time has a file open, one thread at a time uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/descriptor.h"

namespace quarrel {

class JournalFile {
 public:
  using Visitor = std::function<void(std::uint8_t kind, std::string_view payload)>;

  // Makes it and the folders above it where they are missing; else calls `visitor` with each entry and drops a torn
  // tail. Throws Error: io, busy where another process has it, bad_file where it is something else or of another
  // version.
  JournalFile(std::filesystem::path path, const Visitor& visitor);

  // At its end. Throws Error(io); then nothing was added.
  void append(std::uint8_t kind, std::string_view payload);
  // All that was appended is on the disk when this returns. Throws Error(io).
  void sync();

  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::string read_whole() const;
  void write_first_line();
  void write_at(std::uint64_t offset, std::string_view bytes);
  [[noreturn]] void refuse(const char* what) const;

  const std::filesystem::path path_;
  Descriptor file_;
  std::uint64_t size_ = 0;  // of what is valid
};

// Numbers in a payload.
void put_u32(std::string& payload, std::uint32_t value);
void put_u64(std::string& payload, std::uint64_t value);
// Take a number from its front. Throw Error(bad_file) where there is none.
std::uint32_t take_u32(std::string_view& payload);
std::uint64_t take_u64(std::string_view& payload);

}  // namespace quarrel
