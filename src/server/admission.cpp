#include "server/admission.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "server/api_error.h"
#include "server/base64.h"
#include "server/http/sender.h"
#include "server/native_stream.h"
#include "server/resume_point.h"
#include "server/ws_session.h"

namespace quarrel {
namespace {

constexpr std::string_view kKeyProtocol = "quarrel.key.";
constexpr std::int64_t kLogLinesAMinute = 60;

// Without the port: "[::1]:8080" and "localhost:8080" are [::1] and localhost.
std::string_view host_name(std::string_view host) noexcept {
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1);
  return host.substr(0, host.find(':'));
}

// The port, or nothing, behind the name: else two readers could take different parts of it for the host.
bool is_host(std::string_view host) noexcept {
  const std::string_view name = host_name(host);
  const std::string_view behind = host.substr(name.size());
  const std::string_view inside = name.starts_with('[') ? name.substr(1, name.size() - 2) : name;
  constexpr std::size_t kLongestPort = 5;
  const bool port = behind.empty() || (behind.starts_with(':') && behind.size() <= 1 + kLongestPort &&
                                       behind.find_first_not_of("0123456789", 1) == std::string_view::npos);
  return !inside.empty() && port && inside.find_first_of("[]@/?#\\ \t,") == std::string_view::npos;
}

// 127.0.0.1 and its neighbours, but not 127.example.org, which is whoever's it is.
bool is_loopback_number(std::string_view name) noexcept {
  return name.starts_with("127.") && name.find_first_not_of("0123456789.") == std::string_view::npos;
}

// A number, which no name server can point elsewhere.
bool is_address(std::string_view name) {
  std::array<unsigned char, sizeof(in6_addr)> ignored{};
  if (name.starts_with('[') && name.ends_with(']')) {
    return ::inet_pton(AF_INET6, std::string(name.substr(1, name.size() - 2)).c_str(), ignored.data()) == 1;
  }
  return ::inet_pton(AF_INET, std::string(name).c_str(), ignored.data()) == 1;
}

// As the header Host has it, without a port.
bool may_be_host(std::string_view text) {
  constexpr std::string_view kCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";
  return is_address(text) || (!text.empty() && text.find_first_not_of(kCharacters) == std::string_view::npos);
}

// As browsers write it: scheme and host, and a port that is not the scheme's own. Programs that show pages have schemes
// of their own.
bool may_be_origin(std::string_view text) {
  if (text == "*" || text == "null") return true;
  const std::size_t mark = text.find("://");
  if (mark == 0 || mark == std::string_view::npos) return false;
  const std::string_view scheme = text.substr(0, mark), place = text.substr(mark + 3), host = host_name(place);
  const std::string_view port = place.substr(std::min(host.size(), place.size()));
  const bool own = (scheme == "http" && port == ":80") || (scheme == "https" && port == ":443");
  const bool number =
      port.starts_with(':') && port.size() > 1 && port.find_first_not_of("0123456789", 1) == std::string_view::npos;
  return may_be_host(host) && !own && (port.empty() || number);
}

// What could never match is a mistake.
void check_pages(const AdmissionOptions& options) {
  for (const std::string& host : options.allowed_hosts) {
    if (may_be_host(host)) continue;
    fail(ErrorKind::usage, "'{}' cannot be an allowed host: give its name alone, without a scheme or a port",
         printable(host));
  }
  for (const std::string& origin : options.allowed_origins) {
    if (may_be_origin(origin)) continue;
    fail(ErrorKind::usage,
         "'{}' cannot be an allowed origin: give scheme and host, and a port that is not the scheme's own, as in "
         "https://example.org or http://localhost:3000; * allows every page",
         printable(origin));
  }
}

// A page of the server's own.
bool is_own_origin(std::string_view origin, std::string_view host) noexcept {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (origin.starts_with(scheme)) return http::equals_ignoring_case(origin.substr(scheme.size()), host);
  }
  return false;
}

bool is_preflight(const http::Request& request) noexcept {
  return request.method == "OPTIONS" && !request.header("Origin").empty() &&
         !request.header("Access-Control-Request-Method").empty();
}

// Addresses end up in logs, histories and other servers' statistics. Looked at as whoever reads the log would decode
// them.
void refuse_key_in_url(std::string_view query) {
  constexpr std::array<std::string_view, 8> kNames = {"key",   "api_key",      "apikey",    "api-key",
                                                      "token", "access_token", "x-api-key", "authorization"};
  bool found = http::percent_decoded(query).find("qk_") != std::string::npos;
  while (!query.empty() && !found) {
    const std::size_t end = std::min(query.find('&'), query.size());
    const std::string name = http::percent_decoded(query.substr(0, std::min(query.find('='), end)));
    found = std::ranges::any_of(kNames, [&](std::string_view each) { return http::equals_ignoring_case(name, each); });
    query.remove_prefix(std::min(end + 1, query.size()));
  }
  if (found) {
    throw ApiError(400, "invalid_request_error", "key_in_url",
                   "a key does not belong in a URL, where logs keep it: send it as 'Authorization: Bearer …'");
  }
}

// Of somebody who passes on what others send.
bool is_forwarded(const http::Request& request) noexcept {
  return std::ranges::any_of(std::array{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP", "Via"},
                             [&](const char* name) { return !request.header(name).empty(); });
}

ApiError wrong_key(const std::string& message) { return {401, "authentication_error", "invalid_api_key", message}; }

// One place in the queue for each machine that asks without a key.
std::shared_ptr<const Caller> anonymous(const http::Request& request, Role role, std::string_view credential = {}) {
  return std::make_shared<const Caller>(Caller{.credential = std::string(credential),
                                               .role = role,
                                               .key = std::hash<std::string>{}(http::sender_of(request.address))});
}

// Whoever takes up an answer that lost its connection, or ends it, asks for no further one: that one runs, and has its
// place. If there is none, its handler charges for that. Over a WebSocket each question is charged by itself.
Limits::Kind kind_of(const http::Request& request, const Route& route) noexcept {
  const bool is_of_an_answer = (route.handle == native_stream || route.handle == stop_stream) &&
                               read_resume_point(request.header("Last-Event-ID"));
  if (is_of_an_answer || route.handle == open_websocket) return Limits::Kind::passage;
  return route.method == "POST" ? Limits::Kind::work : Limits::Kind::look;
}

// The key's priority, or a lower one that the request asks for.
std::shared_ptr<const Caller> with_priority(std::shared_ptr<const Caller> caller, const http::Request& request) {
  const std::string_view text = request.header("x-quarrel-priority");
  if (text.data() == nullptr) return caller;  // it is not there; an empty one is a mistake
  const std::optional<Priority> wanted = read_priority(text);
  if (!wanted) {
    throw ApiError(400, "invalid_request_error", "invalid_value",
                   "x-quarrel-priority is 'interactive', 'normal' or 'batch'", "x-quarrel-priority");
  }
  Caller changed = *caller;
  changed.priority = std::max(*wanted, caller->priority.value_or(Priority::interactive));
  return std::make_shared<const Caller>(std::move(changed));
}

}  // namespace

std::vector<std::pair<std::string, std::uint64_t>> AdmissionCounters::by_reason() const {
  return {{"wrong_key", wrong_keys},     {"expired_key", expired_keys},
          {"revoked_key", revoked_keys}, {"address_limit", limited_addresses},
          {"key_limit", limited_keys},   {"foreign_page", foreign_pages}};
}

bool is_loopback_address(std::string_view address) noexcept {
  return is_loopback_number(address) || address == "::1" || address == "localhost";
}

void require_admin(const Caller& caller) {
  if (caller.role == Role::admin) return;
  throw ApiError(403, "permission_error", "admin_required", "this needs a key of the role 'admin'");
}

std::string presented_key(const http::Request& request) {
  refuse_key_in_url(request.query);
  std::string key;
  const std::string_view given = request.header("Authorization");
  for (const std::string_view scheme : {"Bearer ", "ApiKey "}) {
    if (given.size() > scheme.size() && http::equals_ignoring_case(given.substr(0, scheme.size()), scheme)) {
      key = given.substr(scheme.size());
    }
  }
  if (!http::equals_ignoring_case(request.header("Upgrade"), "websocket")) return key;
  http::for_each_token(request, "Sec-WebSocket-Protocol", [&](std::string_view protocol) {
    if (!protocol.starts_with(kKeyProtocol)) return;
    const std::optional<std::string> offered = from_base64url(protocol.substr(kKeyProtocol.size()));
    if (!offered || !key.empty()) {
      throw ApiError(400, "invalid_request_error", "invalid_value",
                     "the subprotocol quarrel.key. has the key in base64url, once, and no Authorization beside it");
    }
    key = *offered;
  });
  return key;
}

RequestAdmission::RequestAdmission(AdmissionOptions options, std::string address, Limits& limits, Log& log)
    : options_(std::move(options)),
      address_(std::move(address)),
      log_(log),
      limits_(limits),
      keys_(options_.keys, log),
      failed_(options_.now),
      log_lines_(kLogLinesAMinute, options_.now()) {
  check_pages(options_);
  if (keys_.has_keys() || is_loopback_address(address_)) return;
  if (!options_.open) {
    fail(ErrorKind::usage,
         "{} can be reached from other machines, and there are no keys: `quarrel key create` makes one, or --open lets "
         "everybody in",
         address_);
  }
  log_.warn("{} can be reached from other machines and there are no keys: whoever reaches it may use and remove models",
            address_);
}

// A page from elsewhere can make a browser send requests here under a name of its own. Without keys only names count
// that nobody else can point here.
bool RequestAdmission::host_is_known(std::string_view host) const {
  const std::string_view name = host_name(host);
  if (http::equals_ignoring_case(name, "localhost") || name == "[::1]" || is_loopback_number(name)) return true;
  if (name == address_ || (options_.open && is_address(name))) return true;
  return std::ranges::any_of(options_.allowed_hosts,
                             [&](const std::string& allowed) { return http::equals_ignoring_case(name, allowed); });
}

bool RequestAdmission::origin_is_listed(std::string_view origin) const {
  return std::ranges::any_of(options_.allowed_origins, [&](const std::string& allowed) {
    return allowed == "*" || http::equals_ignoring_case(allowed, origin);
  });
}

void RequestAdmission::check_page(const http::Request& request) {
  const std::string_view host = request.header("Host");
  if (host.data() != nullptr && !is_host(host)) {  // none at all is HTTP/1.0's
    throw ApiError(400, "invalid_request_error", "invalid_value", "the header Host is not a name or an address",
                   "Host");
  }
  if (!host.empty() && !host_is_known(host) && !keys_.has_keys()) {
    ++counters_.foreign_pages;
    throw ApiError(403, "permission_error", "host_not_allowed",
                   "this server does not answer for that host name: --allow-host adds one");
  }
  const std::string_view origin = request.header("Origin");
  if (!origin.empty() && !is_own_origin(origin, host) && !origin_is_listed(origin)) {
    ++counters_.foreign_pages;
    throw ApiError(403, "permission_error", "origin_not_allowed",
                   "pages of this origin may not call this server: --allow-origin adds it");
  }
}

http::Response RequestAdmission::preflight(const http::Request& request) const {
  http::Response answer{.status = 204, .content_type = ""};
  answer.headers.emplace_back("Access-Control-Allow-Methods", find_route("OPTIONS", request.path).allowed);
  // Clients have headers of their own for statistics; the page is trusted with what it sends.
  const std::string_view asked = request.header("Access-Control-Request-Headers");
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_, ";
  if (!asked.empty() && asked.find_first_not_of(kPlain) == std::string_view::npos) {
    answer.headers.emplace_back("Access-Control-Allow-Headers", std::string(asked));
  }
  if (request.header("Access-Control-Request-Private-Network") == "true") {
    answer.headers.emplace_back("Access-Control-Allow-Private-Network", "true");
  }
  answer.headers.emplace_back("Access-Control-Max-Age", "600");
  return answer;
}

http::Headers RequestAdmission::answer_headers(const http::Request& request, const LimitTicket* ticket) const {
  http::Headers headers = ticket != nullptr ? ticket->headers() : http::Headers{};
  if (options_.allowed_origins.empty()) return headers;
  headers.emplace_back("Vary", "Origin");
  const std::string_view origin = request.header("Origin");
  if (origin.empty() || !origin_is_listed(origin)) return headers;
  headers.emplace_back("Access-Control-Allow-Origin", std::string(origin));
  headers.emplace_back("Access-Control-Expose-Headers",
                       "x-request-id, Retry-After, traceparent, x-ratelimit-limit-requests, "
                       "x-ratelimit-remaining-requests, x-ratelimit-reset-requests, x-ratelimit-limit-tokens, "
                       "x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens");
  return headers;
}

void RequestAdmission::log_failure(const http::Request& request, std::string_view what, const std::string& name) {
  {
    const std::scoped_lock lock(log_mutex_);
    const Clock::time_point now = options_.now();
    if (log_lines_.level(now) < 1.0) return;
    log_lines_.take(1.0, now);
  }
  log_.warn("{}{} came from {} (request {})", what, name.empty() ? std::string() : fmt::format(" '{}'", name),
            request.address.empty() ? "the Unix socket" : request.address, request.id);
}

// Whose key it is. A wrong one costs its address a try; whoever has none left is not even looked at, unless the key is
// of the kind that nobody guesses: a neighbour's mistakes lock nobody out.
std::shared_ptr<const Caller> RequestAdmission::owner_of(const http::Request& request, const std::string& key) {
  const auto limited = [&](Clock::duration wait) {
    ++counters_.limited_addresses;
    ApiError error(429, "rate_limit_error", "too_many_wrong_keys", "too many wrong keys came from this address");
    error.retry_after = std::chrono::ceil<std::chrono::microseconds>(wait);
    return error;
  };
  if (!KeyRing::is_made_by_us(key)) {
    if (const auto wait = failed_.wait(request.address)) throw limited(*wait);
  }
  KeyRing::Result result = keys_.check(key);
  if (result.verdict == KeyRing::Verdict::right) return result.caller;
  const std::optional<Clock::duration> wait = failed_.count(request.address);
  if (wait) throw limited(*wait);
  switch (result.verdict) {
    case KeyRing::Verdict::expired:
      ++counters_.expired_keys;
      log_failure(request, "the expired key", result.name);
      throw wrong_key("this key has expired");
    case KeyRing::Verdict::revoked:
      ++counters_.revoked_keys;
      log_failure(request, "the revoked key", result.name);
      throw wrong_key("this key was revoked");
    case KeyRing::Verdict::right:
    case KeyRing::Verdict::wrong: break;
  }
  ++counters_.wrong_keys;
  log_failure(request, "a wrong key", "");
  throw wrong_key("the key is wrong");
}

std::shared_ptr<const Caller> RequestAdmission::caller_of(const http::Request& request, const Route& route) {
  const std::string key = presented_key(request);
  if (!keys_.has_keys()) return anonymous(request, Role::admin);
  const bool open_to_all =
      route.access == Access::everybody || (route.access == Access::metrics && options_.public_metrics);
  if (open_to_all) return anonymous(request, Role::use);
  if (!key.empty()) return owner_of(request, key);
  // The socket is this user's alone, who could make a key as well.
  if (request.unix_socket && !is_forwarded(request)) return anonymous(request, Role::admin, KeyRing::kOwner);
  throw wrong_key("a key is needed: send it as 'Authorization: Bearer …'");
}

http::Admission RequestAdmission::decide(const http::Request& request, bool ready, RequestFacts& facts) {
  http::Headers headers;
  try {
    check_page(request);
    RouteMatch match = find_route(request.method, request.path);
    if (match.route == nullptr && match.allowed.empty()) {
      throw ApiError(404, "not_found_error", "", "there is nothing at this path");
    }
    if (match.route == nullptr && is_preflight(request)) {
      http::Response answer = preflight(request);
      for (auto& header : answer_headers(request, nullptr)) answer.headers.push_back(std::move(header));
      return {.refusal = answer.status, .answer = std::move(answer)};
    }
    if (match.route == nullptr) {
      headers.emplace_back("Allow", match.allowed);
      throw ApiError(405, "invalid_request_error", "", "this path does not support that method");
    }
    const Route& route = *match.route;
    facts.row = match.route;
    facts.route = fmt::format("{} {}", route.method, route.path);
    facts.caller = with_priority(caller_of(request, route), request);
    if (route.access == Access::admin) require_admin(*facts.caller);
    if (route.access != Access::everybody) {
      if (!ready) throw ApiError(503, "unavailable_error", "draining", "the server is about to end");
      Limits::Admitted admitted = limits_.admit(*facts.caller, kind_of(request, route));
      if (admitted.refusal) {
        ++counters_.limited_keys;
        headers = std::move(admitted.headers);
        throw ApiError(*admitted.refusal);
      }
      facts.ticket = std::move(admitted.ticket);
    }
    return {.body_bytes = route.body_bytes};
  } catch (const ApiError& error) {
    note_error(facts, error);
    http::Response answer = error_answer(dialect_of(request.path), error);
    for (auto& header : answer_headers(request, nullptr)) headers.push_back(std::move(header));
    for (auto& header : headers) answer.headers.push_back(std::move(header));
    return {.refusal = error.status, .answer = std::move(answer)};
  }
}

}  // namespace quarrel
