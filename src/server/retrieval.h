// Texts of a vector store for a question: the question becomes a vector, the store is searched, and what it found goes
// into the prompt of the model that is asked. Also the search itself, which POST /api/search has in common with it.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "ingest/prompt_context.h"
#include "server/generation_call.h"
#include "server/longbow_request.h"
#include "server/service.h"
#include "server/silence.h"
#include "session/ask.h"
#include "session/embedding.h"

namespace quarrel {

// Of searches in a dataset.
StoreLane search_lane(const LongbowAddress& from);
// The nearest first. Blocks, on a thread of the pool for stores. Throws ApiError.
std::vector<FoundText> find_in_store(Service& service, const StoreSearchRequest& request, const LongbowAddress& from,
                                     std::span<const float> vector, const std::stop_token& stop);

// One question's. Shared by what asks the model and what writes the answer.
//
// Threads: any; `put_into` once, after `start` has reported success, `sources` after that.
class Retrieval final : public Preparation, public std::enable_shared_from_this<Retrieval> {
 public:
  // Null where the request wants none. Throws ApiError that names the field: for a host that may not be reached, a
  // model that is not there, or messages that do not end with a question.
  static std::shared_ptr<Retrieval> of(Service& service, const std::optional<RetrievalRequest>& request,
                                       const Json& messages, const std::string& prompt, const Caller& caller);
  Retrieval(Service& service, RetrievalRequest request, LongbowAddress from, OfferedModel model);

  void start(std::shared_ptr<RequestRecord> record, std::function<void(std::exception_ptr)> done) override;
  void cancel() noexcept override;
  void end_if_silent(Clock::time_point now) override;

  // Puts texts before the last message's question. Throws ApiError for a model that cannot chat.
  void put_into(Ask& ask, const LoadedModel& model);
  // What it put there, as a JSON array.
  const std::string& sources() const noexcept { return sources_; }

 private:
  void acquired(const ModelRegistry::Lease& model, const std::exception_ptr& error);
  void embed(const ModelRegistry::Lease& model);
  void charge(std::size_t tokens);
  void submit(const ModelRegistry::Lease& model, std::vector<std::vector<TokenId>> texts,
              const EmbeddingOptions& options);
  static void hand_over(EmbeddingOutcome outcome, const std::weak_ptr<Retrieval>& weak,
                        const std::function<void(std::function<void()>)>& post);
  void embedded(const EmbeddingOutcome& outcome);
  void search(std::span<const float> vector, const std::stop_token& stop);
  void report(const std::exception_ptr& error);

  Service& service_;
  const RetrievalRequest request_;
  const LongbowAddress from_;
  const OfferedModel model_;
  std::shared_ptr<RequestRecord> record_;
  std::vector<FoundText> found_;  // until they are put into a question
  std::string sources_ = "[]";

  std::stop_source stop_;
  std::mutex mutex_;  // guards all below
  std::function<void(std::exception_ptr)> done_;
  ModelRegistry::Ticket ticket_;
  EmbeddingRun run_;
  EmbeddingSilence silence_;
  bool embedded_ = false;  // or the engine was not waited for
  bool cancelled_ = false;
};

// The same question with what the store has for it; as it was where there is no retrieval.
MakeAsk with_retrieval(std::shared_ptr<Retrieval> retrieval, MakeAsk make_ask);

// ,"sources":[…] for the end of an object; nothing without a retrieval.
std::string sources_member(const Retrieval* retrieval);

}  // namespace quarrel
