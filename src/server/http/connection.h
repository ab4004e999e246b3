// One connection: reads a request, hands it on, sends the answer, and again. A coroutine on a strand; it owns itself
// while it runs.
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "server/http/byte_budget.h"
#include "server/http/http_server.h"
#include "server/http/live_count.h"
#include "server/http/transport.h"
#include "server/http/waker.h"

namespace quarrel::http {

class WebSocketSession;

inline constexpr std::size_t kMostReadAhead = 128 * 1024;

// What all connections of a server share; it outlives them.
struct ConnectionContext {
  Limits limits = {};
  HttpServer::Handler handler = {};
  Log& log;
  std::atomic<bool> draining = false;
  const std::shared_ptr<ByteBudget> bodies = std::make_shared<ByteBudget>(limits.body_bytes_together);
  const std::shared_ptr<LiveCount> live = std::make_shared<LiveCount>();  // of connections
};

// Who is at the other end.
struct Peer {
  std::string address = {};  // empty on a Unix socket
  std::string sender = {};   // that it counts for
  bool loopback = false;
  bool unix_socket = false;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Socket socket, Peer peer, const std::shared_ptr<TlsContext>& tls, const ConnectionContext& context);

  boost::asio::awaitable<void> run();
  // From any thread: ends it if nothing of a request has come; a WebSocket when its handler has nothing to wait for.
  void drain();
  // From any thread: ends it now, whatever it has.
  void end();
  Strand executor() { return transport_.get_executor(); }
  // True once: it has no complete head yet, and is going to be ended for somebody else.
  bool give_up_head() noexcept { return reading_head_.exchange(false); }
  // From a request's admission to the end of its answer.
  bool being_answered() const noexcept { return being_answered_; }
  const Peer& peer() const noexcept { return peer_; }

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  boost::asio::awaitable<bool> serve_one();
  boost::asio::awaitable<bool> read_head(Parser& parser);
  boost::asio::awaitable<bool> gather_head(std::size_t& length);
  boost::asio::awaitable<bool> read_body(Parser& parser, const Request& request, std::uint64_t most_bytes,
                                         ByteBudget::Share& share);
  boost::asio::awaitable<bool> answer(std::shared_ptr<Exchange> exchange, bool keep_alive);
  boost::asio::awaitable<bool> send_answer(std::shared_ptr<Exchange> exchange, bool keep_alive);
  boost::asio::awaitable<bool> wait_for_more(std::chrono::milliseconds silence);
  boost::asio::awaitable<bool> send(std::string bytes);
  boost::asio::awaitable<void> refuse(unsigned status, std::string message, const Request& request);
  boost::asio::awaitable<void> send_last(Response response, std::string id, bool head_only);
  boost::asio::awaitable<void> become_websocket(std::shared_ptr<Exchange> exchange, Exchange::Output output);
  boost::asio::awaitable<void> say_end();
  boost::asio::awaitable<bool> answer_refused(Admission admission, const Parser& parser, const Request& request);

  std::shared_ptr<Exchange> make_exchange(Request request);
  void watch_client(const std::shared_ptr<Exchange>& exchange);
  void look_at_client(const std::weak_ptr<Exchange>& watched);
  Request read_request(const Parser& parser) const;
  Request unread_request() const;
  void cut() noexcept;
  void set_deadline(std::chrono::milliseconds time) { deadline_.set(weak_from_this(), time); }

  const LiveCount::Member live_;  // goes last
  Transport transport_;
  const ConnectionContext& context_;
  const Limits& limits_;
  const HttpServer::Handler& handler_;
  const std::atomic<bool>& draining_;
  const Peer peer_;
  // Bounded: the parser itself would wait forever for the end of a chunk's header.
  boost::beast::flat_buffer buffer_{kMostReadAhead};
  Waker waker_;
  boost::asio::steady_timer watch_;
  std::chrono::milliseconds look_after_ = {};
  std::shared_ptr<Exchange> answering_;  // whose client is watched
  Deadline deadline_;
  std::shared_ptr<WebSocketSession> websocket_;  // while it is one
  std::uint64_t account_ = 0;                    // whose request it is
  int minor_version_ = 1;                        // of the request's HTTP/1.x
  bool end_means_whole_ = false;                 // of the answer that is being sent: it has neither length nor chunks
  std::atomic<bool> reading_head_ = true;
  bool has_answered_ = false;       // a request before
  bool request_has_begun_ = false;  // a byte of it has come
  std::atomic<bool> being_answered_ = false;
};

}  // namespace quarrel::http
