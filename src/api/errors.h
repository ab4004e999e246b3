// What the library throws inside becomes what the public headers promise. Stateless.
#pragma once

#include <fmt/format.h>

#include <exception>
#include <new>
#include <string>
#include <utility>

#include "base/error.h"
#include "quarrel/quarrel.h"

namespace quarrel::api {

ErrorKind kind_of(quarrel::ErrorKind kind) noexcept;

template <typename... Args>
[[noreturn]] void refuse(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

// Runs work of the library's own. Callbacks of the user's are not to throw through it: see Caught.
template <typename Work>
auto guarded(Work&& work) -> decltype(work()) {
  try {
    return std::forward<Work>(work)();
  } catch (const Error&) {
    throw;
  } catch (const quarrel::Error& error) {
    throw Error(kind_of(error.kind()), error.what());
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::out_of_memory, "there is not enough memory");
  } catch (const std::exception& error) {
    throw Error(ErrorKind::internal, error.what());
  }
}

// Keeps what a user's callback throws while the library puts its things in order, and throws it again afterwards.
class Caught {
 public:
  // What the callback says; false when it threw.
  template <typename Callback>
  bool call(Callback&& callback) noexcept {
    try {
      return std::forward<Callback>(callback)();
    } catch (...) {
      thrown_ = std::current_exception();
      return false;
    }
  }
  bool thrown() const noexcept { return thrown_ != nullptr; }
  void rethrow() const {
    if (thrown_) std::rethrow_exception(thrown_);
  }

 private:
  std::exception_ptr thrown_ = {};
};

}  // namespace quarrel::api
