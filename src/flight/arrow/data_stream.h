// One streaming call: messages out and in, each within a time limit, all of it ended when a stop is requested. Below
// the classes that Arrow offers for this, since those cannot cancel a DoPut or the wait for a scan's first message. One
// thread at a time calls it.
#pragma once

#include <arrow/flight/transport.h>
#include <arrow/flight/types.h>
#include <arrow/record_batch.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "flight/arrow/call_site.h"
#include "flight/arrow/client_state.h"

namespace quarrel::flight {

class DataStream {
 public:
  using Open = std::function<arrow::Status(arrow::flight::internal::ClientTransport&,
                                           std::unique_ptr<arrow::flight::internal::ClientDataStream>*)>;

  // To the data port. `limit` is for each message, and for the end. Throws LongbowError, as all members do; after that
  // the call is over.
  DataStream(CallSite site, std::shared_ptr<ClientState> state, std::chrono::milliseconds limit, std::stop_token stop,
             Open open);
  // One that has not ended is cancelled.
  ~DataStream();
  DataStream(const DataStream&) = delete;
  DataStream& operator=(const DataStream&) = delete;

  void write_descriptor(const arrow::flight::FlightDescriptor& descriptor);
  // With the descriptor, as the first message of columns.
  void write_schema(const arrow::Schema& schema, const arrow::flight::FlightDescriptor& descriptor);
  void write(const arrow::ipc::IpcPayload& payload);
  void done_writing();

  // The next message; false: there is none, and the call has ended well.
  bool read(arrow::flight::internal::FlightData& data);
  // The next answer of a DoPut; nothing: there is none, and the call has ended well.
  std::optional<std::string> read_put_answer();

  // Ends it early, whatever the server makes of it.
  void abandon() noexcept;
  const CallSite& site() const noexcept { return site_; }
  std::uint64_t bytes_read() const noexcept { return bytes_read_; }

 private:
  // A stream with the connection that it uses. One that has not ended is cancelled when it goes.
  struct OpenCall;

  template <typename Operation>
  auto watched(const Operation& operation);
  void check_stop();
  void write(const arrow::flight::FlightPayload& payload);
  // Throws what the server or the network says, if that is not OK.
  void finish();
  [[noreturn]] void fail_with(const arrow::Status& status);

  CallSite site_;
  const std::shared_ptr<ClientState> state_;
  std::chrono::milliseconds limit_;
  std::stop_token stop_;
  std::unique_ptr<OpenCall> call_;
  std::uint64_t bytes_read_ = 0;  // of columns
  bool timed_out_ = false;
  std::optional<std::stop_callback<std::function<void()>>> on_stop_;  // last: it uses the stream
};

// The record batches that a stream brings, checked: what comes from a server may be damaged, or meant to do harm.
class BatchReader {
 public:
  explicit BatchReader(DataStream& stream) : stream_(stream) {}
  // Nothing where the stream ended without one.
  std::shared_ptr<arrow::Schema> schema();
  // Null at the end.
  std::shared_ptr<arrow::RecordBatch> next();

 private:
  class Messages;
  void open();
  // Throws the stream's failure, or one of damaged columns.
  void check_columns(const arrow::Status& status);
  // Of a message without rows: a stream of nothing else would never end.
  void count_empty();

  DataStream& stream_;
  bool opened_ = false;
  int empty_ = 0;               // messages without rows since the last with some
  std::exception_ptr failure_;  // of the stream, which must not pass through Arrow
  std::shared_ptr<arrow::RecordBatchReader> reader_;
};

}  // namespace quarrel::flight
