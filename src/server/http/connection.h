// One connection: reads a request, hands it on, sends the answer, and again. A coroutine on a strand; it owns itself
// while it runs.
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "server/http/http_server.h"

namespace quarrel::http {

using Strand = boost::asio::strand<boost::asio::io_context::executor_type>;
using Stream = boost::beast::basic_stream<boost::asio::generic::stream_protocol, Strand>;
using Socket = boost::asio::basic_stream_socket<boost::asio::generic::stream_protocol, Strand>;

inline constexpr std::size_t kMostBuffered = 128 * 1024;

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Socket socket, const Limits& limits, const HttpServer::Handler& handler,
             const std::atomic<bool>& draining);

  boost::asio::awaitable<void> run();
  // From any thread: ends it if it has no request.
  void end_if_idle();
  // From any thread: ends it now, whatever it has.
  void end();
  Strand executor() { return stream_.get_executor(); }
  // True once: it has no complete head yet, and is going to be ended for somebody else.
  bool give_up_head() noexcept { return reading_head_.exchange(false); }
  bool has_request() const noexcept { return has_request_; }

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  boost::asio::awaitable<bool> serve_one();
  boost::asio::awaitable<bool> read_head(Parser& parser);
  boost::asio::awaitable<bool> gather_head(std::size_t& length);
  boost::asio::awaitable<bool> read_body(Parser& parser, const Request& request);
  boost::asio::awaitable<bool> answer(std::shared_ptr<Exchange> exchange, bool keep_alive);
  boost::asio::awaitable<bool> send(std::string bytes);
  boost::asio::awaitable<void> refuse(unsigned status, std::string message, std::string id);
  boost::asio::awaitable<void> send_last(Response response, std::string id, bool head_only);
  boost::asio::awaitable<void> sleep_until_woken();

  std::shared_ptr<Exchange> make_exchange(Request request);
  void watch_client(const std::shared_ptr<Exchange>& exchange);
  bool client_is_gone();
  void wake();
  void set_deadline(std::chrono::milliseconds time);
  void wait_for_deadline(std::chrono::milliseconds time, unsigned number);
  void clear_deadline();

  Stream stream_;
  const Limits& limits_;
  const HttpServer::Handler& handler_;
  const std::atomic<bool>& draining_;
  std::string address_;
  bool loopback_ = false;
  bool unix_socket_ = false;
  // Bounded: the parser itself would wait for ever for the end of a chunk's header.
  boost::beast::flat_buffer buffer_{kMostBuffered};
  boost::asio::steady_timer timer_;
  bool woken_ = false;
  boost::asio::steady_timer deadline_;
  unsigned deadline_number_ = 0;
  bool timed_out_ = false;
  int minor_version_ = 1;  // of the request's HTTP/1.x
  std::atomic<bool> reading_head_ = true;
  std::atomic<bool> has_request_ = false;
};

}  // namespace quarrel::http
