#include "server/native_stream.h"

#include <atomic>
#include <optional>
#include <utility>

#include "server/native_request.h"
#include "server/native_writer.h"
#include "server/resumable.h"
#include "server/ws_hub.h"

namespace quarrel {
namespace {

using http::Exchange;

class SseReceiver final : public AnswerReceiver {
 public:
  explicit SseReceiver(const std::shared_ptr<Exchange>& exchange) : exchange_(exchange) {}

  void accepted(const ResumePoint& point) override {
    const std::shared_ptr<Exchange> exchange = exchange_.lock();
    if (exchange == nullptr) return;
    begin(*exchange);
    // Without data it is no event, only where the answer can be taken up.
    if (!point.id.empty()) exchange->write("id: " + to_text(point) + "\n\n");
  }

  void waiting(std::size_t ahead) override { tell(queued_status(ahead)); }
  void reading(std::size_t read, std::size_t prompt_tokens) override { tell(reading_status(read, prompt_tokens)); }

  bool take(std::span<const AnswerEvent> events, const ResumePoint& before) override {
    const std::shared_ptr<Exchange> exchange = exchange_.lock();
    if (exchange == nullptr) return false;
    std::string bytes;
    ResumePoint point = before;
    for (const AnswerEvent& event : events) {
      ++point.event;
      if (event.end != nullptr && event.end->error && !exchange->begun()) {
        exchange->respond(plain_error(*event.end->error));
        return true;
      }
      if (!point.id.empty()) bytes += "id: " + to_text(point) + "\n";
      append_event(bytes, event);
    }
    if (!begun_) begin(*exchange);  // one that was stopped before its model was there has an end and nothing before it
    const bool sent = exchange->write(bytes);
    if (sent && !events.empty() && events.back().end != nullptr) exchange->finish();
    return sent;
  }

  // The answer's id may have reached its client.
  bool begun() const noexcept { return begun_; }

 private:
  // It has no id: it is no part of the answer, and is not told again.
  void tell(const Json& status) {
    if (const std::shared_ptr<Exchange> exchange = exchange_.lock())
      exchange->write("event: status\ndata: " + compact_json(status) + "\n\n");
  }

  void begin(Exchange& exchange) {
    begun_ = true;
    exchange.begin(http::stream_head("text/event-stream"));
  }

  static void append_event(std::string& bytes, const AnswerEvent& event) {
    if (event.end != nullptr && event.end->error) {
      bytes += "event: error\ndata: " + plain_error_body(*event.end->error) + "\n\n";
      return;
    }
    bytes += "data: ";
    append_payload(bytes, event, "");
    bytes += "\n\n";
  }

  std::atomic<bool> begun_ = false;
  const std::weak_ptr<Exchange> exchange_;  // gone: nobody reads any more
};

// What the connection's end means for an answer that may outlive it: on another thread than the one that noticed it,
// which may be in the middle of handing over events.
void detach_when_closed(Service& service, Exchange& exchange, const std::shared_ptr<ResumableAnswer>& answer,
                        const std::shared_ptr<SseReceiver>& receiver, bool id_is_known) {
  const std::weak_ptr<ResumableAnswer> weak = answer;
  exchange.on_closed([&service, weak, receiver, id_is_known] {
    service.run_text_work([weak, receiver, id_is_known] {
      if (const auto self = weak.lock()) self->detach(receiver.get(), id_is_known || receiver->begun());
    });
  });
}

// Where the client says that it lost an answer; none: it asks for a new one.
std::optional<ResumePoint> lost_at(const Exchange& exchange) {
  const std::string_view text = exchange.request().header("Last-Event-ID");
  if (text.empty()) return std::nullopt;
  std::optional<ResumePoint> point = read_resume_point(text);
  if (!point) throw invalid_field("Last-Event-ID", "Last-Event-ID is not the id of an event that came from here");
  return point;
}

// For what admission let pass uncharged since an answer is named: without one it is a request like others.
template <typename Call>
void as_passage(Service& service, const Exchange& exchange, const Call& call) {
  try {
    call();
  } catch (const ApiError&) {
    service.limits().charge_vain_passage(*caller_of(exchange));
    throw;
  }
}

void take_up(Service& service, const std::shared_ptr<Exchange>& exchange, const ResumePoint& point) {
  const auto receiver = std::make_shared<SseReceiver>(exchange);
  const ResumableAnswers::Attached attached =
      service.sockets().answers().attach(point, caller_of(*exchange)->key, receiver);
  // A browser's EventSource takes 204 for the end, and does not ask again.
  if (attached.left == Remainder::none) return exchange->respond({.status = 204, .content_type = ""});
  detach_when_closed(service, *exchange, attached.answer, receiver, true);
}

void begin_resumable(Service& service, const std::shared_ptr<Exchange>& exchange, const OfferedModel& model,
                     NativeRequest request) {
  const std::shared_ptr<RequestRecord>& record = exchange->request().record;
  const auto receiver = std::make_shared<SseReceiver>(exchange);
  const std::shared_ptr<ResumableAnswer> answer = service.sockets().answers().create(record->caller(), receiver);
  try {
    detach_when_closed(service, *exchange, answer, receiver, false);
    const std::shared_ptr<Retrieval> retrieval = retrieval_for(service, request, *record->caller());
    auto writer = std::make_unique<EventWriter>(
        std::make_shared<ResumableReceiver>(answer),
        EventWriter::Options{.progress = request.progress, .stopped = answer->stopped(), .retrieval = retrieval});
    const CallOptions options = native_call_options(request, retrieval);
    const std::shared_ptr<GenerationCall> call = start_generation(
        service, record, model,
        with_body_share(*exchange, make_native_ask(std::move(request), Priority::interactive, retrieval)),
        std::move(writer), options);
    answer->set_cancel([call] { call->cancel(); });
  } catch (...) {
    answer->never_began(receiver.get(), std::current_exception());
    throw;
  }
}

}  // namespace

void native_stream(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const std::optional<ResumePoint> lost = lost_at(*exchange);
  // Whoever repeats a request has its body with it; what is in it was answered before, and is not read again.
  if (lost) return as_passage(service, *exchange, [&] { take_up(service, exchange, *lost); });
  NativeRequest request = read_native_request(parse_body(exchange->request().body));
  if (!request.stream.value_or(true)) {
    throw invalid_field("stream", "'stream' is true here: /api/generate answers in one piece");
  }
  if (request.reattach) return take_up(service, exchange, *request.reattach);
  const OfferedModel model = service.find(request.model, *caller_of(*exchange));
  if (request.resume) return begin_resumable(service, exchange, model, std::move(request));
  const std::shared_ptr<Retrieval> retrieval = retrieval_for(service, request, *caller_of(*exchange));
  auto writer =
      std::make_unique<EventWriter>(std::make_shared<SseReceiver>(exchange),
                                    EventWriter::Options{.progress = request.progress, .retrieval = retrieval});
  const CallOptions options = native_call_options(request, retrieval);
  serve_generation(service, exchange, model, make_native_ask(std::move(request), Priority::interactive, retrieval),
                   std::move(writer), options);
}

void stop_stream(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const std::optional<ResumePoint> point = lost_at(*exchange);
  if (!point) throw invalid_field("Last-Event-ID", "Last-Event-ID says which answer is to end");
  as_passage(service, *exchange, [&] {
    require_no_fields(exchange->request().body);
    service.sockets().answers().stop(point->id, caller_of(*exchange)->key);
  });
  exchange->respond({.body = R"({"status":"stopped"})"});
}

}  // namespace quarrel
