// A file descriptor that is readable while somebody says so: an eventfd, made when it is first asked for. `raise` may
// be called by any thread, the rest by one.
#pragma once

#include <atomic>

namespace quarrel::api {

class EventSignal {
 public:
  EventSignal() = default;
  ~EventSignal();
  EventSignal(const EventSignal&) = delete;
  EventSignal& operator=(const EventSignal&) = delete;

  void raise() noexcept;  // nothing happens before there is a descriptor
  void lower() noexcept;
  bool made() const noexcept { return descriptor_ >= 0; }
  int descriptor();  // throws Error(io)

 private:
  std::atomic<int> descriptor_ = -1;
};

}  // namespace quarrel::api
