// The frames of RFC 6455 without sockets: a client's bytes become messages, pings and closes, and ours become bytes.
// Everything that a server may refuse is refused as early as it can be seen. One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quarrel::http {

// The codes of RFC 6455 that we use ourselves.
enum class CloseCode : std::uint16_t {
  normal = 1000,
  going_away = 1001,
  protocol_error = 1002,
  unsupported_data = 1003,
  none = 1005,  // a close without a code; never sent
  invalid_data = 1007,
  policy_violation = 1008,
  too_big = 1009,
  internal_error = 1011,
  try_again_later = 1013,
};

enum class Opcode : std::uint8_t { continuation = 0, text = 1, binary = 2, close = 8, ping = 9, pong = 10 };

// A frame of ours, whole and unmasked, at the end of `out`. A control frame's payload has 125 bytes at most.
void append_frame(std::string& out, Opcode opcode, std::string_view payload);
// A reason that is longer than such a frame may hold is cut at the end of a character.
void append_close_frame(std::string& out, CloseCode code, std::string_view reason);

// The Sec-WebSocket-Accept for a client's Sec-WebSocket-Key.
std::string accept_key(std::string_view key);

// UTF-8 that comes in pieces: a wrong byte is known when it comes.
class Utf8Check {
 public:
  // False: what has come is not, and cannot become, UTF-8.
  bool take(std::string_view bytes) noexcept;
  // The last character is whole.
  bool at_end() const noexcept { return expected_ == 0; }
  void reset() noexcept { *this = {}; }

 private:
  std::uint8_t expected_ = 0;              // bytes that the character still needs
  std::uint8_t low_ = 0x80, high_ = 0xBF;  // what the next of them may be
};

struct FrameEvent {
  enum class Kind { message, ping, pong, close, fault };
  Kind kind = Kind::message;
  std::string data = {};               // of a message, ping or pong; the reason of a close; what is wrong
  CloseCode code = CloseCode::normal;  // of a close; of a fault: what the connection is to be closed with
};

class FrameReader {
 public:
  explicit FrameReader(std::size_t most_message_bytes) : most_message_bytes_(most_message_bytes) {}

  // Takes bytes off the front until an event is whole, or all are taken. After a close or a fault it takes no more.
  std::optional<FrameEvent> take(std::string_view& bytes);
  // What has come of a message that is not whole.
  std::size_t message_bytes() const noexcept { return message_.size(); }

 private:
  bool read_head(std::string_view& bytes);
  const char* head_fault() noexcept;
  bool read_payload(std::string_view& bytes);
  std::optional<FrameEvent> end_frame();
  FrameEvent read_close();
  bool is_control() const noexcept { return (head_[0] & 0x08) != 0; }
  Opcode opcode() const noexcept { return static_cast<Opcode>(head_[0] & 0x0F); }

  const std::size_t most_message_bytes_;
  std::array<std::uint8_t, 14> head_ = {};
  std::size_t head_bytes_ = 0;  // that have come
  std::size_t head_size_ = 2;   // as far as is known
  bool in_payload_ = false;
  std::uint64_t payload_left_ = 0;
  std::size_t mask_place_ = 0;
  bool in_message_ = false;  // fragments of one have come
  std::string message_;
  std::string control_;
  Utf8Check text_;
  CloseCode fault_code_ = CloseCode::protocol_error;
  bool ended_ = false;
};

}  // namespace quarrel::http
