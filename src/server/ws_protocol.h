// The messages of a WebSocket: an envelope {"type", "id", "payload"} in both directions, errors with one of six codes.
// Pure functions from and to text; what the messages do is ws_session's matter. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/answer_event.h"
#include "server/api_error.h"
#include "server/fields.h"

namespace quarrel {

// The subprotocol that a browser offers beside its key; the server selects it where it is offered.
inline constexpr std::string_view kSocketProtocol = "quarrel.v1";

enum class SocketMessageType : std::uint8_t { inference, stop, status, ping };

struct SocketMessage {
  SocketMessageType type = SocketMessageType::status;
  std::string id = {};  // empty: the client gave none
  Json payload = Json::object();
};

// A message that cannot be read, with the id that it gave, if that could be.
struct SocketMessageError : ApiError {
  SocketMessageError(const ApiError& error, std::string id_) : ApiError(error), id(std::move(id_)) {}
  std::string id;
};

// Throws SocketMessageError.
SocketMessage read_socket_message(std::string_view text);

// INVALID_REQUEST, MODEL_NOT_FOUND, INFERENCE_ERROR, CONNECTION_LOST, RATE_LIMITED or QUEUE_FULL.
std::string_view socket_error_code(const ApiError& error) noexcept;

// Messages out. An empty id is left out: they answer no message.
std::string error_message(std::string_view id, const ApiError& error);
std::string status_message(std::string_view id, const Json& payload);
std::string metrics_message(const Json& payload);

// The messages of one answer: what stands around its events is made once.
class AnswerMessages {
 public:
  explicit AnswerMessages(std::string id);
  std::string message(const AnswerEvent& event, std::string_view resume) const;
  const std::string& id() const noexcept { return id_; }

 private:
  const std::string id_;
  std::string opening_;  // up to the payload
};

}  // namespace quarrel
