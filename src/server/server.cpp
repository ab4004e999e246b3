#include "server/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "server/api_error.h"
#include "server/flight_api.h"
#include "server/routes.h"

namespace quarrel {
namespace {

// How soon a second signal is noticed.
constexpr std::chrono::milliseconds kLookEvery{50};
// For what is cancelled at the end, to say so.
constexpr std::chrono::seconds kLastWords{1};

// Whoever asked learns under which span to look.
void add_trace(const RequestFacts& facts, http::Response& head) {
  if (!facts.trace.empty()) head.headers.emplace_back("traceparent", facts.trace);
}

}  // namespace

Server::Server(ServeOptions options, std::shared_ptr<Device> device, ModelStore store, Log& log)
    : options_(std::move(options)),
      service_(options_.service, std::move(device), std::move(store), log),
      admission_(
          std::make_shared<RequestAdmission>(options_.admission, options_.http.address, service_.limits(), log)) {
  service_.observe(std::make_shared<LimitObserver>());
  service_.set_accepts([admission = admission_](const Caller& caller) { return admission->accepts(caller); });
  http::HttpServer::Handler handler;
  handler.admit = [this](const http::Request& request) { return admit(request); };
  handler.handle = [this](const std::shared_ptr<http::Exchange>& exchange) { handle(exchange); };
  handler.refuse = [this](const http::Refusal& refusal) { return refuse(refusal); };
  http_ = std::make_unique<http::HttpServer>(options_.http, std::move(handler), log);
  service_.poster()->set(http_->poster());
  watch_ = std::make_unique<Watch>(options_.watch, service_, http_->connection_count(),
                                   [admission = admission_] { return admission->counters().by_reason(); });
  if (options_.flight_port) {
    flight_ = serve_flight(options_.http, *options_.flight_port, service_,
                           [this](const http::Request& request) { return admit(request); });
  }
  http_->start();
}

std::optional<std::uint16_t> Server::flight_port() const noexcept {
  return flight_ == nullptr ? std::nullopt : std::optional(flight_->port());
}

Server::~Server() = default;

void Server::reload() {
  try {
    watch_->reload();
  } catch (const std::exception& error) {
    service_.log().try_warn("a log could not be reopened: {}", error.what());
  }
  try {
    http_->reload_tls();
  } catch (const std::exception& error) {
    service_.log().try_warn("the certificate from before stays in use: {}", error.what());
  }
}

bool Server::drain(std::chrono::milliseconds time, const std::function<bool()>& hurry) {
  service_.begin_drain();
  http_->begin_drain();
  const Clock::time_point until = Clock::now() + time;
  for (bool last = false; !last;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    last = left <= kLookEvery || (hurry && hurry());
    if (!http_->wait_idle(std::min(left, kLookEvery))) continue;
    if (flight_ != nullptr && !flight_->idle()) {
      std::this_thread::sleep_for(std::clamp(left, std::chrono::milliseconds(0), kLookEvery));
      continue;
    }
    if (flight_ != nullptr) flight_->stop(std::chrono::milliseconds(0));
    return true;
  }
  service_.end_requests("the server is about to end");
  if (flight_ != nullptr) flight_->stop(kLastWords);
  http_->wait_idle(kLastWords);
  return false;
}

// What is refused here has a record too: it begins and ends at once.
http::Admission Server::admit(const http::Request& request) {
  RequestFacts facts{
      .id = request.id, .traceparent = std::string(request.header("traceparent")), .address = request.address};
  http::Admission admission = admission_->decide(request, service_.ready(), facts);
  facts.status = admission.refusal;
  admission.account = facts.caller->key;
  admission.record = service_.new_record(std::move(facts));
  if (admission.refusal != 0) {
    add_trace(admission.record->facts(), admission.answer);
    admission.record->end();
  }
  return admission;
}

// Before admission little is known of a request but that it came; it counts all the same.
http::Response Server::refuse(const http::Refusal& refusal) {
  const http::Request& request = refusal.request;
  const char* type = refusal.status == 503 ? "unavailable_error" : "invalid_request_error";
  http::Response answer = error_answer(dialect_of(request.path), {refusal.status, type, "", refusal.message});
  std::shared_ptr<RequestRecord> record = request.record;
  if (record == nullptr) record = service_.new_record({.id = request.id, .address = request.address});
  std::shared_ptr<LimitTicket> ticket;
  record->update([&](RequestFacts& facts) {
    facts.status = refusal.status;
    facts.error = type;
    add_trace(facts, answer);
    ticket = facts.ticket;
  });
  for (auto& header : admission_->answer_headers(request, ticket.get())) answer.headers.push_back(std::move(header));
  record->end();
  return answer;
}

void Server::handle(const std::shared_ptr<http::Exchange>& exchange) {
  const std::shared_ptr<RequestRecord> record = exchange->request().record;
  const Route* route = nullptr;  // admission has found one, or there would be nothing to handle
  record->update([&](const RequestFacts& facts) { route = facts.row; });
  exchange->on_head([admission = admission_, record, &request = exchange->request()](http::Response& head) {
    std::shared_ptr<LimitTicket> ticket;
    record->update([&](RequestFacts& facts) {
      facts.status = head.status;
      add_trace(facts, head);
      ticket = facts.ticket;
    });
    for (auto& header : admission->answer_headers(request, ticket.get())) head.headers.push_back(std::move(header));
  });
  exchange->on_closed([record] { record->update(note_departure); });
  const auto answer = [this, exchange, route, record] {
    try {
      route->handle(service_, exchange);
    } catch (...) {
      const std::exception_ptr fault = std::current_exception();
      try {
        const ApiError error = api_error(fault);
        log_fault(service_.log(), record->id(), error, fault);
        record->update([&](RequestFacts& facts) { note_error(facts, error); });
        exchange->respond(error_answer(route->dialect, error));
      } catch (const std::exception& error) {
        service_.log().try_warn("request {} cannot be answered: {}", record->id(), error.what());
      }
      exchange->abandon();  // what had begun is not whole
    }
    exchange->release_body();  // it has been read; whoever keeps what it says keeps its share
  };
  if (route->quick) {
    answer();
  } else {
    service_.run_text_work(answer);
  }
}

}  // namespace quarrel
