#include "server/retrieval.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "ingest/model_embedder.h"
#include "server/limits.h"
#include "server/store_texts.h"

namespace quarrel {

StoreLane search_lane(const LongbowAddress& from) {
  return {.name = "search " + longbow_address_text(from),
          .store = host_and_port(from.host, from.data_port),
          .order = StoreLane::Order::at_once};
}

std::vector<FoundText> find_in_store(Service& service, const StoreSearchRequest& request, const LongbowAddress& from,
                                     std::span<const float> vector, const std::stop_token& stop) {
  std::vector<FoundText> found;
  ask_store(service, StoreOperation::search, [&] {
    const std::shared_ptr<LongbowClient> client = service.stores().client(from);
    if (client->readiness(from.dataset, stop).state == ReadyState::missing) {
      throw ApiError(404, "not_found_error", "dataset_not_found",
                     fmt::format("there is no dataset {} at {}", printable(from.dataset),
                                 host_and_port(from.host, from.data_port)),
                     "from");
    }
    found = find_texts(*client, from.dataset, {.vector = vector, .k = request.k, .filters = request.filters}, stop);
  });
  return found;
}

Retrieval::Retrieval(Service& service, RetrievalRequest request, LongbowAddress from, OfferedModel model)
    : service_(service), request_(std::move(request)), from_(std::move(from)), model_(std::move(model)) {}

std::shared_ptr<Retrieval> Retrieval::of(Service& service, const std::optional<RetrievalRequest>& request,
                                         const Json& messages, const std::string& prompt, const Caller& caller) {
  if (!request) return nullptr;
  RetrievalRequest wanted = *request;
  if (!messages.is_null()) {
    if (messages.back()["role"] != "user") {
      throw invalid_field("retrieval", "with 'retrieval' the last message is the user's: its text is the search query");
    }
    wanted.search.query = messages.back()["content"].get<std::string>();
  } else {
    wanted.search.query = prompt;
  }
  if (is_blank(wanted.search.query)) throw invalid_field("retrieval", "there is no question to search with");
  LongbowAddress from = service.stores().address(wanted.search.from, "retrieval.from");
  OfferedModel model = service.find(wanted.search.model, caller);
  return std::make_shared<Retrieval>(service, std::move(wanted), std::move(from), std::move(model));
}

void Retrieval::start(std::shared_ptr<RequestRecord> record, std::function<void(std::exception_ptr)> done) {
  record_ = std::move(record);
  {
    const std::scoped_lock lock(mutex_);
    done_ = std::move(done);
  }
  ModelRegistry::Ticket ticket = service_.acquire(
      model_, weak_from_this(),
      [this](const ModelRegistry::Lease& lease, const std::exception_ptr& error) { acquired(lease, error); },
      {.key = record_->caller()->key});
  const std::scoped_lock lock(mutex_);
  ticket_ = std::move(ticket);
  if (cancelled_) ticket_.cancel();
}

void Retrieval::cancel() noexcept {
  stop_.request_stop();
  const std::scoped_lock lock(mutex_);
  cancelled_ = true;
  ticket_.cancel();
  run_.cancel();
}

// Once: whoever waits for it goes on, or says why not.
void Retrieval::report(const std::exception_ptr& error) {
  std::function<void(std::exception_ptr)> done;
  {
    const std::scoped_lock lock(mutex_);
    done = std::exchange(done_, nullptr);
  }
  if (done) done(error);
}

void Retrieval::acquired(const ModelRegistry::Lease& model, const std::exception_ptr& error) {
  if (error != nullptr) return report(std::make_exception_ptr(load_error(error)));
  try {
    embed(model);
  } catch (...) {
    report(std::current_exception());
  }
}

// The question's tokens count towards what its key may have, as those of a search do.
void Retrieval::charge(std::size_t tokens) {
  std::shared_ptr<LimitTicket> ticket;
  record_->update([&](const RequestFacts& facts) { ticket = facts.ticket; });
  if (ticket != nullptr) {
    if (const auto refusal = ticket->reserve(static_cast<std::int64_t>(tokens))) throw ApiError(*refusal);
  }
  record_->update([&](RequestFacts& facts) { facts.prompt_tokens += tokens; });
}

void Retrieval::embed(const ModelRegistry::Lease& model) {
  const std::shared_ptr<const Caller> caller = record_->caller();
  EmbeddingOptions options{.dimensions = request_.search.dimensions,
                           .priority = caller->priority.value_or(Priority::interactive),
                           .key = caller->key,
                           .patience = service_.patience()};
  const ModelEmbedder check(model, options, {});  // one vector a text
  std::vector<std::vector<TokenId>> texts;
  texts.push_back(encode_text(*model, request_.search.prefix + request_.search.query).tokens);
  const std::size_t tokens = texts.front().size();
  charge(tokens);
  try {
    submit(model, std::move(texts), options);
  } catch (...) {  // then the engine has read nothing
    record_->update([&](RequestFacts& facts) { facts.prompt_tokens -= tokens; });
    throw;
  }
}

void Retrieval::submit(const ModelRegistry::Lease& model, std::vector<std::vector<TokenId>> texts,
                       const EmbeddingOptions& options) {
  const std::scoped_lock lock(mutex_);
  if (cancelled_) throw Error(ErrorKind::cancelled, "the request was ended");
  // The engine calls once, and may do so when there is no service any more.
  run_ = start_embedding(model, std::move(texts), options,
                         [weak = weak_from_this(), post = service_.text_poster()](EmbeddingOutcome outcome) {
                           hand_over(std::move(outcome), weak, post);
                         });
  silence_.begin();
}

void Retrieval::end_if_silent(Clock::time_point now) {
  {
    const std::scoped_lock lock(mutex_);
    if (embedded_ || !silence_.is_too_long(run_, now, service_.patience())) return;
    embedded_ = true;
    run_.cancel();
  }
  report(std::make_exception_ptr(
      ApiError(503, "unavailable_error", "timeout", "the model that makes vectors does not answer")));
}

// On the engine's thread: the rest of it is work for others.
void Retrieval::hand_over(EmbeddingOutcome outcome, const std::weak_ptr<Retrieval>& weak,
                          const std::function<void(std::function<void()>)>& post) {
  try {
    post([weak, kept = std::make_shared<const EmbeddingOutcome>(std::move(outcome))] {
      if (const auto self = weak.lock()) self->embedded(*kept);
    });
  } catch (...) {
    if (const auto self = weak.lock()) self->report(std::current_exception());
  }
}

void Retrieval::embedded(const EmbeddingOutcome& outcome) {
  {
    const std::scoped_lock lock(mutex_);
    if (std::exchange(embedded_, true)) return;  // it was not waited for
  }
  if (outcome.error != nullptr) return report(outcome.error);
  try {
    service_.stores().post(search_lane(from_), stop_,
                           [self = shared_from_this(), vector = outcome.embeddings.front().values](
                               const std::stop_token& stop) { self->search(vector, stop); });
  } catch (...) {
    report(std::current_exception());
  }
}

void Retrieval::search(std::span<const float> vector, const std::stop_token& stop) {
  try {
    if (stop.stop_requested()) throw Error(ErrorKind::cancelled, "the request was ended");
    found_ = find_in_store(service_, request_.search, from_, vector, stop);
  } catch (...) {
    return report(std::current_exception());
  }
  report(nullptr);
}

void Retrieval::put_into(Ask& ask, const LoadedModel& model) {
  ChatInput* chat = std::get_if<ChatInput>(&ask.prompt);
  if (chat == nullptr) {
    throw invalid_field("retrieval", "the model has no chat template: texts and a question would run into each other");
  }
  const auto half = static_cast<std::size_t>(model.context()) / 2;
  const Tokenizer& tokenizer = model.require_tokenizer();
  const PromptContext context =
      with_context(found_, request_.search.query,
                   {.max_tokens = std::min(request_.max_tokens, half), .prompt_template = request_.prompt_template},
                   [&tokenizer](std::string_view text) { return tokenizer.encode(text, {}).size(); });
  found_ = {};
  chat->messages.back()["content"] = context.question;
  Json list = Json::array();
  for (const UsedText& each : context.sources) list.push_back(source_json(each));
  sources_ = compact_json(list);
}

MakeAsk with_retrieval(std::shared_ptr<Retrieval> retrieval, MakeAsk make_ask) {
  if (retrieval == nullptr) return make_ask;
  return [retrieval = std::move(retrieval), make_ask = std::move(make_ask)](const LoadedModel& model) {
    Ask ask = make_ask(model);
    retrieval->put_into(ask, model);
    return ask;
  };
}

std::string sources_member(const Retrieval* retrieval) {
  return retrieval == nullptr ? std::string() : ",\"sources\":" + retrieval->sources();
}

}  // namespace quarrel
