#include "flight/arrow/listener.h"

#include <arrow/api.h>
#include <arrow/flight/server.h>
#include <arrow/flight/server_middleware.h>
#include <arrow/util/align_util.h>

#include <atomic>
#include <optional>
#include <thread>
#include <utility>

namespace quarrel::flight {
namespace {

using arrow::Status;
using arrow::flight::FlightStatusCode;
using arrow::flight::ServerCallContext;

constexpr std::int64_t kMostRows = 65'536;  // of one batch
constexpr std::string_view kTextColumn = "text";

Status refused(const FlightRefusal& refusal) {
  const auto of = [&](FlightStatusCode code) { return arrow::flight::MakeFlightError(code, refusal.what()); };
  switch (refusal.fault()) {
    case FlightFault::invalid: return Status::Invalid(refusal.what());
    case FlightFault::not_found: return Status::KeyError(refusal.what());
    case FlightFault::unsupported: return Status::NotImplemented(refusal.what());
    case FlightFault::unauthenticated: return of(FlightStatusCode::Unauthenticated);
    case FlightFault::unauthorized: return of(FlightStatusCode::Unauthorized);
    case FlightFault::unavailable: return of(FlightStatusCode::Unavailable);
    case FlightFault::cancelled: return of(FlightStatusCode::Cancelled);
    case FlightFault::internal: break;
  }
  return of(FlightStatusCode::Internal);
}

// No exception may leave through Arrow's functions.
template <typename Work>
Status without_exceptions(const Work& work) {
  try {
    return work();
  } catch (const FlightRefusal& refusal) {
    return refused(refusal);
  } catch (const std::exception&) {
    return arrow::flight::MakeFlightError(FlightStatusCode::Internal, "something went wrong; the log says what");
  }
}

// "ipv4:127.0.0.1:40000", "ipv6:[::1]:40000" or "ipv6:%5B::1%5D:40000": the address alone.
std::string address_of(std::string peer) {
  if (const std::size_t kind = peer.find(':'); kind != std::string::npos) peer.erase(0, kind + 1);
  if (const std::size_t port = peer.rfind(':'); port != std::string::npos) peer.erase(port);
  for (const std::string_view bracket : {"%5B", "%5D", "[", "]"}) {
    if (const std::size_t place = peer.find(bracket); place != std::string::npos) peer.erase(place, bracket.size());
  }
  return peer;
}

FlightCall call_of(const ServerCallContext& context) {
  FlightCall call{.peer = address_of(context.peer()), .cancelled = [&context] { return context.is_cancelled(); }};
  const auto found = context.incoming_headers().find("authorization");
  if (found != context.incoming_headers().end()) call.authorization = found->second;
  return call;
}

// The column with that name, or the only one that holds texts.
arrow::Result<std::shared_ptr<arrow::Array>> text_column(const arrow::RecordBatch& batch) {
  const auto is_text = [](const arrow::Array& column) {
    return column.type_id() == arrow::Type::STRING || column.type_id() == arrow::Type::LARGE_STRING;
  };
  std::shared_ptr<arrow::Array> found = batch.GetColumnByName(std::string(kTextColumn));
  for (int i = 0; found == nullptr && i < batch.num_columns(); ++i) {
    if (is_text(*batch.column(i))) found = batch.column(i);
  }
  if (found != nullptr && is_text(*found)) return found;
  return Status::Invalid("a batch needs a column of the type utf8, called text where there are several");
}

template <typename TextArray>
void append_texts(const arrow::Array& column, std::vector<std::string>& texts) {
  const auto& strings = static_cast<const TextArray&>(column);
  for (std::int64_t i = 0; i < strings.length(); ++i) texts.emplace_back(strings.GetView(i));
}

// Whoever sends it may have written anything into it: offsets, lengths and texts are looked at before they are used.
arrow::Result<std::vector<std::string>> texts_of(const arrow::RecordBatch& batch) {
  if (batch.num_rows() > kMostRows) return Status::Invalid("a batch has ", kMostRows, " rows at most");
  ARROW_ASSIGN_OR_RAISE(std::shared_ptr<arrow::Array> column, text_column(batch));
  // gRPC hands over bytes wherever they came to lie.
  ARROW_ASSIGN_OR_RAISE(column, arrow::util::EnsureAlignment(std::move(column), arrow::util::kValueAlignment,
                                                             arrow::default_memory_pool()));
  ARROW_RETURN_NOT_OK(column->ValidateFull());
  if (column->length() != batch.num_rows()) return Status::Invalid("a column is shorter than its batch");
  if (column->null_count() > 0) return Status::Invalid("a text is null");
  std::vector<std::string> texts;
  texts.reserve(static_cast<std::size_t>(batch.num_rows()));
  if (column->type_id() == arrow::Type::STRING) {
    append_texts<arrow::StringArray>(*column, texts);
  } else {
    append_texts<arrow::LargeStringArray>(*column, texts);
  }
  return texts;
}

// Refuses callers before anything that they send is read.
class Gate final : public arrow::flight::ServerMiddlewareFactory {
 public:
  explicit Gate(std::shared_ptr<FlightHandler> handler) : handler_(std::move(handler)) {}

  Status StartCall(const arrow::flight::CallInfo&, const ServerCallContext& context,
                   std::shared_ptr<arrow::flight::ServerMiddleware>*) override {
    return without_exceptions([&] {
      handler_->admit(call_of(context));
      return Status::OK();
    });
  }

 private:
  const std::shared_ptr<FlightHandler> handler_;
};

// The numbers stay where they are.
std::shared_ptr<arrow::RecordBatch> vector_batch(const std::shared_ptr<arrow::Schema>& schema, FlightVectors vectors,
                                                 std::int64_t rows) {
  const auto count = static_cast<std::int64_t>(vectors.values.size());
  const auto values = std::make_shared<arrow::FloatArray>(count, arrow::Buffer::FromVector(std::move(vectors.values)));
  return arrow::RecordBatch::Make(
      schema, rows, {std::make_shared<arrow::FixedSizeListArray>(schema->field(0)->type(), rows, values)});
}

arrow::Result<std::shared_ptr<arrow::Array>> column_of(const FlightColumn& column) {
  return std::visit(
      [](const auto& values) -> arrow::Result<std::shared_ptr<arrow::Array>> {
        using Value = typename std::decay_t<decltype(values)>::value_type;
        typename arrow::CTypeTraits<Value>::BuilderType builder;
        ARROW_RETURN_NOT_OK(builder.AppendValues(values));
        return builder.Finish();
      },
      column.values);
}

// One more while it lives.
struct Counted {
  explicit Counted(std::atomic<int>& count_) : count(count_), before(count_++) {}
  ~Counted() { --count; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

  std::atomic<int>& count;
  const int before;
};

class Endpoint final : public arrow::flight::FlightServerBase {
 public:
  Endpoint(std::shared_ptr<FlightHandler> handler, int streams) : handler_(std::move(handler)), most_(streams) {}

  Status DoExchange(const ServerCallContext& context, std::unique_ptr<arrow::flight::FlightMessageReader> reader,
                    std::unique_ptr<arrow::flight::FlightMessageWriter> writer) override {
    return guarded([&] { return exchange(context, *reader, *writer); });
  }

  Status DoGet(const ServerCallContext& context, const arrow::flight::Ticket& ticket,
               std::unique_ptr<arrow::flight::FlightDataStream>* stream) override {
    return guarded([&]() -> Status {
      const Counted answering(answering_);
      arrow::FieldVector fields;
      arrow::ArrayVector columns;
      for (const FlightColumn& column : handler_->table(call_of(context), ticket.ticket)) {
        ARROW_ASSIGN_OR_RAISE(columns.emplace_back(), column_of(column));
        fields.push_back(arrow::field(column.name, columns.back()->type()));
      }
      const auto schema = arrow::schema(std::move(fields));
      const std::int64_t rows = columns.empty() ? 0 : columns.front()->length();
      ARROW_ASSIGN_OR_RAISE(auto reader, arrow::RecordBatchReader::Make(
                                             {arrow::RecordBatch::Make(schema, rows, std::move(columns))}, schema));
      *stream = std::make_unique<arrow::flight::RecordBatchStream>(std::move(reader));
      return Status::OK();
    });
  }

  bool idle() const noexcept { return answering_ == 0; }

 private:
  // No more than so many calls run.
  template <typename Work>
  Status guarded(const Work& work) {
    const Counted call(open_);
    if (call.before >= most_) {
      return arrow::flight::MakeFlightError(FlightStatusCode::Unavailable, "too many streams are open already");
    }
    return without_exceptions(work);
  }

  Status exchange(const ServerCallContext& context, arrow::flight::FlightMessageReader& reader,
                  arrow::flight::FlightMessageWriter& writer) {
    const arrow::flight::FlightDescriptor& descriptor = reader.descriptor();
    if (descriptor.type != arrow::flight::FlightDescriptor::CMD) {
      return Status::Invalid("the descriptor is a command: JSON such as {\"model\": \"minilm\"}");
    }
    const FlightCall call = call_of(context);
    std::shared_ptr<arrow::Schema> schema;  // known with the first vectors
    for (;;) {
      ARROW_ASSIGN_OR_RAISE(const arrow::flight::FlightStreamChunk chunk, reader.Next());
      if (chunk.data == nullptr && chunk.app_metadata == nullptr) break;
      if (chunk.data == nullptr || chunk.data->num_rows() == 0) continue;
      const Counted answering(answering_);
      ARROW_ASSIGN_OR_RAISE(std::vector<std::string> texts, texts_of(*chunk.data));
      FlightVectors vectors = handler_->embed(call, descriptor.cmd, std::move(texts));
      if (schema == nullptr) {
        schema =
            arrow::schema({arrow::field("vector", arrow::fixed_size_list(arrow::float32(), vectors.dimension), false)});
        ARROW_RETURN_NOT_OK(writer.Begin(schema));
      }
      const std::shared_ptr<void> share = vectors.share;
      ARROW_RETURN_NOT_OK(writer.WriteRecordBatch(*vector_batch(schema, std::move(vectors), chunk.data->num_rows())));
    }
    return schema == nullptr ? Status::OK() : writer.Close();
  }

  const std::shared_ptr<FlightHandler> handler_;
  const int most_;
  std::atomic<int> open_ = 0, answering_ = 0;
};

class Listener final : public FlightListener {
 public:
  Listener(const FlightListenerOptions& options, std::shared_ptr<FlightHandler> handler)
      : endpoint_(handler, options.streams) {
    const Status status = listen(options, std::move(handler));
    if (!status.ok()) throw std::runtime_error("Flight cannot be served: " + status.message());
    port_ = static_cast<std::uint16_t>(endpoint_.port());
  }
  ~Listener() override { stop(std::chrono::milliseconds(0)); }

  std::uint16_t port() const noexcept override { return port_; }
  bool idle() const noexcept override { return endpoint_.idle(); }
  void stop(std::chrono::milliseconds time) override {
    if (std::exchange(stopped_, true)) return;
    const auto until = std::chrono::system_clock::now() + time;
    static_cast<void>(endpoint_.Shutdown(&until));
    static_cast<void>(endpoint_.Wait());
  }

 private:
  Status listen(const FlightListenerOptions& options, std::shared_ptr<FlightHandler> handler) {
    const bool tls = !options.certificate.empty();
    ARROW_ASSIGN_OR_RAISE(const auto location,
                          tls ? arrow::flight::Location::ForGrpcTls(options.address, options.port)
                              : arrow::flight::Location::ForGrpcTcp(options.address, options.port));
    arrow::flight::FlightServerOptions settings(location);
    if (tls) settings.tls_certificates.push_back({options.certificate, options.key});
    settings.middleware.emplace_back("gate", std::make_shared<Gate>(std::move(handler)));
    return endpoint_.Init(settings);
  }

  Endpoint endpoint_;
  std::uint16_t port_ = 0;
  bool stopped_ = false;
};

}  // namespace

std::unique_ptr<FlightListener> make_listener(const FlightListenerOptions& options,
                                              std::shared_ptr<FlightHandler> handler) {
  return std::make_unique<Listener>(options, std::move(handler));
}

}  // namespace quarrel::flight
