// Which readers of bodies are fuzzed: a row an endpoint that takes a body. A test compares them with the routes.
#pragma once

#include <span>
#include <string_view>

namespace quarrel::fuzz {

struct BodyReader {
  std::string_view path;
  void (*read)(std::string_view body);  // throws ApiError
};
std::span<const BodyReader> body_readers() noexcept;

}  // namespace quarrel::fuzz
