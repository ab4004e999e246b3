// Texts of a request, with vectors that are there already, into a dataset: the same journal and the same care as
// `quarrel embed --to` has, so that a request that is sent again stores nothing twice.
//
// Blocks: on a thread of the pool for stores, one at a time for each dataset.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "ingest/dataset_check.h"
#include "ingest/ingestion.h"
#include "server/embedding_call.h"
#include "server/service.h"
#include "session/embedding.h"

namespace quarrel {

struct StoreTextsRequest {
  LongbowAddress to = {};
  std::vector<TextRecord> texts = {};
  std::vector<std::string> columns = {};  // beyond those that every dataset has
  UnknownRows unknown_rows = UnknownRows::refused;
  std::string prefix = {};  // that the texts were embedded with
  EmbeddingOptions options = {};
};

class StoreTexts {
 public:
  StoreTexts(Service& service, StoreTextsRequest request) : service_(service), request_(std::move(request)) {}

  // What the journal is to know of the model. Throws Error for one that gives no vectors to store.
  void prepare(const ModelRegistry::Lease& model);
  // A vector a text. Throws what an ingestion throws, and ApiError where the store has lost rows.
  IngestReport run(std::span<const Embedding> vectors, const std::stop_token& stop);

  const LongbowAddress& to() const noexcept { return request_.to; }

 private:
  Service& service_;
  const StoreTextsRequest request_;
  JournalSubject subject_;
};

// The part of a request that stores: `answer` makes the response. In its lane nothing else touches the dataset.
StoreWork store_work(Service& service, std::shared_ptr<StoreTexts> texts,
                     std::function<http::Response(std::span<const Embedding>, const IngestReport&)> answer);

// Calls `work`, which asks a store, and counts how long it took. What the store's calls throw becomes what a client may
// see of it; the log has the rest.
void ask_store(Service& service, StoreOperation operation, const std::function<void()>& work);

}  // namespace quarrel
