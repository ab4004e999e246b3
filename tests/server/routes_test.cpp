// A walk through the table of routes.
#include "server/routes.h"

#include <gtest/gtest.h>

#include <set>

namespace quarrel {
namespace {

std::string example(const Route& route) {
  const std::size_t open = route.path.find('{');
  return open == std::string_view::npos ? std::string(route.path) : std::string(route.path.substr(0, open)) + "org/a:b";
}

TEST(Routes, EachIsFoundAndNoneHidesAnother) {
  std::set<std::pair<std::string_view, std::string_view>> seen;
  for (const Route& route : routes()) {
    EXPECT_TRUE(seen.emplace(route.method, route.path).second) << route.path;
    EXPECT_EQ(find_route(route.method, example(route)).route, &route) << route.path;
    EXPECT_NE(route.handle, nullptr) << route.path;
    EXPECT_FALSE(route.summary.empty()) << route.path;
    EXPECT_EQ(route.dialect, dialect_of(route.path)) << route.path;
    EXPECT_EQ(route.method != "GET", route.body_bytes > 0) << route.path;
    EXPECT_EQ(find_route("HEAD", example(route)).route, route.method == "GET" ? &route : nullptr) << route.path;
    const RouteMatch other = find_route("PATCH", example(route));
    EXPECT_EQ(other.route, nullptr);
    EXPECT_EQ(other.allowed, route.method);
  }
}

// What needs no key is this list; whoever adds to it does so on purpose.
TEST(Routes, OnlyTheseAreOpenToEverybody) {
  std::set<std::string_view> open;
  for (const Route& route : routes()) {
    if (route.access != Access::everybody) continue;
    open.insert(route.path);
    EXPECT_TRUE(route.quick) << "health never waits for a thread: " << route.path;
  }
  EXPECT_EQ(open, (std::set<std::string_view>{"/", "/api/health", "/api/version", "/docs", "/docs/page.css",
                                              "/docs/page.js", "/health", "/healthz", "/openapi.json", "/openapi.yaml",
                                              "/readyz", "/version"}));
}

TEST(Routes, WhatIsNotThereIsNotFound) {
  for (const char* path : {"", "/v1", "/v1/", "/v1/models/", "/v1/model", "/health/", "/Health", "/healthzz"}) {
    const RouteMatch match = find_route("GET", path);
    EXPECT_EQ(match.route, nullptr) << path;
    EXPECT_EQ(match.allowed, "") << path;
  }
}

}  // namespace
}  // namespace quarrel
