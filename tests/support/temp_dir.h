// A folder of a test's own, removed with all it holds when the object goes.
#pragma once

#include <filesystem>
#include <string_view>

namespace quarrel::test {

class TempDir {
 public:
  TempDir();  // throws Error(io)
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace quarrel::test
