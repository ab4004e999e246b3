// A file that is written piece by piece and appears whole or not at all: the bytes go to a temporary file beside it,
// which `commit` renames over it and the destructor otherwise removes. One thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace quarrel {

class OutputFile {
 public:
  explicit OutputFile(const std::filesystem::path& path);  // throws Error(io)
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::span<const std::byte> bytes);  // throws Error(io)
  void commit();                                 // throws Error(io); nothing may follow

 private:
  [[noreturn]] void refuse(const char* action) const;

  std::filesystem::path path_;
  std::filesystem::path pending_;
  int descriptor_ = -1;
};

}  // namespace quarrel
