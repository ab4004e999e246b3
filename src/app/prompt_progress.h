// A sign of life while a model reads a prompt: how many of its tokens are read, shown once that takes longer than half
// a second and erased before the answer. Bytes out; the caller has the clock and the terminal, and calls often enough.
// Used by the chat for a terminal that can move its cursor. One thread.
#pragma once

#include <cstddef>
#include <string>

#include "app/style.h"
#include "base/clock.h"

namespace quarrel {

class PromptProgress {
 public:
  PromptProgress(Palette palette, Clock::time_point start) : palette_(palette), start_(start) {}

  // What to write, often nothing. `total` tokens are to be read, `done` are; with a total of 0 only that it works.
  std::string update(std::size_t done, std::size_t total, int columns, Clock::time_point now);
  // Erases what is shown. After it nothing is shown any more.
  std::string finish();

 private:
  Palette palette_;
  Clock::time_point start_;
  Clock::time_point drawn_{};
  std::string shown_;
  bool finished_ = false;
};

}  // namespace quarrel
