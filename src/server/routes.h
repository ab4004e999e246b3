// Every endpoint, a row each: how it is called, who may call it, what it may send, who answers. Dispatch, the
// documentation and tests read the one table.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "server/api_error.h"
#include "server/http/exchange.h"
#include "server/operation.h"
#include "server/service.h"

namespace quarrel {

enum class Dialect : std::uint8_t { openai, native };  // how errors are said
// Who may call it, where there are keys.
enum class Access : std::uint8_t {
  everybody,
  metrics,  // whoever has a key; everybody if the settings say so
  key,
  admin,  // whoever has a key of that role
};

struct Route {
  std::string_view method;
  std::string_view path;  // "{…}", one at most, stands for any text, slashes included
  Access access = Access::key;
  Dialect dialect = Dialect::native;
  std::uint64_t body_bytes = 0;  // the most
  bool quick = false;            // answered where the request was read, without waiting for a thread
  void (*handle)(Service&, const std::shared_ptr<http::Exchange>&) = nullptr;
  std::string_view summary = {};
  Operation (*describe)() = nullptr;  // what else the documentation says of it
};

std::span<const Route> routes() noexcept;

struct RouteMatch {
  const Route* route = nullptr;  // null: none
  std::string allowed = {};      // methods that the path has, where the method is the fault; empty: no such path
};
RouteMatch find_route(std::string_view method, std::string_view path);

// What stands in the place of "{…}" in a path that has a route; empty where the route has none.
std::string route_argument(std::string_view method, std::string_view path);

// What an error on this path is to look like.
Dialect dialect_of(std::string_view path) noexcept;
http::Response error_answer(Dialect dialect, const ApiError& error);

}  // namespace quarrel
