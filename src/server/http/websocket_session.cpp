// No lambda that captures stands in an expression with co_await: GCC 12 destroys it too early.
#include "server/http/websocket_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

#include "server/http/unexpected.h"

namespace quarrel::http {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

// For the client's part in closing.
constexpr std::chrono::seconds kCloseTime{5};
// What a server that ends now leaves its clients for that.
constexpr std::chrono::seconds kLastWords{1};

}  // namespace

WebSocketSession::WebSocketSession(std::shared_ptr<Transport> transport, const Limits& limits, ByteBudget::Account room,
                                   std::shared_ptr<const Request> request, Log& log)
    : transport_(std::move(transport)),
      limits_(limits),
      room_(std::move(room)),
      request_(std::move(request)),
      log_(log),
      reader_(std::min(limits.websocket_message_bytes, room_.budget->most_of_one())),
      ping_(transport_->get_executor()),
      idle_(transport_->get_executor()),
      rest_(transport_->get_executor()),
      cut_(transport_->get_executor()),
      waker_(transport_->get_executor()),
      written_(transport_->get_executor(), asio::steady_timer::time_point::max()) {}

asio::awaitable<void> WebSocketSession::run(std::string protocol, Headers headers, MakeWebSocketHandler make_handler) {
  const std::shared_ptr<WebSocketSession> self = shared_from_this();
  socket_ = std::make_shared<WebSocket>(request_, limits_.buffered_bytes, [weak = weak_from_this()] {
    const std::shared_ptr<WebSocketSession> session = weak.lock();
    if (session == nullptr) return;
    asio::post(session->transport_->get_executor(), [session] { session->wake(); });
  });
  handler_ = make_handler(socket_);
  // Whatever happens from here on, the handler learns of the end.
  try {
    co_await speak(accept_head(protocol, headers));
  } catch (const std::exception& error) {
    log_unexpected(log_, "a WebSocket", error);
    transport_->close();
  }
  socket_->end();
  tell_closed();
  try {
    co_await say_goodbye();
  } catch (const std::exception& error) {
    log_unexpected(log_, "a WebSocket", error);
  }
  transport_->close();
  cut_.cancel();
}

asio::awaitable<void> WebSocketSession::speak(std::string head) {
  const bool accepted = co_await write(std::move(head));
  if (!accepted) co_return;
  last_message_ = std::chrono::steady_clock::now();
  keep_alive();
  close_when_idle();
  start_writer();
  try {
    co_await read_frames();
  } catch (const std::exception& error) {
    log_unexpected(log_, "a WebSocket", error);
    transport_->close();  // which ends the writer too
  }
  reading_ = false;
  ping_.cancel();  // nobody would hear the answer; what still goes out has its own time
  idle_.cancel();
  rest_.cancel();
  wake();
  error_code unused;
  if (writing_) co_await written_.async_wait(asio::redirect_error(asio::use_awaitable, unused));
}

void WebSocketSession::start_writer() {
  writing_ = true;
  auto written = [self = shared_from_this()](const std::exception_ptr& error) {
    self->writing_ = false;
    log_unexpected(self->log_, "a WebSocket", error);
    if (error != nullptr) self->transport_->close();  // nobody would answer the reader
    self->written_.cancel();
  };
  try {
    asio::co_spawn(transport_->get_executor(), write_frames(), std::move(written));
  } catch (...) {
    writing_ = false;
    throw;
  }
}

void WebSocketSession::tell_closed() {
  try {
    std::exchange(handler_, nullptr)->closed();
  } catch (const std::exception& error) {
    // It has nothing to do with the connection any more.
    log_unexpected(log_, "the end of a WebSocket", error);
  }
}

asio::awaitable<void> WebSocketSession::say_goodbye() {
  error_code ignored;
  if (said_goodbye_ && transport_->socket().available(ignored) == 0) co_return;
  cut_after(kLastWords);
  co_await transport_->end_sending();
}

std::string WebSocketSession::accept_head(const std::string& protocol, const Headers& headers) const {
  std::string head = fmt::format(
      "HTTP/1.1 101 Switching Protocols\r\nServer: quarrel\r\nx-request-id: {}\r\nUpgrade: websocket\r\n"
      "Connection: Upgrade\r\nSec-WebSocket-Accept: {}\r\n",
      request_->id, accept_key(request_->header("Sec-WebSocket-Key")));
  if (!protocol.empty()) head += fmt::format("Sec-WebSocket-Protocol: {}\r\n", protocol);
  for (const auto& [name, value] : headers) head += fmt::format("{}: {}\r\n", name, value);
  return head + "\r\n";
}

// Until the client's close, something that breaks the rules, or the end of its bytes.
asio::awaitable<void> WebSocketSession::read_frames() {
  while (reading_) {
    error_code error;
    const std::size_t count =
        co_await transport_->async_read_some(asio::buffer(read_), asio::redirect_error(asio::use_awaitable, error));
    if (error) {
      transport_->close();
      co_return;
    }
    heard_ = true;
    std::string_view bytes(read_.data(), count);
    while (std::optional<FrameEvent> event = reader_.take(bytes)) take(std::move(*event));
    const bool begins = share_ == nullptr;
    if (reading_ && make_room(reader_.message_bytes()) && begins && share_ != nullptr) expect_rest();
  }
}

// False: there is none for so much of a message, and the WebSocket ends. Its connection is like a request whose body
// has no room: what would follow is not read.
bool WebSocketSession::make_room(std::size_t bytes) {
  if (bytes == 0) return true;
  if (share_ == nullptr) share_ = std::make_shared<ByteBudget::Share>(room_.budget, room_.number);
  if (share_->grow_to(bytes)) return true;
  socket_->close(CloseCode::try_again_later, "there are too many large requests at the moment");
  reading_ = false;
  return false;
}

// Like a request's body: nobody holds room among all of them with a message that never ends.
void WebSocketSession::expect_rest() {
  rest_.expires_after(limits_.body_time);
  rest_.async_wait([weak = weak_from_this(), of = std::weak_ptr(share_)](error_code error) {
    const std::shared_ptr<WebSocketSession> self = weak.lock();
    const std::shared_ptr<ByteBudget::Share> share = of.lock();
    if (error || self == nullptr || !self->reading_ || share == nullptr || share != self->share_) return;
    self->socket_->close(CloseCode::policy_violation, "the rest of a message did not come in time");
  });
}

void WebSocketSession::take(FrameEvent event) {
  switch (event.kind) {
    case FrameEvent::Kind::message: take_message(std::move(event.data)); break;
    case FrameEvent::Kind::ping: socket_->control(Opcode::pong, event.data); break;
    case FrameEvent::Kind::pong: break;
    case FrameEvent::Kind::close:  // the answer has the same code; our own close may be out already
    case FrameEvent::Kind::fault:
      socket_->close(event.code, event.kind == FrameEvent::Kind::fault ? event.data : std::string());
      said_goodbye_ = event.kind == FrameEvent::Kind::close;
      reading_ = false;
      break;
  }
}

void WebSocketSession::take_message(std::string text) {
  const bool fits = socket_->is_open() && make_room(text.size());
  const std::shared_ptr<ByteBudget::Share> share = std::exchange(share_, nullptr);
  if (!fits) return;
  last_message_ = std::chrono::steady_clock::now();
  try {
    handler_->message(std::move(text), share);
  } catch (const std::exception& error) {
    log_unexpected(log_, "a message of a WebSocket", error);
    socket_->close(CloseCode::internal_error, "something failed here");
  }
}

// All that has gathered in one piece. It ends with a close of ours, or when nothing is read any more and all is said:
// the answer to what ended the reading may gather while an earlier piece is on its way.
asio::awaitable<void> WebSocketSession::write_frames() {
  const std::shared_ptr<WebSocketSession> self = shared_from_this();
  for (;;) {
    WebSocket::Output output = socket_->take();
    if (output.frames.empty()) {
      if (!reading_) co_return;
      co_await waker_.sleep();
      continue;
    }
    const bool sent = co_await write(std::move(output.frames));
    if (!sent) {
      transport_->close();
      co_return;
    }
    if (output.has_message) last_message_ = std::chrono::steady_clock::now();
    if (!output.closing) continue;
    if (reading_ && !ending_) cut_after(kCloseTime);
    co_return;
  }
}

// As long as some of it goes out every now and then.
asio::awaitable<bool> WebSocketSession::write(std::string bytes) {
  error_code error;
  std::size_t done = 0;
  while (done < bytes.size() && !error) {
    if (!ending_) cut_after(limits_.write_time);
    done += co_await transport_->async_write_some(asio::buffer(bytes.data() + done, bytes.size() - done),
                                                  asio::redirect_error(asio::use_awaitable, error));
  }
  if (!ending_) cut_.cancel();
  co_return !error;
}

void WebSocketSession::wake() {
  if (socket_->broken()) transport_->close();
  waker_.wake();
}

// A silent client is asked whether it is there, and has as long again to say so.
void WebSocketSession::keep_alive() {
  ping_.expires_after(limits_.websocket_ping_time);
  ping_.async_wait([weak = weak_from_this(), asked = !std::exchange(heard_, false)](error_code error) {
    const std::shared_ptr<WebSocketSession> self = weak.lock();
    if (error || self == nullptr || !self->reading_) return;
    if (asked && !self->heard_) return self->transport_->close();
    if (!self->heard_) self->socket_->control(Opcode::ping, {});
    self->keep_alive();
  });
}

void WebSocketSession::close_when_idle() {
  if (limits_.websocket_idle_time.count() == 0) return;
  idle_.expires_at(last_message_ + limits_.websocket_idle_time);
  idle_.async_wait([weak = weak_from_this()](error_code error) {
    const std::shared_ptr<WebSocketSession> self = weak.lock();
    if (error || self == nullptr || !self->reading_) return;
    if (std::chrono::steady_clock::now() - self->last_message_ >= self->limits_.websocket_idle_time) {
      self->socket_->close(CloseCode::normal, "nothing was said for a long time");
    } else {
      self->close_when_idle();
    }
  });
}

// Whatever it does then.
void WebSocketSession::cut_after(std::chrono::milliseconds time) {
  cut_.expires_after(time);
  cut_.async_wait([self = shared_from_this()](error_code error) {
    if (!error) self->transport_->close();
  });
}

void WebSocketSession::drain() {
  if (handler_ == nullptr) return;
  bool waits = false;
  try {
    waits = handler_->drain();
  } catch (const std::exception& error) {
    // It is not waited for.
    log_unexpected(log_, "a WebSocket", error);
  }
  if (!waits) socket_->close(CloseCode::going_away, "the server is about to end");
}

void WebSocketSession::end() {
  socket_->close(CloseCode::going_away, "the server has ended");
  ending_ = true;
  cut_after(kLastWords);
}

}  // namespace quarrel::http
