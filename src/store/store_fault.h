// The store cannot be written: the fault is with this machine, whatever was to be stored. What it says holds no path.
#pragma once

#include <cerrno>
#include <string>

#include "base/error.h"

namespace quarrel {

class StoreFault : public Error {
 public:
  StoreFault(const std::string& message, bool full) : Error(ErrorKind::io, message), full_(full) {}
  bool full() const noexcept { return full_; }  // there is no room

  static bool is_full(int error) noexcept { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

 private:
  bool full_;
};

}  // namespace quarrel
