// Which process something was made in. A forked child has the memory of a model but none of its threads: calls there
// would wait forever, so they are refused, and what would be ended is left alone. Any thread.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include "api/errors.h"

namespace quarrel::api {

class HomeProcess {
 public:
  HomeProcess() noexcept : id_(::getpid()) {}

  bool here() const noexcept { return ::getpid() == id_; }
  void require() const {
    if (here()) return;
    refuse(ErrorKind::usage, "the model belongs to process {}; after a fork only that process can use it", id_);
  }

 private:
  pid_t id_;
};

}  // namespace quarrel::api
