#include "server/generation_call.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <utility>

#include "base/error.h"
#include "server/silence.h"
#include "session/refusal.h"

namespace quarrel {
namespace {

// What a request may come to, before anybody has tokenised it: a token has about four bytes. An answer without a bound
// is counted as one of a few hundred; what it really takes is settled at its end.
std::int64_t estimated_tokens(const Ask& ask) {
  constexpr std::size_t kBytesAToken = 4;
  constexpr std::int64_t kUsualAnswer = 256;
  std::size_t prompt = 0;
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&ask.prompt)) prompt = ids->size();
  if (const auto* text = std::get_if<std::string>(&ask.prompt)) prompt = text->size() / kBytesAToken;
  if (const auto* chat = std::get_if<ChatInput>(&ask.prompt)) {
    for (const auto& message : chat->messages) {
      const auto content = message.find("content");
      if (content == message.end() || !content->is_string()) continue;
      prompt += content->get_ref<const std::string&>().size() / kBytesAToken;
    }
  }
  const std::int64_t answer = ask.max_tokens >= 0 ? ask.max_tokens : kUsualAnswer;
  return static_cast<std::int64_t>(prompt) + answer * branch_count(ask);
}

class Call final : public GenerationCall, public std::enable_shared_from_this<Call> {
 public:
  Call(Service& service, std::shared_ptr<RequestRecord> record, MakeAsk make_ask, std::unique_ptr<AnswerWriter> writer,
       CallOptions options)
      : service_(service),
        record_(std::move(record)),
        before_(std::move(options.before)),
        prompt_field_(std::move(options.prompt_field)),
        make_ask_(std::move(make_ask)),
        further_prompts_(std::move(options.further_prompts)),
        writer_(std::move(writer)) {}
  ~Call() override {
    if (before_ != nullptr) before_->cancel();
    ticket_.cancel();
    note_usage();
  }

  // The model is not held while something else is waited for.
  void start(const OfferedModel& model, const AcquireOptions& options) {
    if (before_ == nullptr) return acquire(model, options);
    before_->start(record_, [weak = weak_from_this(), model, options](const std::exception_ptr& error) {
      if (const auto self = weak.lock()) self->prepared(model, options, error);
    });
  }

  void acquire(const OfferedModel& model, AcquireOptions options) {
    options.key = record_->caller()->key;
    ModelRegistry::Ticket ticket = service_.acquire(
        model, weak_from_this(),
        [this](const ModelRegistry::Lease& lease, const std::exception_ptr& error) { acquired(lease, error); },
        options);
    const std::scoped_lock lock(cancel_mutex_);
    ticket_ = std::move(ticket);
    if (cancelled_) ticket_.cancel();
  }

  std::shared_ptr<const Caller> caller() const { return record_->caller(); }

  // It waits for no text and no writer: whoever notices that a client is gone may be the one that writes to it.
  void cancel() override { end_early(std::nullopt); }
  void end(const ApiError& why) override { end_early(why); }

  void end_if_silent(Clock::time_point now) override {
    const std::chrono::milliseconds patience = service_.patience();
    const Clock::duration heard(heard_.load());
    if (patience.count() == 0) return;
    if (heard.count() == 0) {
      if (before_ != nullptr) before_->end_if_silent(now);
      return;
    }
    if (now.time_since_epoch() - heard < longest_silence(patience)) return;
    const ApiError error = failed(FinishReason::timeout, "the model does not answer");
    const std::scoped_lock lock(mutex_);
    if (answers_left_ <= 0) return;
    // Of the best of several nothing is heard before all of them have ended.
    const std::size_t generated = generations_.usage().generated_tokens;
    if (std::exchange(generated_, generated) != generated) return note_life();
    answers_left_ = 0;
    end_early(error);
    report_to_writer(error);
    let_go();
  }

 private:
  static constexpr const char* kCancelled = "cancelled";
  using Prompts = std::vector<decltype(Ask::prompt)>;

  void prepared(const OfferedModel& model, const AcquireOptions& options, std::exception_ptr error) {
    try {
      if (error == nullptr) return acquire(model, options);
    } catch (...) {
      error = std::current_exception();
    }
    report(api_error(error), error);
  }

  void acquired(const ModelRegistry::Lease& model, const std::exception_ptr& error) {
    // The question is kept no longer than until it is asked.
    const MakeAsk make_ask = std::exchange(make_ask_, {});
    Prompts further = std::exchange(further_prompts_, {});
    if (error != nullptr) return report(load_error(error), error);
    record_->update([](RequestFacts& facts) { facts.acquired = Clock::now(); });
    try {
      // Before work that a refusal would waste.
      if (!cancelled()) require_accepted(model->engine().admits(caller()->key));
      begin(model, asks_for(*model, make_ask, std::move(further)));
    } catch (...) {
      report(about_field(api_error(std::current_exception()), prompt_field_), std::current_exception());
    }
  }

  // One a prompt. Whose request it is decides on its turn and on what it shares.
  std::vector<Ask> asks_for(const LoadedModel& model, const MakeAsk& make_ask, Prompts further) const {
    Ask ask = make_ask(model);
    const std::shared_ptr<const Caller> caller = record_->caller();
    ask.key = caller->key;
    ask.salt = caller->salt;
    if (ask.patience.count() == 0) ask.patience = service_.patience();
    if (caller->priority) ask.priority = *caller->priority;
    std::shared_ptr<LimitTicket> ticket;
    std::size_t read = 0;  // before: the question of a retrieval
    record_->update([&](RequestFacts& facts) {
      facts.priority = ask.priority;
      ticket = facts.ticket;
      read = facts.prompt_tokens;
    });
    std::vector<Ask> asks = {std::move(ask)};
    for (auto& prompt : further) {
      asks.push_back(asks.front());
      asks.back().prompt = std::move(prompt);
    }
    if (ticket != nullptr) {
      auto tokens = static_cast<std::int64_t>(read);
      for (const Ask& each : asks) tokens += estimated_tokens(each);
      if (const auto refusal = ticket->reserve(tokens)) throw ApiError(*refusal);
    }
    return asks;
  }

  void end_early(const std::optional<ApiError>& why) {
    const std::scoped_lock lock(cancel_mutex_);
    if (!cancelled_) why_ = why;
    cancelled_ = true;
    if (before_ != nullptr) before_->cancel();
    ticket_.cancel();
    generations_.cancel();
    note_usage();  // a client that is gone takes the record's end with it
  }

  // What was computed is counted whether anybody saw it or not: of the best of several the others were computed too.
  // Of whoever holds a mutex that guards the generations.
  void note_usage() {
    const std::size_t generated = generations_.usage().generated_tokens;
    record_->update([&](RequestFacts& facts) { facts.generated_tokens = std::max(facts.generated_tokens, generated); });
  }

  bool cancelled() {
    const std::scoped_lock lock(cancel_mutex_);
    return cancelled_;
  }

  std::optional<ApiError> why() {
    const std::scoped_lock lock(cancel_mutex_);
    return why_;
  }

  // Events may come before this is over, on another thread: they wait for the mutex.
  void begin(const ModelRegistry::Lease& model, std::vector<Ask> asks) {
    for (Ask& ask : asks) {
      if (!cancelled()) ask.prompt = encode_prompt(*model, ask);
    }
    const std::scoped_lock lock(mutex_);
    if (cancelled()) return fail(FinishReason::cancelled, "the request was cancelled");
    model_ = model;
    Generations started;
    std::int32_t answers = 0;
    for (const Ask& ask : asks) {
      started.add(start_one(model, ask, answers));
      answers += ask.answers;
    }
    {
      const std::scoped_lock cancel_lock(cancel_mutex_);
      generations_ = std::move(started);
      if (cancelled_) generations_.cancel();
    }
    note_life();
    record_->update([&](RequestFacts& facts) {
      facts.submitted = Clock::now();
      facts.prompt_tokens += generations_.usage().prompt_tokens;
    });
    writer_->begin(*model, generations_);
    answers_left_ = answers;
  }

  // Its answers are numbered from `first` on.
  Generation start_one(const ModelRegistry::Lease& model, const Ask& ask, std::int32_t first) {
    return Generation::start(
        model, ask,
        [weak = weak_from_this(), first](std::span<GenerationEvent> events) {
          const auto self = weak.lock();
          if (self == nullptr) return;
          for (GenerationEvent& event : events) event.answer += first;
          self->take(events);
        },
        [poster = service_.poster()](std::function<void()> task) { StepPoster::post(poster, std::move(task)); });
  }

  void take(std::span<GenerationEvent> events) {
    const std::scoped_lock lock(mutex_);
    if (answers_left_ <= 0) return;
    note_life();
    try {
      write(events);
    } catch (const std::exception& error) {
      // Nobody would call again, and the client would wait forever.
      answers_left_ = 0;
      record_->update([&](RequestFacts& facts) { note_error(facts, failed(FinishReason::failed, error.what())); });
      writer_->abandon();
      service_.log().try_warn("request {} failed: {}", record_->id(), error.what());
    }
    if (answers_left_ == 0) let_go();
  }

  void note_life() noexcept { heard_ = Clock::now().time_since_epoch().count(); }

  // The call lives until its client has read the answer; the model is not kept that long.
  void let_go() {
    model_.reset();
    Generations ended;  // end without the lock
    const std::scoped_lock lock(cancel_mutex_);
    note_usage();
    std::swap(ended, generations_);
  }

  void write(std::span<GenerationEvent> events) {
    note(events);
    for (std::size_t i = 0; i < events.size(); ++i) {
      const GenerationEvent& event = events[i];
      if (event.kind != GenerationEvent::Kind::finished) continue;
      --answers_left_;
      const std::string failure = failure_text(event.reason, event.error);
      if (failure.empty()) continue;
      answers_left_ = 0;
      generations_.cancel();
      writer_->take(events.first(i));  // what came before it was answered
      fail(event.reason, failure);
      return;
    }
    writer_->take(events);
    if (answers_left_ != 0) return;
    note_usage();  // before the client has all of it, and the record ends
    writer_->end(generations_.usage());
  }

  void note(std::span<const GenerationEvent> events) {
    std::size_t tokens = 0;
    answers_seen_.clear();
    for (const GenerationEvent& event : events) {
      switch (event.kind) {
        case GenerationEvent::Kind::started:
          record_->update([&](RequestFacts& facts) {
            if (!facts.started) facts.started = Clock::now();
            facts.cached_tokens += static_cast<std::size_t>(event.cached);
          });
          break;
        case GenerationEvent::Kind::finished:
          record_->update([&](RequestFacts& facts) { facts.finish_reason = reason_name(event.reason); });
          break;
        case GenerationEvent::Kind::piece:
          if (event.token < 0) break;
          ++tokens;
          if (std::ranges::find(answers_seen_, event.answer) == answers_seen_.end())
            answers_seen_.push_back(event.answer);
          break;
        case GenerationEvent::Kind::waiting:
        case GenerationEvent::Kind::prompt_read:
        case GenerationEvent::Kind::prompt_score:
        case GenerationEvent::Kind::shifted: break;
      }
    }
    if (tokens > 0) record_->add_tokens(tokens, answers_seen_.size());
  }

  static ApiError failed(FinishReason reason, const std::string& message) {
    switch (reason) {
      case FinishReason::cancelled: return {503, "unavailable_error", kCancelled, message};
      case FinishReason::timeout: return {503, "unavailable_error", "timeout", message};
      case FinishReason::no_token: return {400, "invalid_request_error", "no_token", message};
      default: return {500, "server_error", "model_failed", message};
    }
  }

  // Who ended it may have said why.
  void fail(FinishReason reason, const std::string& message) {
    note_usage();
    if (const std::optional<ApiError> given = why(); given && reason == FinishReason::cancelled) return tell(*given);
    tell(failed(reason, message));
  }

  // Whoever asked and wants no more, or is not there any more, has met no failure.
  void tell(ApiError error) {
    const bool left = cancelled() && !why() && error.code == kCancelled;
    if (!left && service_.draining()) error = as_draining(std::move(error));
    record_->update([&](RequestFacts& facts) {
      if (left) {
        facts.finish_reason = reason_name(FinishReason::cancelled);
      } else {
        note_error(facts, error);
      }
    });
    writer_->fail(error);
  }

  void report(const ApiError& said, const std::exception_ptr& error) {
    log_fault(service_.log(), record_->id(), said, error);
    const std::scoped_lock lock(mutex_);
    report_to_writer(said);
    let_go();
  }

  void report_to_writer(const ApiError& said) {
    try {
      const std::optional<ApiError> given = why();
      tell(given ? *given : said);
    } catch (const std::exception&) {
      writer_->abandon();
    }
  }

  Service& service_;
  const std::shared_ptr<RequestRecord> record_;
  const std::shared_ptr<Preparation> before_;
  const std::string prompt_field_;
  MakeAsk make_ask_;  // until the model is there, or will not be; of that callback alone, like the next
  Prompts further_prompts_;
  std::atomic<Clock::rep> heard_ = 0;  // when its engine last had something to say of it; 0: it has no engine yet

  std::mutex mutex_;  // held while an answer is written; guards the next five
  // The writer spells tokens, and a generation lets its model go before it reports its end.
  ModelRegistry::Lease model_;
  std::unique_ptr<AnswerWriter> writer_;
  std::int32_t answers_left_ = 0;
  std::size_t generated_ = 0;               // tokens, when nothing had been heard for long
  std::vector<std::int32_t> answers_seen_;  // those that the tokens of one batch belong to

  std::mutex cancel_mutex_;  // held for a moment only; guards all below. Taken after the other, never before
  ModelRegistry::Ticket ticket_;
  Generations generations_;  // changed with both: who holds either may ask them
  bool cancelled_ = false;
  std::optional<ApiError> why_;  // it was cancelled, where somebody said so
};

}  // namespace

void HttpAnswerWriter::begin(const LoadedModel& model, const Generations& generations) {
  if (const auto exchange = exchange_.lock()) send_head(*exchange, model, generations);
}

void HttpAnswerWriter::take(std::span<GenerationEvent> events) {
  if (const auto exchange = exchange_.lock()) send_events(*exchange, events);
}

void HttpAnswerWriter::end(const Usage& usage) {
  if (const auto exchange = exchange_.lock()) send_end(*exchange, usage);
}

void HttpAnswerWriter::fail(const ApiError& error) {
  if (const auto exchange = exchange_.lock()) send_error(*exchange, error);
}

void HttpAnswerWriter::abandon() {
  if (const auto exchange = exchange_.lock()) exchange->abandon();
}

MakeAsk with_share(std::shared_ptr<void> share, MakeAsk make_ask) {
  return
      [share = std::move(share), make_ask = std::move(make_ask)](const LoadedModel& model) { return make_ask(model); };
}

MakeAsk with_body_share(const http::Exchange& exchange, MakeAsk make_ask) {
  return with_share(exchange.body_share(), std::move(make_ask));
}

std::shared_ptr<GenerationCall> start_generation(Service& service, std::shared_ptr<RequestRecord> record,
                                                 const OfferedModel& model, MakeAsk make_ask,
                                                 std::unique_ptr<AnswerWriter> writer, const CallOptions& options) {
  record->update([&](RequestFacts& facts) { facts.model = model.name; });
  auto call = std::make_shared<Call>(service, std::move(record), std::move(make_ask), std::move(writer), options);
  call->start(model, options.acquire);
  service.sockets().watch(call, call->caller());
  return call;
}

void serve_generation(Service& service, const std::shared_ptr<http::Exchange>& exchange, const OfferedModel& model,
                      MakeAsk make_ask, std::unique_ptr<AnswerWriter> writer, const CallOptions& options) {
  const std::shared_ptr<GenerationCall> call =
      start_generation(service, exchange->request().record, model, with_body_share(*exchange, std::move(make_ask)),
                       std::move(writer), options);
  exchange->keep(call);
  exchange->on_closed([weak = std::weak_ptr<GenerationCall>(call)] {
    if (const auto self = weak.lock()) self->cancel();
  });
}

}  // namespace quarrel
