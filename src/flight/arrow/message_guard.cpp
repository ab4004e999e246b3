#include "flight/arrow/message_guard.h"

#include <arrow/buffer.h>
#include <arrow/ipc/message.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "flight/arrow/ipc_check.h"

namespace quarrel::flight {
namespace {

using arrow::Buffer;
using arrow::Result;
using arrow::Status;

// Fields of FlightData (format/Flight.proto).
constexpr std::uint32_t kHeader = 2, kBody = 1000;
constexpr std::uint32_t kLengthDelimited = 2;  // how all fields of FlightData are written

// A number in protobuf's form, taken from the front.
std::optional<std::uint32_t> take_number(std::span<const std::uint8_t>& bytes) {
  std::uint64_t number = 0;
  for (unsigned shift = 0; shift < 35 && !bytes.empty(); shift += 7) {
    const std::uint8_t byte = bytes.front();
    bytes = bytes.subspan(1);
    number |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
    if (byte >= 0x80) continue;
    if (number > UINT32_MAX) break;
    return static_cast<std::uint32_t>(number);
  }
  return std::nullopt;
}

// The header of the FlightData that `message` is. Stricter than Arrow, which reads what is not quite FlightData in one
// way of several: there shall be no other.
Result<std::shared_ptr<Buffer>> header_of(const std::shared_ptr<Buffer>& message) {
  std::shared_ptr<Buffer> header;
  bool has_body = false;
  std::span<const std::uint8_t> rest(message->data(), static_cast<std::size_t>(message->size()));
  while (!rest.empty()) {
    const std::optional<std::uint32_t> tag = take_number(rest);
    if (!tag || (*tag & 7) != kLengthDelimited) return Status::Invalid("a message is not FlightData");
    const std::optional<std::uint32_t> length = take_number(rest);
    if (!length || *length > rest.size()) return Status::Invalid("a message is not FlightData");
    const std::uint32_t field = *tag >> 3;
    if ((field == kHeader && header != nullptr) || (field == kBody && has_body)) {
      return Status::Invalid("a message has two headers or two bodies");
    }
    if (field == kHeader) header = arrow::SliceBuffer(message, rest.data() - message->data(), *length);
    has_body = has_body || field == kBody;
    rest = rest.subspan(*length);
  }
  if (header == nullptr) return Status::Invalid("a message has a body and no header");
  return header;
}

// Bodies stay where gRPC has put them. But from one CPU to another Arrow moves them without a question, and so this
// says that it is something else.
class GuardedMemory final : public arrow::Device {
 public:
  const char* type_name() const override { return "quarrel::GuardedMemory"; }
  std::string ToString() const override { return "GuardedMemory()"; }
  bool Equals(const arrow::Device& other) const override { return this == &other; }
  arrow::DeviceAllocationType device_type() const override { return arrow::DeviceAllocationType::kEXT_DEV; }
  std::shared_ptr<arrow::MemoryManager> default_memory_manager() override;
};

class MessageGuard final : public arrow::CPUMemoryManager {
 public:
  explicit MessageGuard(const std::shared_ptr<arrow::Device>& device)
      : CPUMemoryManager(device, arrow::default_memory_pool()) {}

 protected:
  // Arrow asks for a view first, and for a copy where it gets none.
  Result<std::shared_ptr<Buffer>> ViewBufferFrom(const std::shared_ptr<Buffer>& body,
                                                 const std::shared_ptr<arrow::MemoryManager>&) override {
    return checked(body);
  }
  Result<std::shared_ptr<Buffer>> CopyBufferFrom(const std::shared_ptr<Buffer>& body,
                                                 const std::shared_ptr<arrow::MemoryManager>&) override {
    return checked(body);
  }

 private:
  // A body is a part of the message that gRPC has handed over, and so is what says how to read it.
  static Result<std::shared_ptr<Buffer>> checked(const std::shared_ptr<Buffer>& body) {
    if (body->size() == 0) return body;
    const std::shared_ptr<Buffer> message = body->parent();
    if (message == nullptr) return Status::Invalid("a message came in a way that cannot be checked");
    ARROW_ASSIGN_OR_RAISE(std::shared_ptr<Buffer> header, header_of(message));
    ARROW_ASSIGN_OR_RAISE(const auto opened, arrow::ipc::Message::Open(std::move(header), body));
    const Status status = check_ipc_message(*opened);
    if (!status.ok()) return status.WithMessage("batches cannot be read: ", status.message());
    return body;
  }
};

std::shared_ptr<arrow::MemoryManager> GuardedMemory::default_memory_manager() {
  return std::make_shared<MessageGuard>(shared_from_this());
}

}  // namespace

std::shared_ptr<arrow::MemoryManager> make_message_guard() {
  return std::make_shared<GuardedMemory>()->default_memory_manager();
}

}  // namespace quarrel::flight
