// The events of one request, from the engine's thread to whoever waits for them. Any thread may read, one at a time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "engine/request.h"

namespace quarrel {

class TokenStream {
 public:
  explicit TokenStream(std::int32_t branches) : unfinished_(branches) {}

  // The next event; waits for it. None: every branch has finished and all was read.
  std::optional<TokenEvent> next();
  // The same, but none also when nothing came in time; `done` tells which it was.
  std::optional<TokenEvent> next_within(std::chrono::microseconds time);
  bool done() const;

  // The engine's side. False: there was no memory for an event; the reader will still get the end.
  bool put(std::span<TokenEvent> events) noexcept;

 private:
  bool has_something() const { return !events_.empty() || unfinished_ == 0; }
  std::optional<TokenEvent> take();

  mutable std::mutex mutex_;
  std::condition_variable came_;
  std::deque<TokenEvent> events_;
  std::int32_t unfinished_;        // branches
  std::int32_t lost_endings_ = 0;  // of branches that have finished, but could not be reported
};

}  // namespace quarrel
