#include "base/sha256.h"

#include <openssl/evp.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "base/error.h"
#include "base/printable.h"

namespace quarrel {
namespace {

void require(int done) {
  if (done != 1) fail(ErrorKind::internal, "the SHA-256 implementation refused to work");
}

}  // namespace

struct Sha256::Context {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() { EVP_MD_CTX_free(evp); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  if (context_->evp == nullptr) throw std::bad_alloc();
  require(EVP_DigestInit_ex(context_->evp, EVP_sha256(), nullptr));
}

Sha256::~Sha256() = default;

void Sha256::update(std::span<const std::byte> bytes) {
  require(EVP_DigestUpdate(context_->evp, bytes.data(), bytes.size()));
}

std::string Sha256::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  require(EVP_DigestFinal_ex(context_->evp, digest.data(), &size));
  std::string text;
  for (unsigned int i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

std::string sha256(std::string_view text) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(text)));
  return hash.finish();
}

std::string sha256_file(const std::filesystem::path& path, const HashProgress& progress, const std::stop_token& stop) {
  constexpr std::size_t kPiece = 1 << 20;
  std::error_code fault;
  const std::uint64_t total = std::filesystem::file_size(path, fault);
  if (fault) {
    const auto kind = fault == std::errc::no_such_file_or_directory ? ErrorKind::not_found : ErrorKind::io;
    fail(kind, "cannot read '{}': {}", printable(path.string(), 512), fault.message());
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(ErrorKind::io, "cannot open '{}': {}", printable(path.string(), 512), std::strerror(errno));
  Sha256 hash;
  std::vector<char> piece(kPiece);
  std::uint64_t done = 0;
  while (file) {
    if (stop.stop_requested()) fail(ErrorKind::cancelled, "checking '{}' was cancelled", printable(path.string(), 512));
    file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    const auto count = static_cast<std::size_t>(file.gcount());
    hash.update(std::as_bytes(std::span(piece).first(count)));
    done += count;
    if (progress) progress(done, total);
  }
  if (file.bad()) fail(ErrorKind::io, "cannot read '{}' to its end", printable(path.string(), 512));
  return hash.finish();
}

}  // namespace quarrel
