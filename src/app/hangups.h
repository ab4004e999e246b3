// SIGHUP, which asks a server to reopen its files. Used by `serve`, on the main thread.
#pragma once

#include <csignal>

namespace quarrel {

// While an object of this class lives, SIGHUP sets a flag instead of ending the process. At most one object at a time.
class Hangups {
 public:
  Hangups();
  ~Hangups();
  Hangups(const Hangups&) = delete;
  Hangups& operator=(const Hangups&) = delete;

  bool take() noexcept;  // whether one came since the last call

 private:
  struct sigaction old_ = {};
};

}  // namespace quarrel
