// A file of entries that only grows, for what must be known after a crash. An entry that was synced is there whole; a
// last one that was cut short is as if it had never been written. An entry that is damaged while whole ones follow it
// is something else: then the file is refused and left as it is.
//
// Layout: a line that names format and version; then entries of a length (32 bits), a kind (8 bits, a capital letter),
// so many bytes, and a checksum (64 bits) over all of these. Numbers lie with their low byte first.
//
// One process at a time writes a file; who only reads it is in nobody's way. One thread at a time uses it. Who writes
// now and then lets others write in between (`release`), and reads only what they have added (`resume`).
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

enum class JournalAccess { read, write };

class JournalFile {
 public:
  using Visitor = std::function<void(std::uint8_t kind, std::string_view payload)>;

  // To write, makes it and the folders above it where they are missing; else calls `visitor` with each entry, and drops
  // a torn tail. To read, it has to be there, and nothing of it is changed. Throws Error: io, busy where another
  // process writes it, bad_file where it is something else, of another version, or damaged before its end.
  JournalFile(std::filesystem::path path, JournalAccess access, const Visitor& visitor);

  // At its end; only of one that was opened to write. Throws Error(io); then nothing was added.
  void append(std::uint8_t kind, std::string_view payload);
  // Drops all entries; as above.
  void clear();
  // All that was appended is on the disk when this returns. Throws Error(io).
  void sync();

  // Lets others write it. Throws Error(io).
  void release();
  // Takes it again, and calls `visitor` with each entry that was added since. False: it was replaced by another file,
  // or lacks what it had, and has to be opened anew. Throws as opening it does; after that it cannot be used.
  bool resume(const Visitor& visitor);
  // Removes it, while nobody else may write it: for one that says nothing. It has to go after that.
  void discard() noexcept;

  const std::filesystem::path& path() const noexcept { return path_; }
  // How much of it was read, all in all.
  std::uint64_t bytes_read() const noexcept { return bytes_read_; }

 private:
  void lock();
  std::string read_from(std::uint64_t offset);
  // The last bytes of what is valid: who has them has what came before.
  std::string ending();
  // `content` begins at size_. What of it is no whole entry is cut off where `writes`.
  void take_entries(std::string_view content, bool writes, const Visitor& visitor);
  void write_first_line();
  void write_at(std::uint64_t offset, std::string_view bytes);
  [[noreturn]] void refuse(const char* what) const;
  [[noreturn]] void refuse_two() const;  // who would write it

  const std::filesystem::path path_;
  Descriptor file_;
  std::uint64_t size_ = 0;  // of what is valid
  std::string ending_;      // while others may write it
  std::uint64_t bytes_read_ = 0;
};

// Numbers in a payload.
void put_u32(std::string& payload, std::uint32_t value);
void put_u64(std::string& payload, std::uint64_t value);
// Take a number from its front. Throw Error(bad_file) where there is none.
std::uint32_t take_u32(std::string_view& payload);
std::uint64_t take_u64(std::string_view& payload);

}  // namespace quarrel
