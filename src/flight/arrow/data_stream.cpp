#include "flight/arrow/data_stream.h"

#include <arrow/ipc/dictionary.h>
#include <arrow/ipc/message.h>
#include <arrow/ipc/reader.h>
#include <arrow/ipc/writer.h>

#include <utility>

#include "flight/arrow/ipc_check.h"
#include "flight/arrow/left_call.h"

namespace quarrel::flight {

using arrow::flight::FlightPayload;
using arrow::flight::internal::ClientDataStream;
using arrow::flight::internal::FlightData;

namespace {

// One after another; a store has no reason to send more.
constexpr int kMostEmptyMessages = 1000;

}  // namespace

struct DataStream::OpenCall {
  OpenCall(std::shared_ptr<ClientState> of, ConnectionPool::Lease leased)
      : state(std::move(of)), connection(std::move(leased)) {}
  ~OpenCall() { abandon(); }
  OpenCall(const OpenCall&) = delete;
  OpenCall& operator=(const OpenCall&) = delete;
  void abandon() noexcept {
    if (finished || stream == nullptr) return;
    finished = true;
    stream->TryCancel();
    (void)stream->Finish(arrow::Status::OK());
  }

  const std::shared_ptr<ClientState> state;  // before what uses it
  const ConnectionPool::Lease connection;
  std::unique_ptr<ClientDataStream> stream;
  bool finished = false;
};

DataStream::DataStream(CallSite site, std::shared_ptr<ClientState> state, std::chrono::milliseconds limit,
                       std::stop_token stop, Open open)
    : site_(std::move(site)), state_(std::move(state)), limit_(limit), stop_(std::move(stop)) {
  using Opened = arrow::Result<std::unique_ptr<OpenCall>>;
  auto opened = run_leavable(
      state_, stop_,
      [call = std::make_unique<OpenCall>(state_, state_->data.take()), open = std::move(open)]() mutable -> Opened {
        ARROW_RETURN_NOT_OK(open(*call->connection, &call->stream));
        return std::move(call);
      });
  if (!opened) fail_call(site_, arrow::Status::OK(), CallEnd::stopped);
  call_ = value_of(site_, std::move(*opened));
  on_stop_.emplace(stop_, [this] { call_->stream->TryCancel(); });
}

DataStream::~DataStream() { abandon(); }

void DataStream::abandon() noexcept { call_->abandon(); }

template <typename Operation>
auto DataStream::watched(const Operation& operation) {
  const CallWatch::Guard guard(state_->watch, limit_, [this] { call_->stream->TryCancel(); });
  auto result = operation();
  timed_out_ = timed_out_ || guard.expired();
  return result;
}

void DataStream::check_stop() {
  if (call_->finished) fail_call(site_, ErrorKind::internal, AfterFailure::give_up, "the stream is over");
  if (!stop_.stop_requested()) return;
  abandon();
  fail_call(site_, arrow::Status::OK(), CallEnd::stopped);
}

void DataStream::fail_with(const arrow::Status& status) {
  const CallEnd end = timed_out_ ? CallEnd::timed_out : stop_.stop_requested() ? CallEnd::stopped : CallEnd::by_itself;
  fail_call(site_, status, end);
}

void DataStream::finish() {
  const arrow::Status status = watched([this] { return call_->stream->Finish(arrow::Status::OK()); });
  call_->finished = true;
  if (!status.ok()) fail_with(status);
}

void DataStream::write(const FlightPayload& payload) {
  check_stop();
  const arrow::Result<bool> written = watched([&] { return call_->stream->WriteData(payload); });
  if (written.ok() && *written) return;
  // The reason is what the call ends with, if it has one.
  finish();
  fail_with(written.ok() ? arrow::Status::IOError("the store ended the stream before all was sent") : written.status());
}

void DataStream::write_descriptor(const arrow::flight::FlightDescriptor& descriptor) {
  FlightPayload payload;
  payload.descriptor = value_of(site_, descriptor.SerializeToBuffer());
  write(payload);
}

void DataStream::write_schema(const arrow::Schema& schema, const arrow::flight::FlightDescriptor& descriptor) {
  FlightPayload payload;
  payload.descriptor = value_of(site_, descriptor.SerializeToBuffer());
  const arrow::ipc::DictionaryFieldMapper mapper(schema);
  check(site_,
        arrow::ipc::GetSchemaPayload(schema, arrow::ipc::IpcWriteOptions::Defaults(), mapper, &payload.ipc_message));
  write(payload);
}

void DataStream::write(const arrow::ipc::IpcPayload& payload) {
  FlightPayload message;
  message.ipc_message = payload;
  write(message);
}

void DataStream::done_writing() {
  check_stop();
  const arrow::Status status = watched([this] { return call_->stream->WritesDone(); });
  if (status.ok()) return;
  finish();
  fail_with(status);
}

bool DataStream::read(FlightData& data) {
  check_stop();
  if (!watched([&] { return call_->stream->ReadData(&data); })) {
    finish();
    return false;
  }
  if (data.body != nullptr) bytes_read_ += static_cast<std::uint64_t>(data.body->size());
  return true;
}

std::optional<std::string> DataStream::read_put_answer() {
  check_stop();
  std::shared_ptr<arrow::Buffer> answer;
  if (watched([&] { return call_->stream->ReadPutMetadata(&answer); }) && answer != nullptr) return answer->ToString();
  finish();
  return std::nullopt;
}

// Messages without columns carry the server's own notes and are passed over.
class BatchReader::Messages : public arrow::ipc::MessageReader {
 public:
  Messages(BatchReader& reader, FlightData first) : reader_(reader), first_(std::move(first)) {}

  arrow::Result<std::unique_ptr<arrow::ipc::Message>> ReadNextMessage() override {
    if (first_) {
      FlightData data = std::move(*first_);
      first_.reset();
      return data.OpenMessage();
    }
    FlightData data;
    try {
      while (!ended_) {
        ended_ = !reader_.stream_.read(data);
        if (!ended_ && data.metadata != nullptr) return data.OpenMessage();
        if (!ended_) reader_.count_empty();
      }
    } catch (...) {
      reader_.failure_ = std::current_exception();
      return arrow::Status::IOError("the stream failed");
    }
    return nullptr;
  }

 private:
  BatchReader& reader_;
  std::optional<FlightData> first_;
  bool ended_ = false;
};

void BatchReader::count_empty() {
  if (++empty_ <= kMostEmptyMessages) return;
  fail_call(stream_.site(), ErrorKind::io, AfterFailure::give_up, "the store sends messages without rows and no end");
}

void BatchReader::check_columns(const arrow::Status& status) {
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  if (status.ok()) return;
  fail_call(stream_.site(), ErrorKind::io, AfterFailure::give_up,
            fmt::format("the store sent columns that are damaged or not allowed: {}", status.message()));
}

void BatchReader::open() {
  if (std::exchange(opened_, true)) return;
  FlightData first;
  do {
    first = {};
    // A dataset without rows ends its stream before it has said what its columns are.
    if (!stream_.read(first)) return;
    if (first.metadata == nullptr) count_empty();
  } while (first.metadata == nullptr);
  auto messages = std::make_unique<CheckedMessages>(std::make_unique<Messages>(*this, std::move(first)));
  // gRPC hands over bytes wherever they came to lie.
  arrow::ipc::IpcReadOptions options = arrow::ipc::IpcReadOptions::Defaults();
  options.ensure_alignment = arrow::ipc::Alignment::kDataTypeSpecificAlignment;
  auto reader = arrow::ipc::RecordBatchStreamReader::Open(std::move(messages), options);
  check_columns(reader.status());
  reader_ = std::move(reader).ValueUnsafe();
}

std::shared_ptr<arrow::Schema> BatchReader::schema() {
  open();
  return reader_ == nullptr ? nullptr : reader_->schema();
}

std::shared_ptr<arrow::RecordBatch> BatchReader::next() {
  open();
  if (reader_ == nullptr) return nullptr;
  std::shared_ptr<arrow::RecordBatch> batch;
  arrow::Status status = reader_->ReadNext(&batch);
  if (status.ok() && batch != nullptr) status = batch->ValidateFull();
  check_columns(status);
  if (batch != nullptr && batch->num_rows() == 0) count_empty();
  if (batch != nullptr && batch->num_rows() > 0) empty_ = 0;
  return batch;
}

}  // namespace quarrel::flight
