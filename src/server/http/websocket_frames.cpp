#include "server/http/websocket_frames.h"

#include <openssl/evp.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"
#include "server/base64.h"

namespace quarrel::http {
namespace {

constexpr std::size_t kLongestControl = 125;
constexpr std::uint8_t kMasked = 0x80;

void append_head(std::string& out, Opcode opcode, std::size_t size) {
  out.push_back(static_cast<char>(0x80 | static_cast<unsigned>(opcode)));
  std::size_t length_bytes = 0;
  if (size <= kLongestControl) {
    out.push_back(static_cast<char>(size));
  } else {
    length_bytes = size <= 0xFFFF ? 2 : 8;
    out.push_back(static_cast<char>(length_bytes == 2 ? 126 : 127));
  }
  for (std::size_t i = length_bytes; i-- > 0;) out.push_back(static_cast<char>(size >> (8 * i) & 0xFF));
}

// Those that RFC 6455 and its register let an endpoint send, and those of applications.
bool may_be_sent(unsigned code) noexcept {
  return (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014) || (code >= 3000 && code <= 4999);
}

}  // namespace

void append_frame(std::string& out, Opcode opcode, std::string_view payload) {
  append_head(out, opcode, payload.size());
  out += payload;
}

void append_close_frame(std::string& out, CloseCode code, std::string_view reason) {
  if (code == CloseCode::none) return append_frame(out, Opcode::close, {});
  std::size_t length = std::min(reason.size(), kLongestControl - 2);
  if (length < reason.size()) {
    while (length > 0 && (static_cast<unsigned char>(reason[length]) & 0xC0) == 0x80) --length;
  }
  append_head(out, Opcode::close, length + 2);
  out.push_back(static_cast<char>(static_cast<unsigned>(code) >> 8));
  out.push_back(static_cast<char>(static_cast<unsigned>(code) & 0xFF));
  out += reason.substr(0, length);
}

std::string accept_key(std::string_view key) {
  const std::string text = std::string(key) + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
  std::array<std::byte, EVP_MAX_MD_SIZE> digest;
  unsigned size = 0;
  if (EVP_Digest(text.data(), text.size(), reinterpret_cast<unsigned char*>(digest.data()), &size, EVP_sha1(),
                 nullptr) != 1) {
    fail(ErrorKind::internal, "OpenSSL has no SHA-1, which WebSockets need");
  }
  return to_base64(std::span(digest).first(size));
}

bool Utf8Check::take(std::string_view bytes) noexcept {
  for (const char each : bytes) {
    const auto byte = static_cast<std::uint8_t>(each);
    if (expected_ > 0) {
      if (byte < low_ || byte > high_) return false;
      --expected_;
      low_ = 0x80;
      high_ = 0xBF;
    } else if (byte >= 0x80) {
      // Neither longer than need be, nor half of a UTF-16 pair, nor beyond U+10FFFF.
      if (byte < 0xC2 || byte > 0xF4) return false;
      expected_ = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
      if (byte == 0xE0) low_ = 0xA0;
      if (byte == 0xED) high_ = 0x9F;
      if (byte == 0xF0) low_ = 0x90;
      if (byte == 0xF4) high_ = 0x8F;
    }
  }
  return true;
}

std::optional<FrameEvent> FrameReader::take(std::string_view& bytes) {
  while (!ended_) {
    if (!in_payload_) {
      const bool whole = read_head(bytes);
      // What can be seen in the first bytes is not waited for.
      if (const char* fault = head_fault()) {
        ended_ = true;
        return FrameEvent{.kind = FrameEvent::Kind::fault, .data = fault, .code = fault_code_};
      }
      if (!whole) return std::nullopt;
      in_payload_ = true;
    }
    if (!read_payload(bytes)) {
      ended_ = true;
      return FrameEvent{
          .kind = FrameEvent::Kind::fault, .data = "a text is not UTF-8", .code = CloseCode::invalid_data};
    }
    if (payload_left_ > 0) return std::nullopt;
    in_payload_ = false;
    head_bytes_ = 0;
    head_size_ = 2;
    if (std::optional<FrameEvent> event = end_frame()) return event;
  }
  return std::nullopt;
}

// True: all of it is there.
bool FrameReader::read_head(std::string_view& bytes) {
  for (;;) {
    const std::size_t count = std::min(bytes.size(), head_size_ - head_bytes_);
    std::copy_n(bytes.begin(), count, reinterpret_cast<char*>(head_.data()) + head_bytes_);
    bytes.remove_prefix(count);
    head_bytes_ += count;
    if (head_bytes_ < head_size_) return false;
    if (head_size_ > 2) break;
    const unsigned length = head_[1] & 0x7Fu;
    head_size_ = 6 + (length == 126 ? 2u : length == 127 ? 8u : 0u);
  }
  const std::size_t length_bytes = head_size_ - 6;
  payload_left_ = length_bytes == 0 ? head_[1] & 0x7Fu : 0;
  for (std::size_t i = 0; i < length_bytes; ++i) payload_left_ = payload_left_ << 8 | head_[2 + i];
  mask_place_ = 0;
  return true;
}

// What is wrong with as much of the head as has come; null: nothing.
const char* FrameReader::head_fault() noexcept {
  fault_code_ = CloseCode::protocol_error;
  if (head_bytes_ < 1) return nullptr;
  const bool final = (head_[0] & 0x80) != 0;
  if ((head_[0] & 0x70) != 0) return "a reserved bit is set";
  switch (opcode()) {
    case Opcode::continuation:
      if (!in_message_) return "there is nothing to continue";
      break;
    case Opcode::text:
    case Opcode::binary:
      if (in_message_) return "a message begins within another";
      if (opcode() == Opcode::text) break;
      fault_code_ = CloseCode::unsupported_data;
      return "messages are text here";
    case Opcode::close:
    case Opcode::ping:
    case Opcode::pong:
      if (!final) return "a control frame is fragmented";
      break;
    default: return "the opcode is unknown";
  }
  if (head_bytes_ < 2) return nullptr;
  if ((head_[1] & kMasked) == 0) return "a client's frame is not masked";
  const unsigned length = head_[1] & 0x7Fu;
  if (is_control() && length > kLongestControl) return "a control frame is too long";
  if (head_bytes_ < head_size_ || head_size_ == 2) return nullptr;
  if (length == 126 && payload_left_ < 126) return "a length is written longer than need be";
  if (length == 127 && payload_left_ <= 0xFFFF) return "a length is written longer than need be";
  if (payload_left_ >> 63 != 0) return "a length is beyond all bounds";
  if (!is_control() && payload_left_ > most_message_bytes_ - message_.size()) {
    fault_code_ = CloseCode::too_big;
    return "the message is too large";
  }
  return nullptr;
}

// False: it is a text and not UTF-8.
bool FrameReader::read_payload(std::string_view& bytes) {
  const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), payload_left_));
  std::string& into = is_control() ? control_ : message_;
  const std::size_t before = into.size();
  into.append(bytes.substr(0, count));
  const std::uint8_t* mask = head_.data() + head_size_ - 4;
  for (std::size_t i = before; i < into.size(); ++i) {
    into[i] = static_cast<char>(static_cast<std::uint8_t>(into[i]) ^ mask[mask_place_++ % 4]);
  }
  bytes.remove_prefix(count);
  payload_left_ -= count;
  if (is_control()) return true;
  const bool last = payload_left_ == 0 && (head_[0] & 0x80) != 0;
  return text_.take(std::string_view(into).substr(before)) && (!last || text_.at_end());
}

std::optional<FrameEvent> FrameReader::end_frame() {
  switch (opcode()) {
    case Opcode::ping: return FrameEvent{.kind = FrameEvent::Kind::ping, .data = std::exchange(control_, {})};
    case Opcode::pong: return FrameEvent{.kind = FrameEvent::Kind::pong, .data = std::exchange(control_, {})};
    case Opcode::close: ended_ = true; return read_close();
    default: break;
  }
  in_message_ = (head_[0] & 0x80) == 0;
  if (in_message_) return std::nullopt;
  text_.reset();
  return FrameEvent{.kind = FrameEvent::Kind::message, .data = std::exchange(message_, {})};
}

FrameEvent FrameReader::read_close() {
  if (control_.empty()) return {.kind = FrameEvent::Kind::close, .code = CloseCode::none};
  if (control_.size() == 1)
    return {.kind = FrameEvent::Kind::fault, .data = "a close has half a code", .code = CloseCode::protocol_error};
  const unsigned code = static_cast<unsigned char>(control_[0]) * 256u + static_cast<unsigned char>(control_[1]);
  if (!may_be_sent(code)) {
    return {.kind = FrameEvent::Kind::fault,
            .data = "a close has a code that may not be sent",
            .code = CloseCode::protocol_error};
  }
  Utf8Check check;
  const std::string reason = control_.substr(2);
  if (!check.take(reason) || !check.at_end()) {
    return {.kind = FrameEvent::Kind::fault, .data = "a close's reason is not UTF-8", .code = CloseCode::invalid_data};
  }
  return {.kind = FrameEvent::Kind::close, .data = reason, .code = static_cast<CloseCode>(code)};
}

}  // namespace quarrel::http
