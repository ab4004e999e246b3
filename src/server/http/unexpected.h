// What a connection does with exceptions that only want of memory should bring.
#pragma once

#include <exception>
#include <new>
#include <string_view>

#include "base/log.h"

namespace quarrel::http {

// Any other is a fault of ours, which somebody should know of. Without memory nothing is said: there may be thousands.
inline void log_unexpected(Log& log, std::string_view where, const std::exception& error) noexcept {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return;
  log.try_warn("something went wrong in {}: {}", where, error.what());
}

// What a coroutine has ended with; null: nothing went wrong.
inline void log_unexpected(Log& log, std::string_view where, const std::exception_ptr& error) noexcept {
  try {
    if (error != nullptr) std::rethrow_exception(error);
  } catch (const std::exception& known) {
    log_unexpected(log, where, known);
  } catch (...) {
    log.try_warn("something went wrong in {}", where);
  }
}

}  // namespace quarrel::http
