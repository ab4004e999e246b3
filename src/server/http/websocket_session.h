// A WebSocket's life on its connection: the opening handshake, messages in and out, pings, deadlines, the end. Made by
// the connection, on its strand, where all of this runs.
#pragma once

#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <string>

#include "server/http/byte_budget.h"
#include "server/http/http_server.h"
#include "server/http/transport.h"
#include "server/http/waker.h"
#include "server/http/websocket.h"

namespace quarrel::http {

class WebSocketSession : public std::enable_shared_from_this<WebSocketSession> {
 public:
  // `transport` holds the connection that it is part of. `room` is what messages may take on the account of whoever
  // sends them.
  WebSocketSession(std::shared_ptr<Transport> transport, const Limits& limits, ByteBudget::Account room,
                   std::shared_ptr<const Request> request, Log& log);

  // Until the WebSocket is gone and its handler knows. `protocol` is one that the client offers, or empty; `headers`
  // go out with the answer.
  boost::asio::awaitable<void> run(std::string protocol, Headers headers, MakeWebSocketHandler make_handler);
  // The server is about to end.
  void drain();
  // The server ends now.
  void end();

 private:
  boost::asio::awaitable<void> speak(std::string head);
  boost::asio::awaitable<void> say_goodbye();
  boost::asio::awaitable<void> read_frames();
  boost::asio::awaitable<void> write_frames();
  boost::asio::awaitable<bool> write(std::string bytes);
  std::string accept_head(const std::string& protocol, const Headers& headers) const;
  void take(FrameEvent event);
  void take_message(std::string text);
  bool make_room(std::size_t bytes);
  void expect_rest();
  void start_writer();
  void tell_closed();
  void wake();
  void keep_alive();
  void close_when_idle();
  void cut_after(std::chrono::milliseconds time);

  const std::shared_ptr<Transport> transport_;
  const Limits& limits_;
  const ByteBudget::Account room_;
  const std::shared_ptr<const Request> request_;
  Log& log_;
  std::shared_ptr<WebSocket> socket_;
  std::shared_ptr<WebSocketHandler> handler_;
  FrameReader reader_;
  std::shared_ptr<ByteBudget::Share> share_;  // of the message that is being read
  std::array<char, 4096> read_ = {};
  bool reading_ = true;
  bool said_goodbye_ = false;  // the client has, and expects no more
  bool heard_ = true;          // a byte came since the last look
  boost::asio::steady_timer ping_;
  boost::asio::steady_timer idle_;
  std::chrono::steady_clock::time_point last_message_ = {};  // in either direction
  boost::asio::steady_timer rest_;                           // when what is missing of a message must have come
  boost::asio::steady_timer cut_;
  bool ending_ = false;
  Waker waker_;
  boost::asio::steady_timer written_;  // cancelled when the writer has ended
  bool writing_ = false;
};

}  // namespace quarrel::http
