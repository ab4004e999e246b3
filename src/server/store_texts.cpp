#include "server/store_texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/clock.h"
#include "base/counted.h"
#include "base/error.h"
#include "ingest/model_embedder.h"

namespace quarrel {
namespace {

constexpr std::size_t kBatchRows = 1024;
// A client waits: it would sooner hear that the store is gone.
constexpr int kAttempts = 3;
constexpr std::chrono::milliseconds kFirstPause{200};
constexpr std::chrono::minutes kLongestPatience{5};

class GivenTexts final : public TextSource {
 public:
  explicit GivenTexts(std::span<const TextRecord> texts) : texts_(texts) {}

  bool next(TextRecord& record) override {
    if (counts_.texts == texts_.size()) return false;
    record = texts_[counts_.texts++];
    return true;
  }
  bool rewind() override {
    counts_ = {};
    return true;
  }
  const SourceCounts& counts() const noexcept override { return counts_; }

 private:
  const std::span<const TextRecord> texts_;
  SourceCounts counts_;
};

// Vectors that are there already, as what an ingestion embeds with: texts that are alike have the same.
class GivenVectors final : public TextEmbedder {
 public:
  GivenVectors(std::span<const TextRecord> texts, std::span<const Embedding> vectors, std::int32_t dimension)
      : dimension_(dimension) {
    for (std::size_t i = 0; i < texts.size(); ++i) by_text_.emplace(texts[i].text, &vectors[i]);
  }

  std::int32_t dimension() const override { return dimension_; }
  std::unique_ptr<Work> start(std::span<const std::string> texts, std::vector<std::span<float>> places,
                              std::function<void(Outcome)> done) override {
    std::uint64_t tokens = 0;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const Embedding& embedding = *by_text_.at(texts[i]);
      if (embedding.values.size() != places[i].size()) fail(ErrorKind::internal, "a vector of another length");
      std::ranges::copy(embedding.values, places[i].begin());
      tokens += embedding.tokens;
    }
    done({.tokens = tokens});
    return nullptr;
  }

 private:
  const std::int32_t dimension_;
  std::unordered_map<std::string_view, const Embedding*> by_text_;
};

// Its faults are told with its path, which is nothing for clients.
JournalShelf::Lease open_journal(Service& service, const LongbowAddress& to, const JournalSubject& subject) {
  try {
    return service.stores().journal(to, subject);
  } catch (const Error& error) {
    service.log().warn("{}", error.what());
    if (error.kind() == ErrorKind::busy) {
      throw ApiError(503, "unavailable_error", "dataset_in_use", "another program stores in this dataset now");
    }
    if (error.kind() == ErrorKind::usage) {
      throw ApiError(400, "invalid_request_error", "dataset_differs",
                     "the dataset was filled with another model, or with vectors or columns that are made otherwise");
    }
    throw ApiError(500, "server_error", "journal_failed",
                   "the journal of this dataset cannot be used; the server's log says why");
  }
}

// `patience`: of a request; 0 is endless.
IngestOptions ingest_options(std::size_t texts, std::chrono::milliseconds patience) {
  IngestOptions options{.batch_rows = std::clamp(texts, std::size_t{1}, kBatchRows)};
  options.send.attempts = kAttempts;
  options.send.first_pause = kFirstPause;
  options.send.patience = kLongestPatience;
  if (patience.count() > 0) options.send.patience = std::min(options.send.patience, patience);
  return options;
}

// What an ingestion says of the dataset itself, with a code for clients.
void with_codes(const std::function<void()>& work) {
  try {
    work();
  } catch (const LongbowError&) {
    throw;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage && error.kind() != ErrorKind::bad_input) throw;
    const char* code = error.kind() == ErrorKind::usage ? "dataset_has_rows" : "dataset_differs";
    throw ApiError(400, "invalid_request_error", code, error.what());
  }
}

ApiError store_error(const LongbowError& error, Log& log) {
  switch (error.kind()) {
    case ErrorKind::not_found: return {404, "not_found_error", "dataset_not_found", error.what()};
    case ErrorKind::usage:
    case ErrorKind::bad_input: return {400, "invalid_request_error", "store_refused", error.what()};
    case ErrorKind::busy: return {503, "unavailable_error", "store_busy", "the vector store has no room now"};
    case ErrorKind::cancelled: return {503, "unavailable_error", "cancelled", "the request was ended"};
    default: break;
  }
  log.warn("a vector store failed: {}", error.what());
  return {502, "unavailable_error", "store_failed",
          "the vector store does not answer, or refuses this server; the server's log says more"};
}

}  // namespace

void ask_store(Service& service, StoreOperation operation, const std::function<void()>& work) {
  const Clock::time_point begun = Clock::now();
  struct Count {
    Service& service;
    StoreOperation operation;
    Clock::time_point begun;
    ~Count() { service.stores().count(operation, seconds_since(begun)); }
  } const count{service, operation, begun};
  try {
    work();
  } catch (const LongbowError& error) {
    throw ApiError(store_error(error, service.log()));
  } catch (const Error& error) {
    // It was waited for as long as a request may wait.
    if (error.kind() == ErrorKind::busy) throw ApiError(503, "unavailable_error", "store_busy", error.what());
    if (error.kind() != ErrorKind::unsupported) throw;
    service.log().warn("no vector store can be reached: {}", error.what());  // with paths of this machine
    throw ApiError(501, "server_error", "unsupported",
                   "this server cannot reach vector stores: its module for them is missing or cannot be loaded; the "
                   "server's log says why");
  }
}

void StoreTexts::prepare(const ModelRegistry::Lease& model) {
  const ModelEmbedder embedder(model, request_.options, request_.prefix);
  subject_ = {.dataset = longbow_address_text(request_.to),
              .model = embedder.fingerprint(),
              .model_name = model->name(),
              .dimension = embedder.dimension(),
              .settings = embedder.settings(),
              .columns = request_.columns};
}

IngestReport StoreTexts::run(std::span<const Embedding> vectors, const std::stop_token& stop) {
  const std::string& dataset = request_.to.dataset;
  const std::shared_ptr<LongbowClient> client = service_.stores().client(request_.to);
  const JournalShelf::Lease opened = open_journal(service_, request_.to, subject_);
  Journal& journal = *opened;
  const IngestOptions options = ingest_options(request_.texts.size(), service_.patience());
  const IngestCalls calls{.watch = [&stop](const IngestProgress&) { return !stop.stop_requested(); },
                          .note = [this](const std::string& sentence) { service_.log().info("{}", sentence); }};
  const DatasetWait store(*client, dataset, options.send, calls.note);
  with_codes([&] {
    begin_dataset(store, journal, subject_.dimension, request_.unknown_rows, "\"append\": true adds to them", stop);
  });
  GivenTexts source(request_.texts);
  GivenVectors embedder(request_.texts, vectors, subject_.dimension);
  IngestReport report;
  with_codes([&] {
    try {
      report =
          ingest(source, embedder, *client, dataset,
                 ingest_schema(subject_.dimension, request_.columns, subject_.model_name), journal, options, calls);
    } catch (const LongbowError& error) {
      if (error.kind() != ErrorKind::usage && error.kind() != ErrorKind::bad_input) throw;
      check_live_columns(store, subject_.dimension, stop);
      throw;
    }
  });
  if (report.store.repeated > 0) {
    service_.log().warn("more than once in {}: {}", longbow_address_text(request_.to),
                        counted(report.store.repeated, "row"));
  }
  if (report.store.missing > 0) {
    throw ApiError(503, "unavailable_error", "store_lost_rows",
                   fmt::format("{} rows that the vector store took are not there: it drops rows where its memory is "
                               "full; the same request sends them again",
                               report.store.missing));
  }
  return report;
}

StoreWork store_work(Service& service, std::shared_ptr<StoreTexts> texts,
                     std::function<http::Response(std::span<const Embedding>, const IngestReport&)> answer) {
  const LongbowAddress& to = texts->to();
  StoreWork work{.lane = {.name = longbow_address_text(to), .store = host_and_port(to.host, to.data_port)}};
  work.prepare = [texts](const ModelRegistry::Lease& model) { texts->prepare(model); };
  work.run = [&service, texts, answer = std::move(answer)](std::span<const Embedding> vectors,
                                                           const std::stop_token& stop) {
    IngestReport report;
    ask_store(service, StoreOperation::put, [&] { report = texts->run(vectors, stop); });
    return answer(vectors, report);
  };
  return work;
}

}  // namespace quarrel
