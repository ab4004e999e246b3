#include "server/generation_call.h"

#include <mutex>
#include <utility>

#include "base/error.h"
#include "session/refusal.h"

namespace quarrel {
namespace {

class GenerationCall : public std::enable_shared_from_this<GenerationCall> {
 public:
  GenerationCall(Service& service, std::weak_ptr<http::Exchange> exchange, MakeAsk make_ask,
                 std::unique_ptr<AnswerWriter> writer)
      : service_(service), exchange_(std::move(exchange)), make_ask_(std::move(make_ask)), writer_(std::move(writer)) {}
  ~GenerationCall() { ticket_.cancel(); }

  void acquire(const OfferedModel& model, const AcquireOptions& options) {
    ModelRegistry::Ticket ticket = service_.acquire(
        model, weak_from_this(),
        [this](const ModelRegistry::Lease& lease, const std::exception_ptr& error) { acquired(lease, error); },
        options);
    const std::scoped_lock lock(mutex_);
    ticket_ = std::move(ticket);
  }

  void cancel() {
    const std::scoped_lock lock(mutex_);
    ticket_.cancel();
    cancelled_ = true;
    generation_.cancel();
  }

 private:
  void acquired(const ModelRegistry::Lease& model, const std::exception_ptr& error) {
    const std::shared_ptr<http::Exchange> exchange = exchange_.lock();
    if (exchange == nullptr) return;
    if (error != nullptr) return report(*exchange, load_error(error), error);
    try {
      begin(*exchange, model);
    } catch (...) {
      report(*exchange, api_error(std::current_exception()), std::current_exception());
    }
  }

  // Events may come before this is over, on another thread: they wait for the mutex.
  void begin(http::Exchange& exchange, const ModelRegistry::Lease& model) {
    const Ask ask = make_ask_(*model);
    const std::scoped_lock lock(mutex_);
    if (cancelled_) return;
    model_ = model;
    const std::weak_ptr<GenerationCall> weak = weak_from_this();
    generation_ = Generation::start(
        model, ask,
        [weak](std::span<GenerationEvent> events) {
          if (const auto self = weak.lock()) self->take(events);
        },
        [poster = service_.poster()](std::function<void()> task) { StepPoster::post(poster, std::move(task)); });
    writer_->begin(exchange, *model, generation_);
    answers_left_ = ask.answers;
  }

  void take(std::span<GenerationEvent> events) {
    const std::shared_ptr<http::Exchange> exchange = exchange_.lock();
    if (exchange == nullptr) return;
    const std::scoped_lock lock(mutex_);
    if (answers_left_ <= 0) return;
    try {
      write(*exchange, events);
    } catch (const std::exception& error) {
      // Nobody would call again, and the client would wait for ever.
      answers_left_ = 0;
      exchange->abandon();
      service_.log().warn("request {} failed: {}", exchange->request().id, error.what());
    }
  }

  void write(http::Exchange& exchange, std::span<GenerationEvent> events) {
    for (GenerationEvent& event : events) {
      if (event.kind != GenerationEvent::Kind::finished) continue;
      --answers_left_;
      const std::string failure = failure_text(event.reason, event.error);
      if (failure.empty()) continue;
      answers_left_ = 0;
      generation_.cancel();
      writer_->fail(exchange, failed(event.reason, failure));
      return;
    }
    writer_->take(exchange, events);
    if (answers_left_ == 0) writer_->end(exchange, generation_.usage());
  }

  static ApiError failed(FinishReason reason, const std::string& message) {
    switch (reason) {
      case FinishReason::cancelled:
      case FinishReason::timeout: return {503, "unavailable_error", "cancelled", message};
      case FinishReason::no_token: return {400, "invalid_request_error", "no_token", message};
      default: return {500, "server_error", "model_failed", message};
    }
  }

  void report(http::Exchange& exchange, const ApiError& said, const std::exception_ptr& error) {
    log_fault(service_.log(), exchange.request().id, said, error);
    const std::scoped_lock lock(mutex_);
    try {
      writer_->fail(exchange, said);
    } catch (const std::exception&) {
      exchange.abandon();
    }
  }

  Service& service_;
  const std::weak_ptr<http::Exchange> exchange_;
  const MakeAsk make_ask_;
  std::mutex mutex_;  // guards all below
  // The writer spells tokens, and a generation lets its model go before it reports its end.
  ModelRegistry::Lease model_;
  std::unique_ptr<AnswerWriter> writer_;
  ModelRegistry::Ticket ticket_;
  Generation generation_;
  std::int32_t answers_left_ = 0;
  bool cancelled_ = false;
};

}  // namespace

void start_generation(Service& service, const std::shared_ptr<http::Exchange>& exchange, const OfferedModel& model,
                      MakeAsk make_ask, std::unique_ptr<AnswerWriter> writer, const AcquireOptions& options) {
  auto call = std::make_shared<GenerationCall>(service, exchange, std::move(make_ask), std::move(writer));
  exchange->keep(call);
  // Not on the thread that noticed it: that serves others, and a prompt may be in the middle of being tokenised.
  const std::weak_ptr<GenerationCall> weak = call;
  exchange->on_closed([weak, &service] {
    service.run_text_work([weak] {
      if (const auto self = weak.lock()) self->cancel();
    });
  });
  call->acquire(model, options);
}

}  // namespace quarrel
