// One request to another server, for whoever may wait: a POST over a connection of its own, within a time limit.
//
// Threads: any; the caller's waits.
#pragma once

#include <chrono>
#include <string>

namespace quarrel::http {

struct Post {
  std::string host = {}, port = {}, target = {};
  std::string content_type = {};
  std::string body = {};
  std::chrono::milliseconds time_limit = std::chrono::seconds(5);  // from the connection's beginning to the answer
};

struct PostResult {
  unsigned status = 0;  // 0: there was no answer
};

PostResult post(const Post& request);

}  // namespace quarrel::http
