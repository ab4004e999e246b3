#include "support/longbow_server.h"

#include <arrow/api.h>
#include <arrow/flight/server.h>
#include <arrow/io/memory.h>
#include <arrow/ipc/writer.h>
#include <arrow/util/align_util.h>
#include <arrow/util/byte_size.h>
#include <arrow/util/compression.h>

#include <algorithm>
#include <map>
#include <thread>
#include <utility>

#include <nlohmann/json.hpp>

namespace quarrel::longbow {
namespace {

using arrow::Status;
using arrow::flight::FlightStatusCode;
using arrow::flight::MakeFlightError;
using arrow::flight::ServerCallContext;
using Batch = std::shared_ptr<arrow::RecordBatch>;
using Json = nlohmann::json;

// What one stream brings is gathered until it has so many rows or bytes, or ends.
constexpr std::int64_t kFlushRows = 50'000;
constexpr std::int64_t kFlushBytes = std::int64_t{32} << 20;
constexpr std::size_t kHitRows = 4096;

void must(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

// gRPC hands over bytes wherever they came to lie.
arrow::Result<Batch> aligned(Batch batch) {
  return arrow::util::EnsureAlignment(std::move(batch), arrow::util::kValueAlignment, arrow::default_memory_pool());
}

std::vector<Filter> filters_of(const Json& object) {
  std::vector<Filter> filters;
  for (const Json& filter : object.value("filters", Json::array())) {
    const Json value = filter.value("value", Json(""));
    filters.push_back({.field = filter.value("field", ""),
                       .comparison = filter.value("operator", filter.value("op", "")),
                       .value = value.is_string() ? value.get<std::string>() : value.dump()});
  }
  return filters;
}

arrow::Result<Batch> hits_batch(const std::vector<Hit>& hits, std::size_t from, std::size_t count) {
  arrow::UInt64Builder ids;
  arrow::FloatBuilder scores;
  for (std::size_t i = from; i < from + count; ++i) {
    ARROW_RETURN_NOT_OK(ids.Append(hits[i].id));
    ARROW_RETURN_NOT_OK(scores.Append(hits[i].score));
  }
  ARROW_ASSIGN_OR_RAISE(auto id, ids.Finish());
  ARROW_ASSIGN_OR_RAISE(auto score, scores.Finish());
  return arrow::RecordBatch::Make(
      arrow::schema({arrow::field("id", arrow::uint64()), arrow::field("score", arrow::float32())}),
      static_cast<std::int64_t>(count), {id, score});
}

// Columns are told even where there are no hits.
arrow::Result<std::vector<Batch>> hits_batches(const std::vector<Hit>& hits) {
  std::vector<Batch> batches;
  for (std::size_t from = 0; from == 0 || from < hits.size(); from += kHitRows) {
    ARROW_ASSIGN_OR_RAISE(auto batch, hits_batch(hits, from, std::min(kHitRows, hits.size() - from)));
    batches.push_back(std::move(batch));
  }
  return batches;
}

// A stream that ends without having said what its columns are.
class EmptyStream : public arrow::flight::FlightDataStream {
 public:
  std::shared_ptr<arrow::Schema> schema() override { return arrow::schema({}); }
  arrow::Result<arrow::flight::FlightPayload> GetSchemaPayload() override { return arrow::flight::FlightPayload(); }
  arrow::Result<arrow::flight::FlightPayload> Next() override { return arrow::flight::FlightPayload(); }
};

// Batches, and after them perhaps the end of the server.
class BatchStream : public arrow::RecordBatchReader {
 public:
  BatchStream(std::vector<Batch> batches, std::optional<std::int64_t> break_after)
      : batches_(std::move(batches)), break_after_(break_after) {}
  std::shared_ptr<arrow::Schema> schema() const override { return batches_.front()->schema(); }
  Status ReadNext(Batch* batch) override {
    if (break_after_ && static_cast<std::int64_t>(next_) >= *break_after_) {
      return MakeFlightError(FlightStatusCode::Unavailable, "the server is going away");
    }
    *batch = next_ < batches_.size() ? batches_[next_++] : nullptr;
    return Status::OK();
  }

 private:
  std::vector<Batch> batches_;
  std::optional<std::int64_t> break_after_;
  std::size_t next_ = 0;
};

// One batch for ever.
class EndlessStream : public arrow::RecordBatchReader {
 public:
  explicit EndlessStream(Batch batch) : batch_(std::move(batch)) {}
  std::shared_ptr<arrow::Schema> schema() const override { return batch_->schema(); }
  Status ReadNext(Batch* batch) override {
    *batch = batch_;
    return Status::OK();
  }

 private:
  const Batch batch_;
};

std::unique_ptr<arrow::flight::FlightDataStream> endless_stream_of(Batch batch) {
  return std::make_unique<arrow::flight::RecordBatchStream>(std::make_shared<EndlessStream>(std::move(batch)));
}

std::unique_ptr<arrow::flight::FlightDataStream> stream_of(std::vector<Batch> batches,
                                                           std::optional<std::int64_t> break_after = {},
                                                           bool compressed = false) {
  if (batches.empty()) return std::make_unique<EmptyStream>();
  auto reader = std::make_shared<BatchStream>(std::move(batches), break_after);
  arrow::ipc::IpcWriteOptions options = arrow::ipc::IpcWriteOptions::Defaults();
  if (compressed) options.codec = arrow::util::Codec::Create(arrow::Compression::LZ4_FRAME).ValueOrDie();
  return std::make_unique<arrow::flight::RecordBatchStream>(reader, options);
}

std::unique_ptr<arrow::flight::ResultStream> results_of(std::vector<std::shared_ptr<arrow::Buffer>> bodies) {
  std::vector<arrow::flight::Result> results;
  for (auto& body : bodies) results.emplace_back(std::move(body));
  return std::make_unique<arrow::flight::SimpleResultStream>(std::move(results));
}

std::unique_ptr<arrow::flight::ResultStream> result_of(std::string text) {
  return results_of({arrow::Buffer::FromString(std::move(text))});
}

}  // namespace

struct Server::Shared {
  ServerOptions options;
  Store store;
  std::atomic<std::int64_t> calls = 0;
  std::atomic<std::int64_t> streams = 0;
  std::atomic<int> streams_read = 0;  // to their end
  std::mutex mutex;
  Faults faults;
  // What the store's parser keeps of one search for the next that does not say.
  Json stale = {{"local_only", false}, {"include_vectors", false}, {"vector_format", ""}};
  std::map<std::string, std::vector<Hit>> remembered;  // searches by ticket, whatever was stored since

  Faults current() {
    const std::lock_guard lock(mutex);
    return faults;
  }

  Status begin(const ServerCallContext& context) {
    ++calls;
    if (!options.token.empty()) {
      const auto [first, last] = context.incoming_headers().equal_range("authorization");
      const std::string wanted = "Bearer " + options.token;
      if (std::none_of(first, last, [&](const auto& header) { return header.second == wanted; })) {
        return MakeFlightError(FlightStatusCode::Unauthenticated, "no such token");
      }
    }
    if (!takes_one(&Faults::refuse_calls)) return Status::OK();
    return MakeFlightError(FlightStatusCode::Unavailable, "not now");
  }

  // Whether there is one left of a fault that comes so often.
  bool takes_one(int Faults::* count) {
    const std::lock_guard lock(mutex);
    if (faults.*count == 0) return false;
    --(faults.*count);
    return true;
  }

  // Streams that the server does not read hold their client back.
  Status wait_while_stalled(const ServerCallContext& context) {
    while (current().stall) {
      if (context.is_cancelled()) return Status::Cancelled("the client is gone");
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return Status::OK();
  }

  // Until another stream was queued, whether the client of this one is still there or not.
  void wait_while_overtaken() {
    while (current().overtaken) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }

  void end_overtaking() {
    const std::lock_guard lock(mutex);
    faults.overtaken = false;
  }

  arrow::Result<Query> query_of(const Json& search, bool strict) {
    static const std::set<std::string> kKnown = {"dataset",         "vector",       "k",     "filters",
                                                 "local_only",      "text_query",   "alpha", "graph_alpha",
                                                 "include_vectors", "vector_format"};
    if (!search.is_object()) return Status::Invalid("invalid ticket format");
    for (const auto& [key, value] : search.items()) {
      if (strict && !kKnown.contains(key)) return Status::Invalid("invalid ticket format: unknown key ", key);
    }
    {
      const std::lock_guard lock(mutex);
      for (auto& [key, value] : stale.items()) {
        if (search.contains(key)) value = search[key];
      }
      if (stale["include_vectors"] == true) return Status::Invalid("this server has no vectors to include");
    }
    return Query{.dataset = search.value("dataset", ""),
                 .vector = search.value("vector", std::vector<float>()),
                 .k = search.value("k", 10),
                 .filters = filters_of(search),
                 .text = search.value("text_query", ""),
                 .alpha = search.value("alpha", 0.0)};
  }

  Status search_ticket(const Json& search, std::unique_ptr<arrow::flight::FlightDataStream>* stream) {
    ARROW_ASSIGN_OR_RAISE(const Query query, query_of(search, true));
    const std::string key = search.dump();
    {
      const std::lock_guard lock(mutex);
      if (const auto known = remembered.find(key); known != remembered.end()) {
        ARROW_ASSIGN_OR_RAISE(auto batches, hits_batches(known->second));
        *stream = stream_of(std::move(batches));
        return Status::OK();
      }
    }
    ARROW_ASSIGN_OR_RAISE(const auto hits, store.search(query));
    if (!hits.empty()) {
      const std::lock_guard lock(mutex);
      remembered[key] = hits;
    }
    ARROW_ASSIGN_OR_RAISE(auto batches, hits_batches(hits));
    *stream = current().endless_hits ? endless_stream_of(batches.front()) : stream_of(std::move(batches));
    return Status::OK();
  }
};

// What both ports answer.
class Server::Base : public arrow::flight::FlightServerBase {
 public:
  explicit Base(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

  Status GetSchema(const ServerCallContext& context, const arrow::flight::FlightDescriptor&,
                   std::unique_ptr<arrow::flight::SchemaResult>* schema) override {
    ARROW_RETURN_NOT_OK(shared_->begin(context));
    *schema = std::make_unique<arrow::flight::SchemaResult>("");
    return Status::OK();
  }

  Status DoGet(const ServerCallContext& context, const arrow::flight::Ticket& request,
               std::unique_ptr<arrow::flight::FlightDataStream>* stream) override {
    ARROW_RETURN_NOT_OK(shared_->begin(context));
    ARROW_RETURN_NOT_OK(shared_->wait_while_stalled(context));
    Json ticket = {{"name", request.ticket}};
    if (request.ticket.starts_with('{')) ticket = Json::parse(request.ticket, nullptr, false);
    if (!ticket.is_object()) return Status::Invalid("invalid ticket format");
    if (ticket.contains("search")) return shared_->search_ticket(ticket["search"], stream);
    const std::string dataset = ticket.value("name", ticket.value("dataset", ""));
    ARROW_ASSIGN_OR_RAISE(auto batches, shared_->store.scan(dataset, filters_of(ticket)));
    const Faults faults = shared_->current();
    const bool nothing = faults.endless_nothing && !batches.empty();
    *stream = nothing ? endless_stream_of(batches.front()->Slice(0, 0))
                      : stream_of(std::move(batches), faults.break_get_after, faults.compressed);
    return Status::OK();
  }

  Status DoAction(const ServerCallContext& context, const arrow::flight::Action& action,
                  std::unique_ptr<arrow::flight::ResultStream>* result) override {
    ARROW_RETURN_NOT_OK(shared_->begin(context));
    const std::string text = action.body == nullptr ? "" : action.body->ToString();
    const Json body = text.empty() ? Json::object() : Json::parse(text, nullptr, false);
    if (!body.is_object()) return Status::Invalid("malformed JSON");
    const std::string dataset = body.value("dataset", "");
    if (action.type == "check_readiness") return readiness(dataset, result);
    if (action.type == "VectorSearch") return search(body, result);
    if (action.type == "delete" || action.type == "Delete") {
      ARROW_RETURN_NOT_OK(shared_->store.remove(dataset, body.value("id", "")));
    } else if (action.type == "delete-dataset") {
      ARROW_RETURN_NOT_OK(shared_->store.remove_dataset(dataset));
    } else if (action.type == "GetGraphStats") {
      if (!shared_->store.readiness(dataset).found) return Status::KeyError("dataset not found: ", dataset);
      *result = result_of(R"({"edge_count":0,"community_count":0,"predicates":[]})");
      return Status::OK();
    } else {
      return Status::NotImplemented("unknown action type ", action.type);
    }
    *result = result_of("deleted");
    return Status::OK();
  }

 protected:
  std::shared_ptr<Shared> shared_;

 private:
  Status readiness(const std::string& dataset, std::unique_ptr<arrow::flight::ResultStream>* result) {
    const Readiness state = shared_->store.readiness(dataset);
    Json answer;
    if (dataset.empty()) {
      answer = {{"status", "READY"}};
    } else if (shared_->takes_one(&Faults::busy_as_a_whole)) {  // before the dataset is looked at
      answer = {{"status", "BUSY"}, {"reason", "global index queue"}};
    } else if (!state.found) {
      answer = {{"status", "NOT_FOUND"}, {"reason", "dataset not found"}};
    } else if (state.busy) {
      answer = {{"status", "BUSY"}, {"reason", "pending ingestion"}, {"index_len", state.indexed}};
    } else {
      answer = {{"status", "READY"}, {"index_len", state.indexed}};
    }
    *result = result_of(answer.dump());
    return Status::OK();
  }

  // An IPC stream a query vector.
  Status search(const Json& body, std::unique_ptr<arrow::flight::ResultStream>* result) {
    ARROW_ASSIGN_OR_RAISE(const Query query, shared_->query_of(body, false));
    ARROW_ASSIGN_OR_RAISE(const auto hits, shared_->store.search(query));
    ARROW_ASSIGN_OR_RAISE(const auto batch, hits_batch(hits, 0, hits.size()));
    ARROW_ASSIGN_OR_RAISE(auto sink, arrow::io::BufferOutputStream::Create());
    ARROW_ASSIGN_OR_RAISE(auto writer, arrow::ipc::MakeStreamWriter(sink, batch->schema()));
    ARROW_RETURN_NOT_OK(writer->WriteRecordBatch(*batch));
    ARROW_RETURN_NOT_OK(writer->Close());
    ARROW_ASSIGN_OR_RAISE(auto bytes, sink->Finish());
    *result = results_of({std::move(bytes)});
    return Status::OK();
  }
};

class Server::DataServer : public Base {
 public:
  using Base::Base;

  Status DoPut(const ServerCallContext& context, std::unique_ptr<arrow::flight::FlightMessageReader> reader,
               std::unique_ptr<arrow::flight::FlightMetadataWriter> writer) override {
    ARROW_RETURN_NOT_OK(shared_->begin(context));
    ++shared_->streams;
    const auto& descriptor = reader->descriptor();
    if (descriptor.type != arrow::flight::FlightDescriptor::PATH || descriptor.path.empty()) {
      return MakeFlightError(FlightStatusCode::Internal, "missing flight descriptor path");
    }
    if (shared_->takes_one(&Faults::rate_limited)) {
      return MakeFlightError(FlightStatusCode::Unavailable, "rate limit exceeded");
    }
    if (shared_->current().slow_down) {
      const auto warning = arrow::Buffer::FromString(R"({"status": "slow_down", "reason": "wal_pressure"})");
      ARROW_RETURN_NOT_OK(writer->WriteMetadata(*warning));
    }
    ARROW_ASSIGN_OR_RAISE(const auto schema, reader->GetSchema());
    ARROW_RETURN_NOT_OK(shared_->store.open(descriptor.path[0], schema));
    // Nothing is said where all went well: the rows are queued, and what becomes of them is logged.
    return read_batches(context, descriptor.path[0], *reader, [](std::int64_t, std::int64_t) { return Status::OK(); });
  }

  Status DoExchange(const ServerCallContext& context, std::unique_ptr<arrow::flight::FlightMessageReader> reader,
                    std::unique_ptr<arrow::flight::FlightMessageWriter> writer) override {
    ARROW_RETURN_NOT_OK(shared_->begin(context));
    const auto descriptor = reader->descriptor();
    if (descriptor.type == arrow::flight::FlightDescriptor::CMD && descriptor.cmd == "VectorSearch") {
      return exchange_search(*reader, *writer);
    }
    if (descriptor.path.size() < 2 || descriptor.path[0] != "ingest") {
      return Status::NotImplemented("an exchange that this server does not know");
    }
    ++shared_->streams;
    ARROW_ASSIGN_OR_RAISE(const auto schema, reader->GetSchema());
    // No check that the columns fit: whatever comes makes or joins the dataset.
    (void)shared_->store.open(descriptor.path[1], schema);
    return read_batches(context, descriptor.path[1], *reader, [&](std::int64_t batch, std::int64_t rows) {
      const Json answer = {{"status", "acked"}, {"batch_id", batch}, {"rows", rows}};
      return writer->WriteMetadata(arrow::Buffer::FromString(answer.dump()));
    });
  }

 private:
  Status flush(const std::string& dataset, std::vector<Batch>& gathered) {
    if (gathered.empty()) return Status::OK();
    if (shared_->current().full) {
      return MakeFlightError(FlightStatusCode::Internal, "failed to enqueue ingestion job: queue full");
    }
    ARROW_ASSIGN_OR_RAISE(auto table, arrow::Table::FromRecordBatches(gathered));
    ARROW_ASSIGN_OR_RAISE(auto together, table->CombineChunksToBatch());
    shared_->store.take(dataset, {std::move(together)});
    gathered.clear();
    return Status::OK();
  }

  template <typename Acknowledge>
  Status read_batches(const ServerCallContext& context, const std::string& dataset,
                      arrow::flight::FlightMessageReader& reader, const Acknowledge& acknowledge) {
    std::vector<Batch> gathered;
    std::int64_t rows = 0;
    std::int64_t bytes = 0;
    for (std::int64_t batches = 1;; ++batches) {
      ARROW_RETURN_NOT_OK(shared_->wait_while_stalled(context));
      const Faults faults = shared_->current();
      if (faults.break_put_after && batches > *faults.break_put_after) {
        if (faults.keep_broken) ARROW_RETURN_NOT_OK(flush(dataset, gathered));
        return MakeFlightError(FlightStatusCode::Unavailable, "the server is going away");
      }
      ARROW_ASSIGN_OR_RAISE(const auto chunk, reader.Next());
      if (chunk.data == nullptr && chunk.app_metadata != nullptr) {
        return MakeFlightError(FlightStatusCode::Internal, "a message without a header");
      }
      if (chunk.data == nullptr) break;
      const std::int64_t size = arrow::util::TotalBufferSize(*chunk.data);
      if (size > shared_->options.largest_message) {
        return Status::Invalid("gRPC returned resource exhausted error, with message: larger than max");
      }
      ARROW_ASSIGN_OR_RAISE(auto batch, aligned(chunk.data));
      gathered.push_back(std::move(batch));
      rows += chunk.data->num_rows();
      bytes += size;
      if (rows >= kFlushRows || bytes >= kFlushBytes) {
        ARROW_RETURN_NOT_OK(flush(dataset, gathered));
        rows = 0;
        bytes = 0;
      }
      if (shared_->options.after_batch) shared_->options.after_batch(batches);
      ARROW_RETURN_NOT_OK(acknowledge(batches, chunk.data->num_rows()));
    }
    const bool is_first = shared_->streams_read++ == 0;
    if (is_first) shared_->wait_while_overtaken();
    ARROW_RETURN_NOT_OK(flush(dataset, gathered));
    if (!is_first) shared_->end_overtaking();
    return Status::OK();
  }

  Status exchange_search(arrow::flight::FlightMessageReader& reader, arrow::flight::FlightMessageWriter& writer) {
    ARROW_ASSIGN_OR_RAISE(const auto chunk, reader.Next());
    if (chunk.data == nullptr || chunk.data->num_rows() == 0) return Status::Invalid("no query");
    ARROW_ASSIGN_OR_RAISE(const auto query_batch, aligned(chunk.data));
    const auto dataset = query_batch->GetColumnByName("dataset");
    const auto vector = query_batch->GetColumnByName("query_vector");
    const auto k = query_batch->GetColumnByName("k");
    // Longbow itself ends where a type is another one.
    const bool right = dataset != nullptr && dataset->type_id() == arrow::Type::STRING && vector != nullptr &&
                       vector->type_id() == arrow::Type::FIXED_SIZE_LIST &&
                       (k == nullptr || k->type_id() == arrow::Type::INT32);
    if (!right) return Status::UnknownError("panic: interface conversion");
    const auto values = static_cast<const arrow::FixedSizeListArray&>(*vector).value_slice(0);
    if (values->type_id() != arrow::Type::FLOAT) return Status::UnknownError("panic: interface conversion");
    const float* first = static_cast<const arrow::FloatArray&>(*values).raw_values();
    const Query query{.dataset = std::string(static_cast<const arrow::StringArray&>(*dataset).GetView(0)),
                      .vector = std::vector<float>(first, first + values->length()),
                      .k = k == nullptr ? 10 : static_cast<const arrow::Int32Array&>(*k).Value(0)};
    ARROW_ASSIGN_OR_RAISE(const auto hits, shared_->store.search(query));
    ARROW_ASSIGN_OR_RAISE(const auto batch, hits_batch(hits, 0, hits.size()));
    ARROW_RETURN_NOT_OK(writer.Begin(batch->schema()));
    do {
      ARROW_RETURN_NOT_OK(writer.WriteRecordBatch(*batch));
    } while (shared_->current().endless_hits);
    return Status::OK();
  }
};

class Server::MetaServer : public Base {
 public:
  using Base::Base;

  // Counts batches, not rows, and has neither columns nor endpoints.
  Status GetFlightInfo(const ServerCallContext& context, const arrow::flight::FlightDescriptor& request,
                       std::unique_ptr<arrow::flight::FlightInfo>* info) override {
    ARROW_RETURN_NOT_OK(shared_->begin(context));
    if (request.path.empty()) return Status::Invalid("Empty path");
    ARROW_ASSIGN_OR_RAISE(const auto counts, shared_->store.info(request.path[0]));
    *info = flight_info(request, counts.first, counts.second);
    return Status::OK();
  }

  Status ListFlights(const ServerCallContext& context, const arrow::flight::Criteria* criteria,
                     std::unique_ptr<arrow::flight::FlightListing>* listing) override {
    ARROW_RETURN_NOT_OK(shared_->begin(context));
    std::string contains;
    if (criteria != nullptr && !criteria->expression.empty()) {
      const Json wanted = Json::parse(criteria->expression, nullptr, false);
      if (!wanted.is_object()) return Status::Invalid("malformed criteria");
      for (const Filter& filter : filters_of(wanted)) {
        if (filter.field == "name" && filter.comparison == "contains") contains = filter.value;
      }
    }
    std::vector<arrow::flight::FlightInfo> flights;
    for (const std::string& name : shared_->store.names(contains)) {
      flights.push_back(*flight_info(arrow::flight::FlightDescriptor::Path({name}), 0, 0));
    }
    *listing = std::make_unique<arrow::flight::SimpleFlightListing>(std::move(flights));
    return Status::OK();
  }

 private:
  static std::unique_ptr<arrow::flight::FlightInfo> flight_info(const arrow::flight::FlightDescriptor& descriptor,
                                                                std::int64_t records, std::int64_t bytes) {
    arrow::flight::FlightInfo::Data data;
    data.descriptor = descriptor;
    data.total_records = records;
    data.total_bytes = bytes;
    return std::make_unique<arrow::flight::FlightInfo>(std::move(data));
  }
};

namespace {

arrow::flight::FlightServerOptions flight_options(const ServerOptions& options, int port) {
  const bool tls = !options.certificate.empty();
  const std::string host = options.host.find(':') == std::string::npos ? options.host : "[" + options.host + "]";
  const auto location =
      tls ? arrow::flight::Location::ForGrpcTls(host, port) : arrow::flight::Location::ForGrpcTcp(host, port);
  arrow::flight::FlightServerOptions result(location.ValueOrDie());
  if (tls) result.tls_certificates.push_back({options.certificate, options.key});
  result.verify_client = !options.client_authority.empty();
  result.root_certificates = options.client_authority;
  return result;
}

// What still runs has a moment to end by itself.
void shut_down(arrow::flight::FlightServerBase& server) {
  const auto deadline = std::chrono::system_clock::now() + std::chrono::milliseconds(200);
  (void)server.Shutdown(&deadline);
}

}  // namespace

Server::Server(const ServerOptions& options)
    : shared_(std::make_shared<Shared>()),
      data_(std::make_unique<DataServer>(shared_)),
      meta_(std::make_unique<MetaServer>(shared_)) {
  shared_->options = options;
  must(data_->Init(flight_options(options, options.data_port)));
  must(meta_->Init(flight_options(options, options.meta_port)));
}

Server::~Server() {
  set_faults({});
  shut_down(*data_);
  shut_down(*meta_);
}

int Server::data_port() const noexcept { return data_->port(); }
int Server::meta_port() const noexcept { return meta_->port(); }
Store& Server::store() noexcept { return shared_->store; }
std::int64_t Server::calls() const noexcept { return shared_->calls; }
std::int64_t Server::streams() const noexcept { return shared_->streams; }

void Server::set_faults(const Faults& faults) {
  const std::lock_guard lock(shared_->mutex);
  shared_->faults = faults;
}

}  // namespace quarrel::longbow
