// A walk through the table of routes.
#include "server/routes.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace quarrel {
namespace {

constexpr std::string_view kName = "org/a:b";

std::string example(const Route& route) {
  std::string path(route.path);
  const std::size_t open = path.find('{');
  return open == std::string::npos ? path : path.replace(open, path.find('}') + 1 - open, kName);
}

TEST(Routes, EachIsFoundAndNoneHidesAnother) {
  std::set<std::pair<std::string_view, std::string_view>> seen;
  for (const Route& route : routes()) {
    EXPECT_TRUE(seen.emplace(route.method, route.path).second) << route.path;
    EXPECT_EQ(find_route(route.method, example(route)).route, &route) << route.path;
    EXPECT_EQ(route_argument(route.method, example(route)), route.path.find('{') < route.path.size() ? kName : "");
    EXPECT_NE(route.handle, nullptr) << route.path;
    EXPECT_FALSE(route.summary.empty()) << route.path;
    EXPECT_EQ(route.dialect, dialect_of(route.path)) << route.path;
    EXPECT_EQ(route.method != "GET", route.body_bytes > 0) << route.path;
    EXPECT_EQ(find_route("HEAD", example(route)).route, route.method == "GET" ? &route : nullptr) << route.path;
    const RouteMatch other = find_route("PATCH", example(route));
    EXPECT_EQ(other.route, nullptr);
    EXPECT_NE(other.allowed.find(route.method), std::string::npos) << other.allowed;
  }
}

TEST(Routes, ANameMayStandInTheMiddle) {
  EXPECT_EQ(find_route("POST", "/api/models/a/load").route->path, "/api/models/{name}/load");
  EXPECT_EQ(route_argument("POST", "/api/models/a/b:c/load"), "a/b:c");
  EXPECT_EQ(route_argument("POST", "/api/models/load/load"), "load");
  EXPECT_EQ(route_argument("GET", "/api/models/a/loader"), "a/loader");
  EXPECT_EQ(route_argument("GET", "/healthz"), "");
  EXPECT_EQ(find_route("GET", "/api/models/a/load").route, nullptr) << "the more exact path decides on the method";
  EXPECT_EQ(find_route("GET", "/api/models/a/load").allowed, "POST");
  EXPECT_EQ(find_route("POST", "/api/models//load").route, nullptr);
  EXPECT_EQ(find_route("POST", "/api/models/load").allowed, "GET, HEAD") << "a model called load";
}

// What needs no key is this list; whoever adds to it does so on purpose.
TEST(Routes, OnlyTheseAreOpenToEverybody) {
  std::set<std::string_view> open;
  for (const Route& route : routes()) {
    if (route.access != Access::everybody) continue;
    open.insert(route.path);
    EXPECT_TRUE(route.quick) << "health never waits for a thread: " << route.path;
  }
  EXPECT_EQ(open, (std::set<std::string_view>{"/", "/api/health", "/assets/{name}", "/docs", "/docs/page.css",
                                              "/docs/page.js", "/embeddings", "/health", "/healthz", "/openapi.json",
                                              "/openapi.yaml", "/readyz", "/status", "/v1/health"}));
}

// The guide's table of endpoints: each path with what its column `key` says.
std::map<std::string, std::string> told_keys() {
  std::ifstream guide(QUARREL_GUIDE);
  std::map<std::string, std::string> told;
  for (std::string line; std::getline(guide, line);) {
    std::vector<std::string> cells;
    std::istringstream row(line);
    for (std::string cell; std::getline(row, cell, '|');) cells.push_back(cell);
    if (cells.size() < 5 || (cells[3] != " no " && cells[3] != " yes " && cells[3] != " admin ")) continue;
    for (std::size_t at = cells[2].find("`/"); at != std::string::npos; at = cells[2].find("`/", at)) {
      const std::size_t end = cells[2].find('`', at + 1);
      told[cells[2].substr(at + 1, end - at - 1)] = cells[3].substr(1, cells[3].size() - 2);
      at = end + 1;
    }
  }
  return told;
}

TEST(Routes, TheGuideSaysWhichNeedAKey) {
  std::map<std::string, std::string> told = told_keys();
  for (const Route& route : routes()) {
    const std::string path(route.path);
    if (route.access == Access::everybody) {
      EXPECT_EQ(told[path], "no") << path;
    } else if (told.contains(path)) {
      EXPECT_EQ(told[path], route.access == Access::admin ? "admin" : "yes") << path;
    }
  }
  EXPECT_GE(told.size(), 30u);
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
