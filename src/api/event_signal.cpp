#include "api/event_signal.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

#include "api/errors.h"

namespace quarrel::api {

EventSignal::~EventSignal() {
  if (made()) ::close(descriptor_);
}

void EventSignal::raise() noexcept {
  const int descriptor = descriptor_;
  if (descriptor < 0) return;
  const std::uint64_t one = 1;
  // It can only fail by being full, and then it is readable.
  [[maybe_unused]] const auto written = ::write(descriptor, &one, sizeof one);
}

void EventSignal::lower() noexcept {
  const int descriptor = descriptor_;
  if (descriptor < 0) return;
  std::uint64_t count = 0;
  // It can only fail by being empty, and then it is not readable.
  [[maybe_unused]] const auto taken = ::read(descriptor, &count, sizeof count);
}

int EventSignal::descriptor() {
  if (!made()) {
    const int descriptor = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (descriptor < 0) {
      refuse(ErrorKind::io, "no event descriptor could be made: {}", std::generic_category().message(errno));
    }
    descriptor_ = descriptor;
  }
  return descriptor_;
}

}  // namespace quarrel::api
