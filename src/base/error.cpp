#include "base/error.h"

namespace quarrel {

int exit_code(ErrorKind kind) noexcept { return kind == ErrorKind::usage ? 2 : 1; }

}  // namespace quarrel
