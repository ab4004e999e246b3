// How the interpreter's parts say that a template cannot go on. ChatTemplate catches it and adds line and column; no
// other code sees it.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace quarrel::jinja {

class Fault : public std::runtime_error {
 public:
  explicit Fault(const std::string& message) : std::runtime_error(message) {}
  Fault(const std::string& message, std::size_t offset) : std::runtime_error(message), offset_(offset) {}

  // The byte of the source it happened at. Without one, where the interpreter stood.
  std::optional<std::size_t> offset() const noexcept { return offset_; }

 private:
  std::optional<std::size_t> offset_;
};

// The template spoke itself (raise_exception): its message is passed on as it is.
class RaisedByTemplate : public std::runtime_error {
 public:
  explicit RaisedByTemplate(const std::string& message) : std::runtime_error(message) {}
};

template <typename... Args>
[[noreturn]] void fault(fmt::format_string<Args...> format, Args&&... args) {
  throw Fault(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace quarrel::jinja
