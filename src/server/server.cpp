#include "server/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "server/api_error.h"
#include "server/routes.h"

namespace quarrel {
namespace {

http::Response said(Dialect dialect, const ApiError& error) {
  return dialect == Dialect::openai ? openai_error(error) : plain_error(error);
}

http::Admission refused(std::string_view path, RequestFacts& facts, const ApiError& error, http::Headers headers = {}) {
  facts.error = error.type;
  http::Response answer = said(dialect_of(path), error);
  for (auto& header : headers) answer.headers.push_back(std::move(header));
  return {.refusal = error.status, .answer = std::move(answer)};
}

// Whoever asked learns under which span to look.
void add_trace(const RequestFacts& facts, http::Response& head) {
  if (!facts.trace.empty()) head.headers.emplace_back("traceparent", facts.trace);
}

std::string route_name(const Route& route) { return fmt::format("{} {}", route.method, route.path); }

// Without the port: "[::1]:8080" and "localhost:8080" are [::1] and localhost.
std::string_view host_name(std::string_view host) noexcept {
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1);
  return host.substr(0, host.find(':'));
}

bool is_loopback_address(std::string_view address) noexcept {
  return address.starts_with("127.") || address == "::1" || address == "localhost";
}

// 127.0.0.1 and its neighbours, but not 127.example.org, which is whoever's it is.
bool is_loopback_number(std::string_view name) noexcept {
  return name.starts_with("127.") && name.find_first_not_of("0123456789.") == std::string_view::npos;
}

// Takes as long for a wrong key as for a right one of that length.
bool same_secret(std::string_view a, std::string_view b) noexcept {
  unsigned difference = a.size() == b.size() ? 0u : 1u;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned>(static_cast<unsigned char>(a[i]) ^
                                        static_cast<unsigned char>(b.empty() ? '\0' : b[i % b.size()]));
  }
  return difference == 0;
}

}  // namespace

Server::Server(ServeOptions options, std::shared_ptr<Device> device, ModelStore store, Log& log)
    : options_(std::move(options)), service_(options_.service, std::move(device), std::move(store), log) {
  if (options_.api_key.empty() && !is_loopback_address(options_.http.address)) {
    fail(ErrorKind::usage,
         "{} can be reached from other machines, and there is no key: set QUARREL_API_KEY or --api-key-file",
         options_.http.address);
  }
  http::HttpServer::Handler handler;
  handler.admit = [this](const http::Request& request) { return admit(request); };
  handler.handle = [this](const std::shared_ptr<http::Exchange>& exchange) { handle(exchange); };
  handler.refuse = [](unsigned status, const std::string& message) {
    return openai_error({status, "invalid_request_error", "", message});
  };
  http_ = std::make_unique<http::HttpServer>(options_.http, std::move(handler), log);
  service_.poster()->set(http_->poster());
  watch_ = std::make_unique<Watch>(options_.watch, service_, http_->connection_count());
  http_->start();
}

Server::~Server() = default;

void Server::reload() { watch_->reload(); }

bool Server::drain(std::chrono::milliseconds time) {
  service_.begin_drain();
  http_->begin_drain();
  return http_->wait_idle(time);
}

// A page from elsewhere can make a browser send requests here under a name of its own: only this machine's names count.
bool Server::host_is_known(std::string_view host) const {
  const std::string_view name = host_name(host);
  if (http::equals_ignoring_case(name, "localhost") || name == "[::1]" || is_loopback_number(name)) return true;
  if (name == options_.http.address) return true;
  return std::ranges::any_of(options_.allowed_hosts,
                             [&](const std::string& allowed) { return http::equals_ignoring_case(name, allowed); });
}

bool Server::key_is_right(const http::Request& request) const {
  std::string_view given = request.header("Authorization");
  for (const std::string_view scheme : {"Bearer ", "ApiKey "}) {
    if (given.size() > scheme.size() && http::equals_ignoring_case(given.substr(0, scheme.size()), scheme)) {
      return same_secret(given.substr(scheme.size()), options_.api_key);
    }
  }
  return false;
}

// What is refused here has a record too: it begins and ends at once.
http::Admission Server::admit(const http::Request& request) const {
  RequestFacts facts{
      .id = request.id, .traceparent = std::string(request.header("traceparent")), .address = request.address};
  http::Admission admission = decide(request, facts);
  facts.status = admission.refusal;
  admission.record = service_.new_record(std::move(facts));
  if (admission.refusal != 0) {
    add_trace(admission.record->facts(), admission.answer);
    admission.record->end();
  }
  return admission;
}

http::Admission Server::decide(const http::Request& request, RequestFacts& facts) const {
  const std::string_view host = request.header("Host");
  if (!host.empty() && options_.api_key.empty() && !host_is_known(host)) {
    return refused(request.path, facts,
                   {403, "permission_error", "host_not_allowed",
                    "this server does not answer for that host name: --allow-host adds one"});
  }
  const std::string_view origin = request.header("Origin");
  if (!origin.empty()) {
    const std::size_t scheme = origin.find("://");
    if (scheme == std::string_view::npos || origin.substr(scheme + 3) != host) {
      return refused(request.path, facts,
                     {403, "permission_error", "origin_not_allowed", "pages from elsewhere may not call this server"});
    }
  }
  RouteMatch match = find_route(request.method, request.path);
  if (match.route == nullptr && match.allowed.empty()) {
    return refused(request.path, facts, {404, "not_found_error", "", "there is nothing at this path"});
  }
  if (match.route == nullptr) {
    return refused(request.path, facts, {405, "invalid_request_error", "", "this path is not called with that method"},
                   {{"Allow", match.allowed}});
  }
  facts.route = route_name(*match.route);
  const bool open = match.route->access == Access::metrics && options_.watch.open_metrics;
  if (match.route->access != Access::everybody && !open && !options_.api_key.empty() && !key_is_right(request)) {
    return refused(request.path, facts,
                   {401, "authentication_error", "invalid_api_key", "the key is missing or wrong"});
  }
  if (match.route->access == Access::key && !service_.ready()) {
    return refused(request.path, facts, {503, "unavailable_error", "draining", "the server is about to end"});
  }
  return {.body_bytes = match.route->body_bytes};
}

void Server::handle(const std::shared_ptr<http::Exchange>& exchange) {
  const Route* route = find_route(exchange->request().method, exchange->request().path).route;
  const std::shared_ptr<RequestRecord> record = exchange->request().record;
  exchange->on_head([record](http::Response& head) {
    record->update([&](RequestFacts& facts) {
      facts.status = head.status;
      add_trace(facts, head);
    });
  });
  const auto answer = [this, exchange, route, record] {
    try {
      route->handle(service_, exchange);
    } catch (...) {
      const ApiError error = api_error(std::current_exception());
      log_fault(service_.log(), record->id(), error, std::current_exception());
      record->update([&](RequestFacts& facts) { facts.error = error.type; });
      exchange->respond(said(route->dialect, error));
      exchange->abandon();  // what had begun is not whole
    }
  };
  if (route->quick) {
    answer();
  } else {
    service_.run_text_work(answer);
  }
}

}  // namespace quarrel
