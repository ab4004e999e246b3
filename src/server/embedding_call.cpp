#include "server/embedding_call.h"

#include <fmt/format.h>

#include <charconv>
#include <mutex>
#include <utility>

#include "base/clock.h"
#include "server/request_record.h"

namespace quarrel {
namespace {

using http::Exchange;

class EmbeddingCall : public std::enable_shared_from_this<EmbeddingCall> {
 public:
  EmbeddingCall(Service& service, const std::shared_ptr<Exchange>& exchange, EmbeddingAsk ask, EmbeddingAnswer answer)
      : service_(service),
        record_(exchange->request().record),
        exchange_(exchange),
        ask_(std::move(ask)),
        answer_(std::move(answer)) {}
  ~EmbeddingCall() { ticket_.cancel(); }

  void acquire(const OfferedModel& model) {
    record_->update([&](RequestFacts& facts) { facts.model = model.name; });
    ModelRegistry::Ticket ticket = service_.acquire(
        model, weak_from_this(),
        [this](const ModelRegistry::Lease& lease, const std::exception_ptr& error) { acquired(lease, error); },
        ask_.acquire);
    const std::scoped_lock lock(mutex_);
    ticket_ = std::move(ticket);
  }

 private:
  void acquired(const ModelRegistry::Lease& model, const std::exception_ptr& error) {
    load_seconds_ = seconds_since(asked_);
    if (error != nullptr) return report(load_error(error), error);
    record_->update([](RequestFacts& facts) { facts.acquired = Clock::now(); });
    try {
      start(model);
    } catch (...) {
      report(api_error(std::current_exception()), std::current_exception());
    }
  }

  void start(const ModelRegistry::Lease& model) {
    if (ask_.inputs.empty()) return finish({});
    std::vector<std::vector<TokenId>> texts;
    const bool pairs = !ask_.query.empty() && model->ranks();
    if (!ask_.query.empty() && !pairs) add_text(texts, encode_text(*model, ask_.query), *model);
    for (const auto& input : ask_.inputs) {
      if (const auto* ids = std::get_if<std::vector<TokenId>>(&input)) {
        texts.push_back(*ids);
      } else {
        const std::string& text = std::get<std::string>(input);
        add_text(texts, pairs ? encode_pair(*model, ask_.query, text) : encode_text(*model, text), *model);
      }
    }
    EmbeddingOptions options = ask_.options;
    const std::shared_ptr<const Caller> caller = record_->caller();
    options.key = caller->key;
    options.patience = service_.patience();
    if (caller->priority) options.priority = *caller->priority;
    std::size_t tokens = 0;
    std::shared_ptr<LimitTicket> ticket;
    record_->update([&](RequestFacts& facts) {
      facts.priority = options.priority;
      facts.submitted = Clock::now();
      for (const std::vector<TokenId>& text : texts) facts.prompt_tokens += text.size();
      tokens = facts.prompt_tokens;
      ticket = facts.ticket;
    });
    if (ticket != nullptr) {
      if (const auto refusal = ticket->reserve(static_cast<std::int64_t>(tokens))) throw ApiError(*refusal);
    }
    const std::weak_ptr<EmbeddingCall> weak = weak_from_this();
    const std::scoped_lock lock(mutex_);
    run_ = start_embedding(model, std::move(texts), options, [weak](EmbeddingOutcome outcome) {
      // An engine may outlive the service; a call that is still there does not.
      const std::shared_ptr<EmbeddingCall> call = weak.lock();
      if (call == nullptr) return;
      // Off the engine's thread: thousands of numbers become text.
      auto kept = std::make_shared<EmbeddingOutcome>(std::move(outcome));
      call->service_.run_text_work([weak, kept] {
        if (const auto self = weak.lock()) self->finish(*kept);
      });
    });
  }

  void add_text(std::vector<std::vector<TokenId>>& texts, EncodedText encoded, const LoadedModel& model) const {
    if (encoded.cut && !ask_.truncate) {
      throw invalid_field("input", fmt::format("text {} has {} tokens and the model takes {}: send \"truncate\": true "
                                               "to have it cut",
                                               texts.size(), encoded.full_tokens, longest_embedded_text(model)));
    }
    texts.push_back(std::move(encoded.tokens));
  }

  void finish(const EmbeddingOutcome& outcome) {
    record_->update([&](RequestFacts& facts) {
      facts.started = outcome.started;
      if (outcome.error == nullptr) facts.finish_reason = "done";
    });
    if (outcome.error != nullptr) {
      report(api_error(outcome.error), outcome.error);
      return;
    }
    if (const auto exchange = exchange_.lock()) exchange->respond(answer_.respond(outcome.embeddings, load_seconds_));
  }

  void report(const ApiError& said, const std::exception_ptr& error) {
    log_fault(service_.log(), record_->id(), said, error);
    record_->update([&](RequestFacts& facts) { facts.error = said.type; });
    if (const auto exchange = exchange_.lock()) exchange->respond(answer_.fail(said));
  }

  Service& service_;
  const std::shared_ptr<RequestRecord> record_;
  const std::weak_ptr<Exchange> exchange_;
  const EmbeddingAsk ask_;
  const EmbeddingAnswer answer_;
  const Clock::time_point asked_ = Clock::now();
  double load_seconds_ = 0.0;  // set before the engine is asked, read after it has answered
  std::mutex mutex_;           // guards all below
  ModelRegistry::Ticket ticket_;
  EmbeddingRun run_;
};

}  // namespace

void start_embedding_call(Service& service, const std::shared_ptr<Exchange>& exchange, const OfferedModel& model,
                          EmbeddingAsk ask, EmbeddingAnswer answer) {
  auto call = std::make_shared<EmbeddingCall>(service, exchange, std::move(ask), std::move(answer));
  exchange->keep(call);
  call->acquire(model);
}

void append_json_vector(std::string& out, std::span<const float> values) {
  out.push_back('[');
  char digits[32];
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out.push_back(',');
    out.append(digits, std::to_chars(digits, digits + sizeof digits, values[i]).ptr);
  }
  out.push_back(']');
}

}  // namespace quarrel
