// What ends one request or one load. Thrown as `Error`, caught at the edges (main, the engine's step guard, a
// connection) and mapped there, in one function, to an exit code or a status. Expected outcomes are return values;
// impossible ones are asserts, and nothing a user can send may reach an assert.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace quarrel {

enum class ErrorKind {
  usage,          // the command line or the call is malformed
  not_found,      // a file, a model or a name that is not there
  bad_file,       // a file from outside is damaged or hostile
  bad_input,      // text, tokens, templates or parameters from outside are unusable
  unsupported,    // well-formed, but not something this build can do
  out_of_memory,  // it would not fit, or it did not
  io,             // the operating system refused
  busy,           // not now: too much waits already
  cancelled,      // somebody asked for it to stop
  device_lost,    // nothing on the device will work again in this process
  internal,       // our own mistake, reported instead of crashing
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

// The process's exit code for an error: 2 for usage, 130 for cancelled, 1 for everything else.
int exit_code(ErrorKind kind) noexcept;

template <typename... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace quarrel
