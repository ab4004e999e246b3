// No lambda that captures stands in an expression with co_await: GCC 12 destroys it too early.
#include "server/http/connection.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/read.hpp>
#include <cstring>
#include <random>
#include <utility>

#include "server/http/websocket_session.h"

namespace quarrel::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using boost::system::error_code;

// Of a head, which is seldom longer: whoever waits for one keeps so much.
constexpr std::size_t kReadAtOnce = 2 * 1024;
// A client that is refused in the middle of its body is read on for so long: closing at once would reset the
// connection, and it might never see the answer.
constexpr std::chrono::seconds kLinger{1};
// When a client is looked at again that has sent something before it had the answer: its next request, or TLS's word
// for the end, which is followed by the end itself. Less and less often.
constexpr std::chrono::milliseconds kLookFirst{2};
constexpr std::chrono::milliseconds kLookLast{256};

std::string new_request_id() {
  thread_local std::mt19937_64 random(std::random_device{}());
  return fmt::format("req-{:016x}", random());
}

// What would let two readers of one request disagree on where it ends, or on whom it is for. Empty: nothing.
std::string framing_fault(const beast::http::request_header<>& head) {
  const auto count = [&](beast::http::field field) {
    const auto range = head.equal_range(field);
    return std::distance(range.first, range.second);
  };
  const auto lengths = count(beast::http::field::content_length);
  const auto encodings = count(beast::http::field::transfer_encoding);
  if (lengths > 1) return "the request has more than one Content-Length";
  // Beast takes "5, 5" for 5.
  const auto length = head[beast::http::field::content_length];
  if (!std::ranges::all_of(length, [](char c) { return c >= '0' && c <= '9'; })) {
    return "the request's Content-Length is no number";
  }
  if (encodings > 1 || (encodings == 1 && lengths == 1)) return "the request's length is given in two ways";
  if (encodings == 1 && !equals_ignoring_case(head[beast::http::field::transfer_encoding], "chunked")) {
    return "the only Transfer-Encoding that is understood is chunked";
  }
  if (encodings == 1 && head.version() == 10) return "HTTP/1.0 has no Transfer-Encoding";
  if (count(beast::http::field::authorization) > 1) return "the request has more than one Authorization";
  if (count(beast::http::field::host) > 1) return "the request has more than one Host";
  if (head.version() == 11 && count(beast::http::field::host) == 0) return "the request has no Host";
  return {};
}

std::string head_text(const Response& response, const std::string& id, int minor_version, bool keep_alive) {
  std::string text = fmt::format("HTTP/1.{} {} {}\r\nServer: quarrel\r\nx-request-id: {}\r\n", minor_version,
                                 response.status, status_text(response.status), id);
  if (!response.content_type.empty()) text += fmt::format("Content-Type: {}\r\n", response.content_type);
  text += "X-Content-Type-Options: nosniff\r\n";
  for (const auto& [name, value] : response.headers) text += fmt::format("{}: {}\r\n", name, value);
  text += keep_alive ? "Connection: keep-alive\r\n" : "Connection: close\r\n";
  return text;
}

// With its length, and without the body where only the head was asked for.
std::string whole_text(const Response& response, const std::string& id, int minor_version, bool keep_alive,
                       bool head_only) {
  std::string text = head_text(response, id, minor_version, keep_alive);
  if (response.status != 204 && response.status != 304)
    text += fmt::format("Content-Length: {}\r\n", response.body.size());
  text += "\r\n";
  if (!head_only) text += response.body;
  return text;
}

}  // namespace

Connection::Connection(Socket socket, const std::shared_ptr<TlsContext>& tls, const ConnectionContext& context)
    : transport_(std::move(socket), tls),
      limits_(context.limits),
      handler_(context.handler),
      draining_(context.draining),
      bodies_(context.bodies),
      timer_(transport_.get_executor()),
      watch_(transport_.get_executor()),
      deadline_(transport_) {
  error_code error;
  const asio::generic::stream_protocol::endpoint peer = transport_.socket().remote_endpoint(error);
  if (error || peer.data()->sa_family == AF_UNIX) {
    loopback_ = true;
    unix_socket_ = !error;
    return;
  }
  asio::ip::tcp::endpoint endpoint;
  endpoint.resize(peer.size());
  std::memcpy(endpoint.data(), peer.data(), peer.size());
  asio::ip::address address = endpoint.address();
  // What a socket for both kinds of address calls a client that came by the older.
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    address = asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
  }
  address_ = address.to_string();
  loopback_ = address.is_loopback();
  const int on = 1;
  ::setsockopt(transport_.socket().native_handle(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

asio::awaitable<void> Connection::run() {
  const std::shared_ptr<Connection> self = shared_from_this();
  try {
    set_deadline(limits_.header_time);
    bool again = co_await transport_.handshake();
    deadline_.clear();
    while (again) {
      const bool may_go_on = co_await serve_one();
      has_request_ = false;
      reading_head_ = true;
      again = may_go_on && !draining_;
    }
  } catch (const std::exception&) {
    // No memory for this connection: it ends, the others do not.
  }
  transport_.close();
}

void Connection::end() {
  asio::post(transport_.get_executor(), [self = shared_from_this()] {
    if (self->websocket_ != nullptr) return self->websocket_->end();
    self->transport_.close();
    self->wake();
  });
}

void Connection::drain() {
  asio::post(transport_.get_executor(), [self = shared_from_this()] {
    if (self->websocket_ != nullptr) self->websocket_->drain();
    if (!self->has_request_) self->transport_.close();
  });
}

// False: the connection ends.
asio::awaitable<bool> Connection::serve_one() {
  Parser parser;
  const bool has_head = co_await read_head(parser);
  if (!has_head) co_return false;
  const auto& head = parser.get();
  minor_version_ = head.version() == 10 ? 0 : 1;

  Request request;
  request.method = std::string(head.method_string());
  request.address = address_;
  request.loopback = loopback_;
  request.unix_socket = unix_socket_;
  for (const auto& field : head) request.headers.emplace_back(std::string(field.name_string()), field.value());
  const std::string_view given_id = request.header("x-request-id");
  request.id = usable_request_id(given_id) ? std::string(given_id) : new_request_id();

  std::string fault = framing_fault(head);
  if (fault.empty() &&
      !read_path(std::string_view(head.target().data(), head.target().size()), request.path, request.query)) {
    fault = "the request's path cannot be one";
  }
  if (!fault.empty()) {
    co_await refuse(400, fault, request.id);
    co_return false;
  }
  Admission admission = handler_.admit(request);
  const bool head_only = request.method == "HEAD";
  if (admission.refusal != 0 && parser.is_done()) {
    // Nothing of it is left to be read, so the connection can go on.
    const bool keep = parser.keep_alive() && !draining_;
    const bool sent = co_await send(whole_text(admission.answer, request.id, minor_version_, keep, head_only));
    if (sent && !keep) co_await say_end();
    co_return sent&& keep;
  }
  if (admission.refusal != 0) {
    co_await send_last(std::move(admission.answer), request.id, head_only);
    co_return false;
  }
  // Beast looks at a length that is given only while it reads the head, when the limit is not known yet.
  if (parser.content_length().value_or(0) > admission.body_bytes) {
    co_await refuse(413, fmt::format("the request's body is larger than {} bytes", admission.body_bytes), request.id);
    co_return false;
  }
  parser.body_limit(admission.body_bytes);
  ByteBudget::Share share(bodies_);
  const bool has_body = co_await read_body(parser, request, share);
  if (!has_body) co_return false;
  const bool keep_alive = parser.keep_alive();
  request.body = std::move(parser.get().body());
  request.record = std::move(admission.record);

  const bool with_body = !request.body.empty();
  const std::shared_ptr<Exchange> exchange = make_exchange(std::move(request));
  if (with_body) exchange->keep(std::make_shared<ByteBudget::Share>(std::move(share)));
  handler_.handle(exchange);
  co_return co_await answer(exchange, keep_alive);
}

// Waits for a request's first byte as long as an idle connection may last, and for the rest of its head not so long.
asio::awaitable<bool> Connection::read_head(Parser& parser) {
  std::size_t length = 0;
  const bool gathered = co_await gather_head(length);
  reading_head_ = false;
  if (!gathered) co_return false;
  error_code error;
  parser.header_limit(limits_.header_bytes);
  parser.body_limit(boost::none);  // known when the head is
  buffer_.consume(parser.put(asio::const_buffer(buffer_.data().data(), length), error));
  if (!error && parser.is_header_done()) co_return true;
  if (error == beast::http::error::bad_version) {
    co_await refuse(505, "only HTTP/1.1 and HTTP/1.0 are spoken here", new_request_id());
  } else {
    co_await refuse(400, "the request is not HTTP/1.1", new_request_id());
  }
  co_return false;
}

// The head's bytes, up to the empty line that ends it, looked at before anything else reads them.
asio::awaitable<bool> Connection::gather_head(std::size_t& length) {
  HeadScan scan(limits_.header_bytes);
  if (buffer_.size() == 0) buffer_.shrink_to_fit();  // a body may have made it large
  for (bool first = true;; first = false) {
    const std::string_view seen(static_cast<const char*>(buffer_.data().data()), buffer_.size());
    scan.look(seen);
    if (scan.status() != 0) {
      deadline_.clear();
      co_await refuse(scan.status(), scan.fault(), new_request_id());
      co_return false;
    }
    if (!seen.empty()) has_request_ = true;
    if (scan.length() != 0) break;
    if (first) set_deadline(seen.empty() ? limits_.idle_time : limits_.header_time);
    error_code error;
    const std::size_t count = co_await transport_.async_read_some(buffer_.prepare(kReadAtOnce),
                                                                  asio::redirect_error(asio::use_awaitable, error));
    if (error || (deadline_.passed() && has_request_)) {
      if (deadline_.passed() && has_request_) {
        deadline_.clear();
        co_await refuse(408, "the request's head did not come in time", new_request_id());
      }
      co_return false;
    }
    if (!has_request_) set_deadline(limits_.header_time);
    buffer_.commit(count);
  }
  length = scan.length();
  deadline_.clear();
  co_return true;
}

asio::awaitable<bool> Connection::read_body(Parser& parser, const Request& request, ByteBudget::Share& share) {
  error_code error;
  const std::string_view expected = request.header("Expect");
  if (!expected.empty() && !equals_ignoring_case(expected, "100-continue")) {
    co_await refuse(417, "the only expectation that is understood is 100-continue", request.id);
    co_return false;
  }
  if (!expected.empty() && minor_version_ == 1 && !parser.is_done()) {
    const bool sent = co_await send("HTTP/1.1 100 Continue\r\n\r\n");
    if (!sent) co_return false;
  }
  if (parser.is_done()) co_return true;
  set_deadline(limits_.body_time);
  parser.eager(true);
  bool fits = true;
  while (!error && fits && !parser.is_done()) {
    co_await beast::http::async_read_some(transport_, buffer_, parser,
                                          asio::redirect_error(asio::use_awaitable, error));
    fits = share.grow_to(parser.get().body().size());
  }
  deadline_.clear();
  if (!fits) {
    co_await refuse(503, "there are too many large requests at the moment", request.id);
    co_return false;
  }
  if (!error) co_return true;
  if (error == beast::http::error::body_limit) {
    co_await refuse(413, "the request's body is too large", request.id);
  } else if (deadline_.passed()) {
    co_await refuse(408, "the request's body did not come in time", request.id);
  } else if (error.category() == beast::http::make_error_code(beast::http::error::bad_chunk).category() &&
             error != beast::http::error::partial_message && error != beast::http::error::end_of_stream) {
    co_await refuse(400, "the request's body is not what its head says", request.id);
  }
  co_return false;
}

std::shared_ptr<Exchange> Connection::make_exchange(Request request) {
  const std::weak_ptr<Connection> weak = weak_from_this();
  auto exchange = std::make_shared<Exchange>(std::move(request), limits_.buffered_bytes, [weak] {
    const std::shared_ptr<Connection> self = weak.lock();
    if (self == nullptr) return;
    asio::post(self->transport_.get_executor(), [self] { self->wake(); });
  });
  watch_client(exchange);
  return exchange;
}

// A client that goes away is noticed while its answer is computed, not when it is sent. What comes instead of the end,
// the next request, waits in the socket.
void Connection::watch_client(const std::shared_ptr<Exchange>& exchange) {
  const std::weak_ptr<Exchange> weak = exchange;
  transport_.socket().async_wait(asio::socket_base::wait_read, [self = shared_from_this(), weak](error_code error) {
    if (!error) self->look_at_client(weak);
  });
}

// Bytes that wait would end every further wait at once, so it is looked again from time to time.
void Connection::look_at_client(const std::weak_ptr<Exchange>& watched) {
  const std::shared_ptr<Exchange> exchange = watched.lock();
  if (exchange == nullptr || exchange != answering_) return;
  if (transport_.peer_has_ended()) {
    exchange->close();
    transport_.close();
    wake();
    return;
  }
  watch_.expires_after(look_after_);
  look_after_ = std::min(2 * look_after_, kLookLast);
  watch_.async_wait([self = shared_from_this(), watched](error_code error) {
    if (!error) self->look_at_client(watched);
  });
}

void Connection::wake() {
  woken_ = true;
  timer_.cancel();
}

asio::awaitable<void> Connection::sleep_until_woken() {
  error_code ignored;
  if (!woken_) {
    timer_.expires_at(asio::steady_timer::time_point::max());
    co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
  woken_ = false;
}

asio::awaitable<bool> Connection::answer(std::shared_ptr<Exchange> exchange, bool keep_alive) {
  answering_ = exchange;
  look_after_ = kLookFirst;
  const bool may_go_on = co_await send_answer(exchange, keep_alive);
  answering_ = nullptr;
  watch_.cancel();
  co_return may_go_on;
}

asio::awaitable<bool> Connection::send_answer(std::shared_ptr<Exchange> exchange, bool keep_alive) {
  const std::string id = exchange->request().id;
  const bool head_only = exchange->request().method == "HEAD";
  const bool chunked = minor_version_ == 1;
  for (;;) {
    Exchange::Output output = exchange->take();
    if (output.broken || !transport_.is_open()) {
      exchange->close();
      co_return false;
    }
    if (output.upgrade != nullptr) {
      answering_ = nullptr;  // a WebSocket reads all the time, and needs no watching
      co_await become_websocket(exchange, std::move(output));
      co_return false;
    }
    std::string bytes;
    if (output.has_head && output.whole) {
      bytes = whole_text(output.head, id, minor_version_, keep_alive && !draining_, head_only);
    } else if (output.has_head) {
      bytes = head_text(output.head, id, minor_version_, keep_alive && chunked && !draining_);
      if (chunked) bytes += "Transfer-Encoding: chunked\r\n";
      bytes += "\r\n";
    }
    if (!output.pieces.empty()) {
      if (chunked) fmt::format_to(std::back_inserter(bytes), "{:x}\r\n", output.pieces.size());
      bytes += output.pieces;
      if (chunked) bytes += "\r\n";
    }
    if (output.finished && !output.whole && chunked) bytes += "0\r\n\r\n";
    if (!bytes.empty()) {
      const bool sent = co_await send(std::move(bytes));
      if (!sent) {
        exchange->close();
        co_return false;
      }
    }
    if (output.finished) {
      const bool may_go_on = keep_alive && (output.whole || chunked) && !draining_;
      if (!may_go_on) co_await say_end();
      co_return may_go_on;
    }
    co_await sleep_until_woken();
  }
}

asio::awaitable<void> Connection::become_websocket(std::shared_ptr<Exchange> exchange, Exchange::Output output) {
  const Request& request = exchange->request();
  if (minor_version_ == 0) {
    co_return co_await refuse(400, "HTTP/1.0 has no WebSockets", request.id);
  }
  // A client has to wait for the answer; bytes that follow at once may be another's request.
  if (buffer_.size() != 0) {
    co_return co_await refuse(400, "the request is followed by bytes before its answer", request.id);
  }
  if (draining_) co_return co_await refuse(503, "the server is about to end", request.id);
  const std::shared_ptr<Transport> transport(shared_from_this(), &transport_);
  const std::shared_ptr<const Request> shared_request(exchange, &request);
  websocket_ = std::make_shared<WebSocketSession>(transport, limits_, shared_request);
  try {
    co_await websocket_->run(output.protocol, output.head.headers, output.upgrade);
  } catch (...) {
    websocket_ = nullptr;  // it holds this connection
    throw;
  }
  websocket_ = nullptr;
}

// All of it, as long as some of it goes out every now and then.
asio::awaitable<bool> Connection::send(std::string bytes) {
  std::size_t done = 0;
  error_code error;
  while (done < bytes.size() && !error) {
    set_deadline(limits_.write_time);
    done += co_await transport_.async_write_some(asio::buffer(bytes.data() + done, bytes.size() - done),
                                                 asio::redirect_error(asio::use_awaitable, error));
  }
  deadline_.clear();
  co_return !error;
}

asio::awaitable<void> Connection::refuse(unsigned status, std::string message, std::string id) {
  Response response = handler_.refuse(status, message);
  if (status == 503) response.headers.emplace_back("Retry-After", "1");
  co_await send_last(std::move(response), std::move(id), false);
}

// TLS tells a whole answer from one that was cut.
asio::awaitable<void> Connection::say_end() {
  if (!transport_.encrypted()) co_return;
  set_deadline(kLinger);
  co_await transport_.end_sending();
  deadline_.clear();
}

asio::awaitable<void> Connection::send_last(Response response, std::string id, bool head_only) {
  const bool sent = co_await send(whole_text(response, id, minor_version_, false, head_only));
  if (!sent) co_return;
  set_deadline(kLinger);
  co_await transport_.end_sending();
  deadline_.clear();
}

}  // namespace quarrel::http
