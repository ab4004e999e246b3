#include "base/descriptor.h"

#include <cerrno>
#include <system_error>

#include "base/error.h"

namespace quarrel {

std::string read_all(int descriptor, std::string_view what, std::size_t limit) {
  std::string text;
  constexpr std::size_t kPiece = 64u << 10;
  for (;;) {
    const std::size_t had = text.size();
    text.resize(had + kPiece);
    const ssize_t got = ::read(descriptor, text.data() + had, kPiece);
    if (got < 0) {
      const int error = errno;
      if (error == EINTR) fail(ErrorKind::cancelled, "interrupted while reading {}", what);
      fail(ErrorKind::io, "cannot read {}: {}", what, std::generic_category().message(error));
    }
    text.resize(had + static_cast<std::size_t>(got));
    if (got == 0) return text;
    if (text.size() > limit) fail(ErrorKind::bad_input, "{} is longer than {} bytes", what, limit);
  }
}

}  // namespace quarrel
