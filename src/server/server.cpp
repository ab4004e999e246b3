#include "server/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "server/api_error.h"
#include "server/routes.h"

namespace quarrel {
namespace {

// So long those who are cut off may take to hear of it.
constexpr int kLastWords = 10;
constexpr std::chrono::milliseconds kLastWord{100};

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
  handler.refuse = [](unsigned status, const std::string& message) {
    return openai_error({status, "invalid_request_error", "", message});
  };
  handler.refused = [this](unsigned status, const std::string& id, const std::string& address,
                           const std::shared_ptr<RequestRecord>& record) {
    const auto ended = record != nullptr ? record : service_.new_record({.id = id, .address = address});
    ended->update([&](RequestFacts& facts) {
      facts.status = status;
      facts.error = status == 503 ? "unavailable_error" : "invalid_request_error";
    });
    ended->end();
  };
  http_ = std::make_unique<http::HttpServer>(options_.http, std::move(handler), log);
  service_.poster()->set(http_->poster());
  watch_ = std::make_unique<Watch>(options_.watch, service_, http_->connection_count(),
                                   [admission = admission_] { return admission->counters().by_reason(); });
  http_->start();
}

Server::~Server() = default;

void Server::reload() {
  watch_->reload();
  try {
    http_->reload_tls();
  } catch (const Error& error) {
    service_.log().warn("the certificate from before stays in use: {}", error.what());
  }
}

bool Server::drain(std::chrono::milliseconds time) {
  service_.begin_drain();
  http_->begin_drain();
  if (http_->wait_idle(time)) return true;
  // What is cut off is told why. What was still on its way to a model comes to it a moment later.
  for (int i = 0; i < kLastWords; ++i) {
    service_.registry().cancel_all("the server is about to end");
    if (http_->wait_idle(kLastWord)) break;
  }
  return false;
}

// What is refused here has a record too: it begins and ends at once.
http::Admission Server::admit(const http::Request& request) {
  RequestFacts facts{
      .id = request.id, .traceparent = std::string(request.header("traceparent")), .address = request.address};
  http::Admission admission = admission_->decide(request, service_.ready(), facts);
  facts.status = admission.refusal;
  admission.record = service_.new_record(std::move(facts));
  if (admission.refusal != 0) {
    add_trace(admission.record->facts(), admission.answer);
    admission.record->end();
  }
  return admission;
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
  const auto answer = [this, exchange, route, record] {
    try {
      route->handle(service_, exchange);
    } catch (...) {
      const ApiError error = api_error(std::current_exception());
      log_fault(service_.log(), record->id(), error, std::current_exception());
      record->update([&](RequestFacts& facts) { facts.error = error.type; });
      exchange->respond(error_answer(route->dialect, error));
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
