// What a store, or a client of our endpoint, may send: record batches as they lie in memory. Compressed ones could grow
// a thousandfold when they are read, and dictionaries could grow without end; Longbow sends neither. Pure functions:
// any thread may call.
#pragma once

#include <arrow/ipc/message.h>
#include <arrow/status.h>

#include <memory>
#include <utility>

namespace quarrel::flight {

// OK, or Invalid with the reason. The message is one that Arrow has opened, and so checked.
arrow::Status check_ipc_message(const arrow::ipc::Message& message);

// The messages of another reader, each checked.
class CheckedMessages final : public arrow::ipc::MessageReader {
 public:
  explicit CheckedMessages(std::unique_ptr<arrow::ipc::MessageReader> messages) : messages_(std::move(messages)) {}
  arrow::Result<std::unique_ptr<arrow::ipc::Message>> ReadNextMessage() override;

 private:
  std::unique_ptr<arrow::ipc::MessageReader> messages_;
};

}  // namespace quarrel::flight
