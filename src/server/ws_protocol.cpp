#include "server/ws_protocol.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "base/nearest.h"
#include "base/printable.h"
#include "server/http/message.h"

namespace quarrel {
namespace {

constexpr std::array kTypes = {
    std::pair{std::string_view("inference"), SocketMessageType::inference},
    std::pair{std::string_view("stop"), SocketMessageType::stop},
    std::pair{std::string_view("status"), SocketMessageType::status},
    std::pair{std::string_view("ping"), SocketMessageType::ping},
};

struct Envelope {
  std::optional<SocketMessageType> type = {};
  std::string id = {};
  Json payload = Json::object();
};

void read_type(const Json& value, Envelope& envelope) {
  const std::string& name = value.get_ref<const std::string&>();
  for (const auto& [known, type] : kTypes) {
    if (known == name) envelope.type = type;
  }
  if (envelope.type) return;
  std::vector<std::string> names;
  for (const auto& each : kTypes) names.emplace_back(each.first);
  std::string message = fmt::format("'{}' is not a type of message", printable(name));
  const std::vector<std::string> close = nearest(name, names, 1);
  if (!close.empty()) message += fmt::format("; did you mean '{}'?", close.front());
  throw invalid_field("type", message);
}

void read_id(const Json& value, Envelope& envelope) {
  const std::string& id = value.get_ref<const std::string&>();
  if (!http::usable_request_id(id)) {
    throw invalid_field("id", "'id' is 1 to 128 letters, digits, '-', '_', '.' or ':'");
  }
  envelope.id = id;
}

void read_payload(const Json& value, Envelope& envelope) {
  if (!value.is_object()) throw invalid_field("payload", "'payload' must be an object");
  envelope.payload = value;
}

using EnvelopeField = Field<Envelope>;
constexpr std::array kFields = {
    EnvelopeField{.name = "type", .kind = FieldKind::text, .read = read_type},
    EnvelopeField{.name = "id", .kind = FieldKind::text, .read = read_id},
    EnvelopeField{.name = "payload", .read = read_payload},
};

std::string id_of(const Json& message) {
  const auto id = message.find("id");
  if (id == message.end() || !id->is_string() || !http::usable_request_id(id->get_ref<const std::string&>())) return {};
  return id->get<std::string>();
}

std::string envelope(std::string_view type, std::string_view id, std::string_view payload) {
  std::string text = fmt::format("{{\"type\":\"{}\",", type);
  if (!id.empty()) text += fmt::format("\"id\":\"{}\",", id);
  text += fmt::format("\"payload\":{}}}", payload);
  return text;
}

}  // namespace

SocketMessage read_socket_message(std::string_view text) {
  std::string id;
  try {
    const Json message = parse_body(text);
    id = id_of(message);
    Envelope envelope;
    read_fields<Envelope>(message, kFields, envelope);
    if (!envelope.type) throw invalid_field("type", "a message has a 'type': inference, stop, status or ping");
    if (*envelope.type != SocketMessageType::inference && !envelope.payload.empty()) {
      refuse_unknown(envelope.payload.begin().key(), {});
    }
    return {.type = *envelope.type, .id = std::move(envelope.id), .payload = std::move(envelope.payload)};
  } catch (const ApiError& error) {
    throw SocketMessageError(error, std::move(id));
  }
}

std::string_view socket_error_code(const ApiError& error) noexcept {
  if (error.code == "model_not_found") return "MODEL_NOT_FOUND";
  // What was there is not any more, or not here: connect and ask again.
  if (error.code == "answer_not_found" || error.code == "draining" || error.code == "connection_lost") {
    return "CONNECTION_LOST";
  }
  if (error.status == 429) return "RATE_LIMITED";
  if (error.code == "queue_full") return "QUEUE_FULL";
  return error.status < 500 ? "INVALID_REQUEST" : "INFERENCE_ERROR";
}

std::string error_message(std::string_view id, const ApiError& error) {
  Json payload{{"code", socket_error_code(error)}, {"message", error.what()}};
  if (!error.code.empty()) payload["reason"] = error.code;
  if (!error.param.empty()) payload["param"] = error.param;
  if (error.status == 429 || error.status == 503) {
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(error.retry_after).count();
    payload["retry_after"] = std::max<std::int64_t>(1, seconds);
  }
  return envelope("error", id, compact_json(payload));
}

std::string status_message(std::string_view id, const Json& payload) {
  return envelope("status", id, compact_json(payload));
}

std::string metrics_message(const Json& payload) { return envelope("metrics", {}, compact_json(payload)); }

AnswerMessages::AnswerMessages(std::string id) : id_(std::move(id)) {
  opening_ = fmt::format("{{\"type\":\"inference\",\"id\":\"{}\",\"payload\":", id_);
}

std::string AnswerMessages::message(const AnswerEvent& event, std::string_view resume) const {
  if (event.end != nullptr && event.end->error) return error_message(id_, *event.end->error);
  constexpr std::size_t kPayload = 128;  // about what stands beside the text
  std::string text;
  text.reserve(opening_.size() + event.text.size() + resume.size() + kPayload);
  text = opening_;
  append_payload(text, event, resume);
  text.push_back('}');
  return text;
}

}  // namespace quarrel
