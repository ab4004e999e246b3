#include "base/error.h"

namespace quarrel {

int exit_code(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::usage: return 2;
    case ErrorKind::cancelled: return 130;  // as a shell reports a program that Ctrl-C ended
    default: return 1;
  }
}

}  // namespace quarrel
