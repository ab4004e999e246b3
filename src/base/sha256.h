// SHA-256 of bytes and files, in lower-case hexadecimal. A Sha256 belongs to one thread; the functions may be called
// from any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>

namespace quarrel {

class Sha256 {
 public:
  Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  ~Sha256();

  void update(std::span<const std::byte> bytes);
  // The digest of everything so far, 64 digits; nothing may follow.
  std::string finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

std::string sha256(std::string_view text);

// Reads the file in pieces and calls `progress` with the bytes done and in all after each. Throws Error: not_found, io,
// or cancelled when `stop` was asked for.
using HashProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;
std::string sha256_file(const std::filesystem::path& path, const HashProgress& progress = {},
                        const std::stop_token& stop = {});

}  // namespace quarrel
