// Requests that the server itself makes, to fetch models and to send traces: over HTTP/1.1 or TLS, to hosts that are
// named beforehand and to no other, redirections included. Blocks the thread that calls; everything has a limit in
// time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/message.h"

namespace quarrel::http {

// http://host:port/target and https://. One way to write it: no user, no fragment, no escapes or spaces in the host.
struct Url {
  bool secure = false;
  std::string host = {};  // in small letters; an IPv6 address without its brackets
  std::uint16_t port = 0;
  std::string target = {};  // with the query; begins with a slash

  static std::optional<Url> parse(std::string_view text);
  // "host", with the port where it is not the scheme's own; an IPv6 address in brackets.
  std::string authority() const;
};

struct FetchOptions {
  // Hosts that may be asked, as `Url::authority` has them.
  std::vector<std::string> allowed_hosts = {};
  Headers headers = {};
  std::uint64_t offset = 0;              // of the first byte that is wanted
  std::optional<std::string> post = {};  // a body that is sent; none: the request is a GET
  std::chrono::seconds connect_within = std::chrono::seconds(10);
  std::chrono::seconds silence = std::chrono::seconds(60);  // between two pieces
  std::stop_token stop = {};
};

// `take` gets the status, 200 or 206, and the bytes as they come; what it throws ends the request. Gives the status of
// the last answer. Throws Error: io where no whole answer comes, unsupported for a host that is not allowed, cancelled.
using TakeBytes = std::function<void(unsigned status, std::span<const std::byte> bytes)>;
unsigned fetch(const Url& url, const FetchOptions& options, const TakeBytes& take);

}  // namespace quarrel::http
