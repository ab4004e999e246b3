#include "base/secure_random.h"

#include <sys/random.h>

#include <cerrno>

#include "base/error.h"

namespace quarrel {

void fill_with_random(std::span<unsigned char> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::getrandom(bytes.data(), bytes.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail(ErrorKind::io, "the system gives no random bytes");
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

std::string hex_of(std::span<const unsigned char> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const unsigned char byte : bytes) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

}  // namespace quarrel
