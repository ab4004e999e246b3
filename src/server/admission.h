// Who may send what: looks at a request's head before its body is read. Host and Origin against pages from elsewhere,
// the key and what it may do, limits. What it decides on is the path that routes are found by, and nothing else.
//
// Threads: any; called on the threads of the sockets, so it never waits for a disk longer than a look at the file of
// keys takes, once a second.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "server/failed_keys.h"
#include "server/http/http_server.h"
#include "server/key_ring.h"
#include "server/limits.h"
#include "server/request_record.h"
#include "server/routes.h"

namespace quarrel {

struct AdmissionOptions {
  KeyRingOptions keys = {};
  std::vector<std::string> allowed_hosts = {};    // names that requests may be for, beside this machine's own
  std::vector<std::string> allowed_origins = {};  // of pages that may call, as "https://example.org"; "*": any
  bool open = false;                              // other machines may ask without a key: somebody wants it so
  bool public_metrics = false;                    // metrics need no key
  Clock::time_point (*now)() = Clock::now;
};

// Since the start.
struct AdmissionCounters {
  std::atomic<std::uint64_t> wrong_keys = 0, expired_keys = 0, revoked_keys = 0;
  std::atomic<std::uint64_t> limited_addresses = 0;  // refused for the wrong keys that came from there
  std::atomic<std::uint64_t> limited_keys = 0;       // refused for their own limits
  std::atomic<std::uint64_t> foreign_pages = 0;      // refused for their Host or Origin

  // The same with the names that metrics have.
  std::vector<std::pair<std::string, std::uint64_t>> by_reason() const;
};

class RequestAdmission {
 public:
  // `address`: what the server listens on. Throws what KeyRing throws, and Error(usage) for an address that others
  // reach where there are no keys and nobody wants it open, and for hosts and origins that could never match.
  RequestAdmission(AdmissionOptions options, std::string address, Limits& limits, Log& log);

  // Fills in `facts`. `ready`: false while the server is about to end.
  http::Admission decide(const http::Request& request, bool ready, RequestFacts& facts);
  // What the answer's head gets beside what its handler says.
  http::Headers answer_headers(const http::Request& request, const LimitTicket* ticket) const;

  // Whether it would still come in: a key may have been revoked since its connection was opened.
  bool accepts(const Caller& caller) { return keys_.accepts(caller); }
  const AdmissionCounters& counters() const noexcept { return counters_; }

 private:
  void check_page(const http::Request& request);
  bool host_is_known(std::string_view host) const;
  bool origin_is_listed(std::string_view origin) const;
  std::shared_ptr<const Caller> caller_of(const http::Request& request, const Route& route);
  std::shared_ptr<const Caller> owner_of(const http::Request& request, const std::string& key);
  void log_failure(const http::Request& request, std::string_view what, const std::string& name);
  http::Response preflight(const http::Request& request) const;

  const AdmissionOptions options_;
  const std::string address_;
  Log& log_;
  Limits& limits_;
  KeyRing keys_;
  FailedKeys failed_;
  AdmissionCounters counters_;
  std::mutex log_mutex_;
  TokenBucket log_lines_;  // guarded: guesses do not fill the disk
};

// The key that a request carries: in Authorization as Bearer or ApiKey, or offered by a browser's WebSocket among its
// subprotocols. Empty: none. Throws ApiError(400) for one in the URL, and for two.
std::string presented_key(const http::Request& request);

// Throws ApiError(403) for a caller of another role: for what only some requests to a route do.
void require_admin(const Caller& caller);

// "127.0.0.1", "::1", "localhost" and their like.
bool is_loopback_address(std::string_view address) noexcept;

}  // namespace quarrel
