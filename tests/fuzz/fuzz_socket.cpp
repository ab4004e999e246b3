// `socket_message`: the text of a WebSocket's message is read, or refused as its client's fault.
#include "fuzz/targets.h"
#include "server/ws_protocol.h"

namespace quarrel::fuzz {

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
