// What comes over a WebSocket. `websocket_frames`: a client's bytes become the same messages whole and in two pieces,
// and each is within its bound. `socket_message`: the text of a message is read, or refused as its client's fault.
#include "fuzz/targets.h"
#include "server/http/websocket_frames.h"
#include "server/ws_protocol.h"

namespace quarrel::fuzz {
namespace {

constexpr std::size_t kMost = 4096;

// All that came of it, as one text.
std::string events_of(std::string_view first, std::string_view second) {
  http::FrameReader reader(kMost);
  std::string seen;
  for (std::string_view piece : {first, second}) {
    while (const std::optional<http::FrameEvent> event = reader.take(piece)) {
      require(event->data.size() <= kMost, "messages are bounded");
      seen += std::to_string(static_cast<int>(event->kind)) + ':' + event->data + '\n';
      const bool last = event->kind == http::FrameEvent::Kind::fault || event->kind == http::FrameEvent::Kind::close;
      if (last) return seen;
    }
    require(piece.empty(), "all bytes are taken while nothing is wrong");
  }
  return seen;
}

}  // namespace

void websocket_frames(Input input) {
  const std::string_view bytes = as_text(input);
  const std::size_t middle = bytes.empty() ? 0 : static_cast<unsigned char>(bytes.front()) % bytes.size();
  require(events_of(bytes, {}) == events_of(bytes.substr(0, middle), bytes.substr(middle)),
          "where the bytes were cut makes no difference");
}

void socket_message(Input input) {
  try {
    const SocketMessage message = read_socket_message(as_text(input));
    require(message.payload.is_object(), "a payload is an object");
  } catch (const SocketMessageError& error) {
    require(error.status == 400, "a message is read, or refused as its client's fault");
    require(!error_message(error.id, error).empty(), "a refusal can be said");
  }
}

}  // namespace quarrel::fuzz
