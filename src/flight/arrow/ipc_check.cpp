#include "flight/arrow/ipc_check.h"

#include <cstdint>
#include <cstring>

namespace quarrel::flight {
namespace {

template <typename Number>
Number number_at(const std::uint8_t* place) {
  Number number;
  std::memcpy(&number, place, sizeof number);
  return number;
}

// Arrow does not install what its own reader is generated from. A table of a flatbuffer begins with how far before it
// its vtable lies; that has its own size, the table's size, and for each field where it lies in the table, 0 where it
// was left out. `compression` is the fourth field of a record batch (format/Message.fbs).
bool is_compressed(const void* record_batch) {
  constexpr std::uint16_t kCompression = 2 * sizeof(std::uint16_t) + 3 * sizeof(std::uint16_t);
  const auto* table = static_cast<const std::uint8_t*>(record_batch);
  const std::uint8_t* vtable = table - number_at<std::int32_t>(table);
  return number_at<std::uint16_t>(vtable) > kCompression && number_at<std::uint16_t>(vtable + kCompression) != 0;
}

}  // namespace

arrow::Status check_ipc_message(const arrow::ipc::Message& message) {
  switch (message.type()) {
    case arrow::ipc::MessageType::SCHEMA: return arrow::Status::OK();
    case arrow::ipc::MessageType::RECORD_BATCH:
      return is_compressed(message.header()) ? arrow::Status::Invalid("they are compressed") : arrow::Status::OK();
    case arrow::ipc::MessageType::DICTIONARY_BATCH: return arrow::Status::Invalid("they have dictionaries");
    default: return arrow::Status::Invalid("a message is neither a schema nor a record batch");
  }
}

arrow::Result<std::unique_ptr<arrow::ipc::Message>> CheckedMessages::ReadNextMessage() {
  auto message = messages_->ReadNextMessage();
  if (message.ok() && *message != nullptr) ARROW_RETURN_NOT_OK(check_ipc_message(**message));
  return message;
}

}  // namespace quarrel::flight
