#include "flight/arrow/data_stream.h"

#include <arrow/ipc/dictionary.h>
#include <arrow/ipc/message.h>
#include <arrow/ipc/reader.h>
#include <arrow/ipc/writer.h>

#include <utility>

namespace quarrel::flight {

using arrow::flight::FlightPayload;
using arrow::flight::internal::FlightData;

DataStream::DataStream(CallSite site, ConnectionPool& pool, CallWatch& watch, std::chrono::milliseconds limit,
                       std::stop_token stop, const Open& open)
    : site_(std::move(site)), connection_(pool.take()), watch_(watch), limit_(limit), stop_(std::move(stop)) {
  check(site_, open(*connection_, &stream_));
  on_stop_.emplace(stop_, [this] { stream_->TryCancel(); });
}

DataStream::~DataStream() { abandon(); }

void DataStream::abandon() noexcept {
  if (finished_ || stream_ == nullptr) return;
  finished_ = true;
  stream_->TryCancel();
  (void)stream_->Finish(arrow::Status::OK());
}

template <typename Operation>
auto DataStream::watched(const Operation& operation) {
  const CallWatch::Guard guard(watch_, limit_, [this] { stream_->TryCancel(); });
  auto result = operation();
  timed_out_ = timed_out_ || guard.expired();
  return result;
}

void DataStream::check_stop() {
  if (finished_) fail_call(site_, ErrorKind::internal, AfterFailure::give_up, "the stream is over");
  if (!stop_.stop_requested()) return;
  abandon();
  fail_call(site_, arrow::Status::OK(), CallEnd::stopped);
}

void DataStream::fail_with(const arrow::Status& status) {
  const CallEnd end = timed_out_ ? CallEnd::timed_out : stop_.stop_requested() ? CallEnd::stopped : CallEnd::by_itself;
  fail_call(site_, status, end);
}

void DataStream::finish() {
  const arrow::Status status = watched([this] { return stream_->Finish(arrow::Status::OK()); });
  finished_ = true;
  if (!status.ok()) fail_with(status);
}

void DataStream::write(const FlightPayload& payload) {
  check_stop();
  const arrow::Result<bool> written = watched([&] { return stream_->WriteData(payload); });
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
  const arrow::Status status = watched([this] { return stream_->WritesDone(); });
  if (status.ok()) return;
  finish();
  fail_with(status);
}

bool DataStream::read(FlightData& data) {
  check_stop();
  if (!watched([&] { return stream_->ReadData(&data); })) {
    finish();
    return false;
  }
  if (data.body != nullptr) bytes_read_ += static_cast<std::uint64_t>(data.body->size());
  return true;
}

std::optional<std::string> DataStream::read_put_answer() {
  check_stop();
  std::shared_ptr<arrow::Buffer> answer;
  if (watched([&] { return stream_->ReadPutMetadata(&answer); }) && answer != nullptr) return answer->ToString();
  finish();
  return std::nullopt;
}

// Messages without columns carry the server's own notes and are passed over.
class BatchReader::Messages : public arrow::ipc::MessageReader {
 public:
  Messages(DataStream& stream, FlightData first, std::exception_ptr& failure)
      : stream_(stream), first_(std::move(first)), failure_(failure) {}

  arrow::Result<std::unique_ptr<arrow::ipc::Message>> ReadNextMessage() override {
    if (first_) {
      FlightData data = std::move(*first_);
      first_.reset();
      return data.OpenMessage();
    }
    FlightData data;
    try {
      while (!ended_) {
        ended_ = !stream_.read(data);
        if (!ended_ && data.metadata != nullptr) return data.OpenMessage();
      }
    } catch (...) {
      failure_ = std::current_exception();
      return arrow::Status::IOError("the stream failed");
    }
    return nullptr;
  }

 private:
  DataStream& stream_;
  std::optional<FlightData> first_;
  std::exception_ptr& failure_;
  bool ended_ = false;
};

void BatchReader::check_columns(const arrow::Status& status) {
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  if (status.ok()) return;
  fail_call(stream_.site(), ErrorKind::io, AfterFailure::give_up,
            fmt::format("the store sent columns that are damaged: {}", status.message()));
}

void BatchReader::open() {
  if (std::exchange(opened_, true)) return;
  FlightData first;
  do {
    first = {};
    // A dataset without rows ends its stream before it has said what its columns are.
    if (!stream_.read(first)) return;
  } while (first.metadata == nullptr);
  auto messages = std::make_unique<Messages>(stream_, std::move(first), failure_);
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
  return batch;
}

}  // namespace quarrel::flight
