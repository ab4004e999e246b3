// A blob on its way into the store: `.pull-DIGEST`, held by one pull at a time, which others wait for. What it holds
// stays when a pull ends early. Used by registry_pull; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>

namespace quarrel {

class PartialBlob {
 public:
  // `wait` is called now and then while another pull has it; it may throw. Throws StoreFault.
  PartialBlob(const std::filesystem::path& folder, std::string_view digest, const std::function<void()>& wait);
  ~PartialBlob();
  PartialBlob(const PartialBlob&) = delete;
  PartialBlob& operator=(const PartialBlob&) = delete;

  std::uint64_t bytes() const noexcept { return bytes_; }
  const std::filesystem::path& path() const noexcept { return path_; }
  void append(std::span<const std::byte> bytes);
  void restart();  // from nothing
  // It is not what it should be, and goes with this; until then nobody else can have it.
  void discard() noexcept { bytes_ = 0; }
  void sync();  // to the disk; who moves it away still holds it

  // Removes those that nobody has gone on with for a week.
  static void clean_up(const std::filesystem::path& folder);

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t bytes_ = 0;
};

}  // namespace quarrel
