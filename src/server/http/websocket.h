// A WebSocket (RFC 6455) as those who speak over it see it: whole text messages in both directions. A request becomes
// one by `Exchange::upgrade`. Frames, pings, limits, UTF-8 and the closing handshake are the connection's matter;
// messages are never compressed (permessage-deflate is not offered), and binary ones are refused.
//
// Threads: `send`, `close` and `request` from any; the handler is called on the connection's strand, one call at a
// time, and must not block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/backlog.h"
#include "server/http/message.h"
#include "server/http/websocket_frames.h"

namespace quarrel::http {

// Who takes the messages of one WebSocket. The connection owns it until `closed` has returned.
class WebSocketHandler {
 public:
  virtual ~WebSocketHandler() = default;
  // A whole message, valid UTF-8. What it throws closes the WebSocket with 1011. It counts among the bodies of all
  // requests for as long as somebody has `share`: whoever keeps the text, or what was read of it, keeps that too.
  virtual void message(std::string text, std::shared_ptr<void> share) = 0;
  // The WebSocket is gone, whoever ended it. Called once, and nothing after it.
  virtual void closed() = 0;
  // The server is about to end. False: there is nothing to wait for, the WebSocket is closed with 1001 now; true: the
  // handler closes it when what it runs has ended. The server's patience is not endless.
  virtual bool drain() { return false; }
};

class WebSocket {
 public:
  // `wake` tells the connection that there is something to do; it may be called from any thread.
  WebSocket(std::shared_ptr<const Request> request, std::size_t most_buffered, std::function<void()> wake);
  WebSocket(const WebSocket&) = delete;
  WebSocket& operator=(const WebSocket&) = delete;

  // The request that it came from, which lives as long as this.
  const Request& request() const noexcept { return *request_; }

  // A text message; valid UTF-8. False: it will not arrive, since the WebSocket is closed or about to be, or because
  // the client reads so slowly that what waits for it has outgrown its buffer: then the connection is cut.
  bool send(std::string text);
  // The same for what nobody asked for: a connection with nothing else is idle.
  bool broadcast(std::string_view text);
  // After what was sent before. A reason longer than a frame of this kind may hold is cut. The first call counts.
  void close(CloseCode code, std::string_view reason);

  // ---- The connection's side ----

  // The frames that are to be sent now, and whether they end with a close.
  struct Output {
    std::string frames = {};
    bool has_message = false;
    bool closing = false;
  };
  Output take();
  bool is_open() const;
  // The reader was too slow: nothing more goes out.
  bool broken() const;
  // A ping, or the answer to one.
  void control(Opcode opcode, std::string_view data);
  // The client is gone.
  void end();

 private:
  enum class State { open, closing, closed };

  const std::shared_ptr<const Request> request_;
  const std::function<void()> wake_;

  mutable std::mutex mutex_;  // guards all below
  State state_ = State::open;
  bool broken_ = false;
  Output output_;
  Backlog backlog_;
  bool woken_ = false;  // and nothing was taken since

  bool append(Opcode opcode, std::string_view payload, bool is_message);
  void wake(std::unique_lock<std::mutex>& lock);
};

// The handler of a new WebSocket, called on its connection's strand before anything is sent or read.
using MakeWebSocketHandler = std::function<std::shared_ptr<WebSocketHandler>(const std::shared_ptr<WebSocket>&)>;

// Why a request cannot become a WebSocket; status 0: it can.
struct UpgradeFault {
  unsigned status = 0;
  std::string message = {};
};
UpgradeFault upgrade_fault(const Request& request);

// What a client offers in Sec-WebSocket-Protocol, in its order; empty if it offers nothing.
std::vector<std::string> offered_protocols(const Request& request);

}  // namespace quarrel::http
