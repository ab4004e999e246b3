// What a command writes to the path that a user gave. Used by the commands and the GGUF writer; one thread.
//
// A regular file appears whole or not at all: the bytes go to a temporary file beside it, which `commit` renames over
// it and the destructor otherwise removes. A symbolic link stays, and what it points to is replaced so. Everything
// else (a device, a FIFO, /dev/stdout, the shell's `>(command)`) is opened and written to as the bytes come.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace quarrel {

enum class OutputAccess {
  as_usual,  // what the process's mask leaves; that of the file which is replaced
  owner,     // mode 0600 from its first byte on, and on the disk before it takes its name: for secrets
};

// Every function throws Error(io), which names the path as the user gave it. A folder is Error(usage). Opening a FIFO
// that nobody reads and writing to one that is full waits, and throws Error(cancelled) when a signal ends the wait.
class OutputFile {
 public:
  explicit OutputFile(const std::filesystem::path& path, OutputAccess access = OutputAccess::as_usual);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void commit();  // nothing may follow

 private:
  void create_pending(const std::filesystem::path& target);
  [[noreturn]] void interrupted(const char* doing) const;
  [[noreturn]] void refuse(int error) const;

  const OutputAccess access_;
  std::filesystem::path path_;     // as the user gave it
  std::filesystem::path target_;   // what `pending_` is renamed to
  std::filesystem::path pending_;  // empty: `descriptor_` is the target itself
  int descriptor_ = -1;
};

}  // namespace quarrel
