#include "flight/arrow/listener.h"

#include <arrow/api.h>
#include <arrow/flight/server.h>
#include <arrow/util/align_util.h>

#include <array>
#include <atomic>
#include <utility>

#include "flight/address.h"
#include "flight/arrow/grpc_settings.h"
#include "flight/arrow/message_guard.h"
#include "flight/arrow/open_calls.h"

namespace quarrel::flight {
namespace {

using arrow::Status;
using arrow::flight::ServerCallContext;

constexpr std::int64_t kMostRows = 65'536;  // of one batch
constexpr std::chrono::seconds kAskPeers{60}, kPeersAnswer{20};
constexpr std::string_view kTextColumn = "text";

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
  explicit Counted(std::atomic<int>& count_) : count(count_) { ++count; }
  ~Counted() { --count; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

  std::atomic<int>& count;
};

class Endpoint final : public arrow::flight::FlightServerBase {
 public:
  explicit Endpoint(std::shared_ptr<FlightHandler> handler) : handler_(std::move(handler)) {}

  Status DoExchange(const ServerCallContext& context, std::unique_ptr<arrow::flight::FlightMessageReader> reader,
                    std::unique_ptr<arrow::flight::FlightMessageWriter> writer) override {
    return without_exceptions([&] { return exchange(context, *reader, *writer); });
  }

  Status DoGet(const ServerCallContext& context, const arrow::flight::Ticket& ticket,
               std::unique_ptr<arrow::flight::FlightDataStream>* stream) override {
    return without_exceptions([&]() -> Status {
      OpenCall& open = OpenCalls::of(context);
      open.work();
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
      open.wait_for_client();
      return Status::OK();
    });
  }

  bool idle() const noexcept { return answering_ == 0; }

 private:
  Status exchange(const ServerCallContext& context, arrow::flight::FlightMessageReader& reader,
                  arrow::flight::FlightMessageWriter& writer) {
    const arrow::flight::FlightDescriptor& descriptor = reader.descriptor();
    if (descriptor.type != arrow::flight::FlightDescriptor::CMD) {
      return Status::Invalid("the descriptor is a command: JSON such as {\"model\": \"minilm\"}");
    }
    const FlightCall call = call_of(context);
    OpenCall& open = OpenCalls::of(context);
    std::shared_ptr<arrow::Schema> schema;  // known with the first vectors
    // What brings no texts gives its sender no more time: otherwise a few bytes now and then would keep a place for
    // ever.
    open.wait_for_client();
    for (;;) {
      ARROW_ASSIGN_OR_RAISE(const arrow::flight::FlightStreamChunk chunk, reader.Next());
      if (chunk.data == nullptr && chunk.app_metadata == nullptr) break;
      if (chunk.data == nullptr) continue;
      const bool has_rows = chunk.data->num_rows() > 0;
      const Counted answering(answering_);
      open.work();
      ARROW_ASSIGN_OR_RAISE(std::vector<std::string> texts, texts_of(*chunk.data));
      FlightVectors vectors = handler_->embed(call, descriptor.cmd, std::move(texts));
      has_rows ? open.wait_for_client() : open.wait_on_for_client();
      if (schema == nullptr) {
        schema =
            arrow::schema({arrow::field("vector", arrow::fixed_size_list(arrow::float32(), vectors.dimension), false)});
        ARROW_RETURN_NOT_OK(writer.Begin(schema));
      }
      if (!schema->field(0)->type()->Equals(arrow::fixed_size_list(arrow::float32(), vectors.dimension))) {
        throw FlightRefusal(FlightFault::unavailable,
                            "the model was exchanged for another in the middle of the stream");
      }
      const std::shared_ptr<void> share = vectors.share;
      ARROW_RETURN_NOT_OK(writer.WriteRecordBatch(*vector_batch(schema, std::move(vectors), chunk.data->num_rows())));
      if (has_rows) open.wait_for_client();
    }
    return schema == nullptr ? Status::OK() : writer.Close();
  }

  const std::shared_ptr<FlightHandler> handler_;
  std::atomic<int> answering_ = 0;
};

class Listener final : public FlightListener {
 public:
  Listener(const FlightListenerOptions& options, std::shared_ptr<FlightHandler> handler)
      : open_(std::make_shared<OpenCalls>(options, handler)), endpoint_(std::move(handler)) {
    const Status status = listen(options);
    if (!status.ok()) throw std::runtime_error("Flight cannot be served: " + status.message());
    port_ = static_cast<std::uint16_t>(endpoint_.port());
    open_->set_port(port_);
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
  Status listen(const FlightListenerOptions& options) {
    const bool tls = !options.certificate.empty();
    ARROW_ASSIGN_OR_RAISE(const auto location,
                          arrow::flight::Location::Parse((tls ? "grpc+tls://" : "grpc+tcp://") +
                                                         host_and_port(options.address, options.port)));
    arrow::flight::FlightServerOptions settings(location);
    if (tls) settings.tls_certificates.push_back({options.certificate, options.key});
    settings.middleware.emplace_back(OpenCalls::kName, open_);
    settings.memory_manager = make_message_guard();
    bool bounded = false;
    settings.builder_hook = [&](void* builder) {
      bounded = bound_grpc_server(builder, options.message_bytes, grpc_settings(options));
    };
    ARROW_RETURN_NOT_OK(endpoint_.Init(settings));
    if (bounded) return Status::OK();
    static_cast<void>(endpoint_.Shutdown());
    return Status::NotImplemented("the size of messages cannot be bounded with this Arrow");
  }

  static std::array<GrpcSetting, 5> grpc_settings(const FlightListenerOptions& options) {
    const auto milliseconds = [](std::chrono::milliseconds time) { return static_cast<int>(time.count()); };
    return {{{"grpc.per_message_decompression", 0},  // what is compressed makes no sense then, and is refused
             {"grpc.max_concurrent_streams", 2 * options.calls},  // of one connection; a client holds back the rest
             {"grpc.max_connection_idle_ms", milliseconds(options.message_time)},
             // Peers that have gone without a word, and those that read nothing.
             {"grpc.keepalive_time_ms", milliseconds(kAskPeers)},
             {"grpc.keepalive_timeout_ms", milliseconds(kPeersAnswer)}}};
  }

  const std::shared_ptr<OpenCalls> open_;
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
