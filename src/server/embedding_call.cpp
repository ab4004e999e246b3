#include "server/embedding_call.h"

#include <fmt/format.h>

#include <charconv>
#include <mutex>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "server/http/byte_budget.h"
#include "server/request_record.h"
#include "server/running_calls.h"
#include "server/silence.h"
#include "session/refusal.h"

namespace quarrel {
namespace {

using http::Exchange;

// A number takes so much as a float and as text.
constexpr std::size_t kBytesAValue = 16;

class EmbeddingCall final : public RunningCall, public std::enable_shared_from_this<EmbeddingCall> {
 public:
  EmbeddingCall(Service& service, const std::shared_ptr<Exchange>& exchange, EmbeddingAsk ask, EmbeddingAnswer answer)
      : service_(service),
        record_(exchange->request().record),
        exchange_(exchange),
        ask_(std::move(ask)),
        answer_(std::move(answer)) {}
  ~EmbeddingCall() override { ticket_.cancel(); }

  void acquire(const OfferedModel& model) {
    record_->update([&](RequestFacts& facts) { facts.model = model.name; });
    ask_.acquire.key = record_->caller()->key;
    ModelRegistry::Ticket ticket = service_.acquire(
        model, weak_from_this(),
        [this](const ModelRegistry::Lease& lease, const std::exception_ptr& error) { acquired(lease, error); },
        ask_.acquire);
    const std::scoped_lock lock(mutex_);
    ticket_ = std::move(ticket);
  }

  void end(const ApiError& why) override {
    {
      const std::scoped_lock lock(mutex_);
      if (!why_) why_ = why;
      ticket_.cancel();
      run_.cancel();
    }
    stop_.request_stop();
  }

  void end_if_silent(Clock::time_point now) override {
    {
      const std::scoped_lock lock(mutex_);
      if (!silence_.is_too_long(run_, now, service_.patience()) || std::exchange(outcome_taken_, true)) return;
      run_.cancel();
    }
    report({503, "unavailable_error", "timeout", "the model does not answer"}, nullptr);
  }

 private:
  void acquired(const ModelRegistry::Lease& model, const std::exception_ptr& error) {
    load_seconds_ = seconds_since(asked_);
    if (error != nullptr) return report(load_error(error), error);
    record_->update([](RequestFacts& facts) { facts.acquired = Clock::now(); });
    try {
      start(model);
    } catch (...) {
      report(about_field(api_error(std::current_exception()), ask_.field), std::current_exception());
    }
  }

  // None: the client has gone meanwhile.
  std::vector<std::vector<TokenId>> encode(const LoadedModel& model) const {
    std::vector<std::vector<TokenId>> texts;
    const bool ranks = model.ranks();
    EncodedText query;
    if (!ask_.query.empty()) {
      query = ranks ? encode_query(model, ask_.query) : encode_text(model, ask_.query);
      require_whole(query, "query", "the query", model);
      if (!ranks) texts.push_back(query.tokens);
    }
    for (std::size_t i = 0; i < ask_.inputs.size(); ++i) {
      if (exchange_.expired()) return {};
      EncodedText encoded = encode_input(model, query, ask_.inputs[i]);
      require_whole(encoded, ask_.field.c_str(), fmt::format("text {}", i + 1), model);
      texts.push_back(std::move(encoded.tokens));
    }
    return texts;
  }

  EncodedText encode_input(const LoadedModel& model, const EncodedText& query,
                           const std::variant<std::string, std::vector<TokenId>>& input) const {
    if (const auto* ids = std::get_if<std::vector<TokenId>>(&input)) return fit_text(model, *ids);
    const std::string& text = std::get<std::string>(input);
    const bool pair = model.ranks() && !ask_.query.empty();
    return pair ? encode_pair(model, query, text) : encode_text(model, text);
  }

  void require_whole(const EncodedText& encoded, const char* field, const std::string& what,
                     const LoadedModel& model) const {
    if (!encoded.cut || ask_.truncate) return;
    throw too_long_field(
        field, fmt::format("{} has {} tokens and the model takes {}: send \"truncate\": true to have it cut", what,
                           encoded.full_tokens, longest_embedded_text(model)));
  }

  // Many short texts become long answers: all of them together are bounded like the bodies that ask for them.
  void reserve_bytes(std::size_t texts, std::size_t width) {
    if (share_.grow_to(texts * width * kBytesAValue)) return;
    throw ApiError(503, "unavailable_error", "queue_full",
                   answer_.store.run ? "too many vectors are on their way to vector stores"
                                     : "too many vectors are on their way to clients");
  }

  // Dimensions are no fault of the texts.
  std::size_t width_of(const LoadedModel& model) const {
    try {
      return static_cast<std::size_t>(vector_width(model, ask_.options));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::usage) throw;
      throw invalid_field("dimensions", error.what());
    }
  }

  void start(const ModelRegistry::Lease& model) {
    if (ask_.inputs.empty()) return finish(std::make_shared<EmbeddingOutcome>());
    // Before work that a refusal would waste.
    if (!exchange_.expired()) require_accepted(model->engine().admits(record_->caller()->key));
    const std::size_t width = width_of(*model);
    if (answer_.store.prepare) answer_.store.prepare(model);
    std::vector<std::vector<TokenId>> texts = encode(*model);
    ask_.inputs = {};
    if (texts.empty()) return;
    EmbeddingOptions options = ask_.options;
    const std::shared_ptr<const Caller> caller = record_->caller();
    options.key = caller->key;
    options.patience = service_.patience();
    if (caller->priority) options.priority = *caller->priority;
    reserve_bytes(texts.size(), width);
    std::size_t tokens = 0;
    for (const std::vector<TokenId>& text : texts) tokens += text.size();
    std::shared_ptr<LimitTicket> ticket;
    record_->update([&](RequestFacts& facts) {
      facts.priority = options.priority;
      ticket = facts.ticket;
    });
    if (ticket != nullptr) {
      if (const auto refusal = ticket->reserve(static_cast<std::int64_t>(tokens))) throw ApiError(*refusal);
    }
    // Before the engine has them, since the end may come at once; who is refused then has read nothing.
    record_->update([&](RequestFacts& facts) {
      facts.submitted = Clock::now();
      facts.prompt_tokens = tokens;
    });
    try {
      submit(model, std::move(texts), options);
    } catch (...) {
      record_->update([](RequestFacts& facts) { facts.prompt_tokens = 0; });
      throw;
    }
  }

  void submit(const ModelRegistry::Lease& model, std::vector<std::vector<TokenId>> texts,
              const EmbeddingOptions& options) {
    const std::weak_ptr<EmbeddingCall> weak = weak_from_this();
    const std::scoped_lock lock(mutex_);
    if (why_) throw ApiError(*why_);
    run_ = start_embedding(model, std::move(texts), options,
                           [weak, exchange = exchange_, post = service_.text_poster()](EmbeddingOutcome outcome) {
                             hand_over(std::move(outcome), weak, exchange, post);
                           });
    silence_.begin();
  }

  // On the engine's thread, which calls once, and may do so when there is no service any more: thousands of numbers
  // become text elsewhere.
  static void hand_over(EmbeddingOutcome outcome, const std::weak_ptr<EmbeddingCall>& call,
                        const std::weak_ptr<Exchange>& exchange,
                        const std::function<void(std::function<void()>)>& post) {
    try {
      auto kept = std::make_shared<EmbeddingOutcome>(std::move(outcome));
      post([call, kept] {
        if (const auto self = call.lock()) self->finish(kept);
      });
    } catch (const std::exception&) {
      if (const auto held = exchange.lock()) held->abandon();
    }
  }

  void finish(const std::shared_ptr<const EmbeddingOutcome>& outcome) {
    {
      const std::scoped_lock lock(mutex_);
      if (std::exchange(outcome_taken_, true)) return;  // it was not waited for
    }
    record_->update([&](RequestFacts& facts) {
      facts.started = outcome->started;
      if (outcome->error == nullptr) facts.finish_reason = "done";
    });
    if (outcome->error != nullptr) {
      report(about_field(api_error(outcome->error), ask_.field), outcome->error);
      return;
    }
    const auto exchange = exchange_.lock();
    if (exchange == nullptr) return;
    try {
      if (answer_.store.run) return start_store_work(exchange, outcome);
      exchange->respond(answer_.respond(outcome->embeddings, load_seconds_));
    } catch (...) {
      report(api_error(std::current_exception()), std::current_exception());
    }
  }

  // The job holds the call, so it hears of a client that has gone by itself.
  void start_store_work(const std::shared_ptr<Exchange>& exchange,
                        const std::shared_ptr<const EmbeddingOutcome>& outcome) {
    exchange->on_closed([stop = stop_]() mutable { stop.request_stop(); });
    service_.stores().post(
        answer_.store.lane, stop_,
        [self = shared_from_this(), outcome](const std::stop_token& stop) { self->run_store_work(*outcome, stop); });
  }

  void run_store_work(const EmbeddingOutcome& outcome, const std::stop_token& stop) {
    try {
      if (stop.stop_requested()) throw ApiError(503, "unavailable_error", "cancelled", "the request was ended");
      http::Response response = answer_.store.run(outcome.embeddings, stop);
      if (const auto exchange = exchange_.lock()) exchange->respond(std::move(response));
    } catch (...) {
      report(api_error(std::current_exception()), std::current_exception());
    }
  }

  // Nobody else answers: who cannot be told why is not left to wait either.
  void report(const ApiError& caught, const std::exception_ptr& error) {
    const auto exchange = exchange_.lock();
    try {
      const std::optional<ApiError> given = why();
      const ApiError said = given ? *given : service_.draining() ? as_draining(caught) : caught;
      log_fault(service_.log(), record_->id(), said, error);
      if (exchange == nullptr) return;  // its client has left
      record_->update([&](RequestFacts& facts) { note_error(facts, said); });
      exchange->respond(answer_.fail(said));
    } catch (const std::exception&) {
      if (exchange != nullptr) exchange->abandon();
    }
  }

  std::optional<ApiError> why() {
    const std::scoped_lock lock(mutex_);
    return why_;
  }

  Service& service_;
  const std::shared_ptr<RequestRecord> record_;
  const std::weak_ptr<Exchange> exchange_;
  EmbeddingAsk ask_;  // with texts until there are tokens
  const EmbeddingAnswer answer_;
  const Clock::time_point asked_ = Clock::now();
  double load_seconds_ = 0.0;  // set before the engine is asked, read after it has answered
  std::stop_source stop_;      // of work in a store
  http::ByteBudget::Share share_{answer_.store.run ? service_.stored_bytes() : service_.vector_bytes(),
                                 record_->caller()->key};
  std::mutex mutex_;  // guards all below
  ModelRegistry::Ticket ticket_;
  EmbeddingRun run_;
  EmbeddingSilence silence_;
  bool outcome_taken_ = false;   // what the engine says of it, or that it says nothing
  std::optional<ApiError> why_;  // somebody ended it, and said so
};

}  // namespace

void start_embedding_call(Service& service, const std::shared_ptr<Exchange>& exchange, const OfferedModel& model,
                          EmbeddingAsk ask, EmbeddingAnswer answer) {
  auto call = std::make_shared<EmbeddingCall>(service, exchange, std::move(ask), std::move(answer));
  exchange->keep(call);
  exchange->keep(exchange->body_share());  // tokens and vectors are as large as the texts
  service.sockets().watch(call, caller_of(*exchange));
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
