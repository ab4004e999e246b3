// No lambda that captures stands in an expression with co_await: GCC 12 destroys it too early.
#include "server/http/connection.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/read.hpp>
#include <utility>

#include "base/clock.h"
#include "server/http/unexpected.h"
#include "server/http/websocket_session.h"

namespace quarrel::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using boost::system::error_code;

// Of a head, which is seldom longer: whoever waits for one keeps so much.
constexpr std::size_t kReadAtOnce = 2 * 1024;
constexpr std::size_t kBodyAtOnce = 64 * 1024;
// A client that is refused in the middle of its body is read on for so long: closing at once would reset the
// connection, and it might never see the answer.
constexpr std::chrono::seconds kLinger{1};
// When a client is looked at again that has sent something before it had the answer: its next request, or TLS's word
// for the end, which is followed by the end itself. Less and less often.
constexpr std::chrono::milliseconds kLookFirst{2};
constexpr std::chrono::milliseconds kLookLast{256};

// Of the second that it is; made once for all answers of a thread in it.
const std::string& date_now() {
  using std::chrono::system_clock;
  thread_local std::chrono::sys_seconds second;
  thread_local std::string text;
  const auto now = std::chrono::floor<std::chrono::seconds>(system_clock::now());
  if (text.empty() || now != second) {
    second = now;
    text = http_date(now);
  }
  return text;
}

// What is wrong with a request whose body is longer than it may be.
struct BodyFault {
  unsigned status = 0;
  std::string message = {};
};
BodyFault body_too_large(std::uint64_t most_bytes) {
  if (most_bytes == 0) return {400, "this request takes no body"};
  return {413, fmt::format("the request's body is larger than {} bytes", most_bytes)};
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
    return "the request's Content-Length is not a number";
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
  std::string text = fmt::format("HTTP/1.{} {} {}\r\nServer: quarrel\r\nDate: {}\r\nx-request-id: {}\r\n",
                                 minor_version, response.status, status_text(response.status), date_now(), id);
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

// A part of an answer in pieces.
void append_piece(std::string& bytes, std::string_view piece, bool chunked) {
  if (chunked) fmt::format_to(std::back_inserter(bytes), "{:x}\r\n", piece.size());
  bytes += piece;
  if (chunked) bytes += "\r\n";
}

}  // namespace

Connection::Connection(Socket socket, Peer peer, const std::shared_ptr<TlsContext>& tls,
                       const ConnectionContext& context)
    : live_(context.live),
      transport_(std::move(socket), tls),
      context_(context),
      limits_(context.limits),
      handler_(context.handler),
      draining_(context.draining),
      peer_(std::move(peer)),
      waker_(transport_.get_executor()),
      watch_(transport_.get_executor()),
      deadline_(transport_) {
  if (peer_.unix_socket) return;
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
      has_answered_ = true;
      request_has_begun_ = false;
      being_answered_ = false;
      reading_head_ = true;
      again = may_go_on && !draining_;
    }
  } catch (const std::exception& error) {
    // This connection ends, the others do not.
    log_unexpected(context_.log, "a connection", error);
  }
  watch_.cancel();
  cut();
}

void Connection::end() {
  asio::post(transport_.get_executor(), [self = shared_from_this()] {
    if (self->websocket_ != nullptr) return self->websocket_->end();
    self->cut();
    self->waker_.wake();
  });
}

void Connection::drain() {
  asio::post(transport_.get_executor(), [self = shared_from_this()] {
    if (self->websocket_ != nullptr) self->websocket_->drain();
    // Who has just come, or whose next request lies here unread, is told that the server ends.
    error_code ignored;
    const bool is_idle = self->has_answered_ && !self->request_has_begun_;
    if (is_idle && self->transport_.socket().available(ignored) == 0) self->transport_.close();
  });
}

// Where nothing but the connection's end says that the answer is whole, one that is not must not end like that.
void Connection::cut() noexcept {
  if (end_means_whole_) {
    transport_.reset();
  } else {
    transport_.close();
  }
}

Request Connection::read_request(const Parser& parser) const {
  const auto& head = parser.get();
  Request request;
  request.method = std::string(head.method_string());
  request.address = peer_.address;
  request.loopback = peer_.loopback;
  request.unix_socket = peer_.unix_socket;
  for (const auto& field : head) request.headers.emplace_back(std::string(field.name_string()), field.value());
  const std::string_view given_id = request.header("x-request-id");
  request.id = usable_request_id(given_id) ? std::string(given_id) : new_request_id();
  return request;
}

// As much of a request as the first line of its head tells, which may be all that came.
Request Connection::unread_request() const {
  Request request{
      .id = new_request_id(), .address = peer_.address, .loopback = peer_.loopback, .unix_socket = peer_.unix_socket};
  const std::string_view seen(static_cast<const char*>(buffer_.data().data()), buffer_.size());
  const std::string_view line = seen.substr(0, seen.find('\r'));
  const std::size_t begin = line.find(' ');
  const std::size_t end = begin == std::string_view::npos ? begin : line.find(' ', begin + 1);
  if (end == std::string_view::npos) return request;
  request.method = line.substr(0, begin);
  read_path(line.substr(begin + 1, end - begin - 1), request.path, request.query);
  return request;
}

// False: the connection ends.
asio::awaitable<bool> Connection::serve_one() {
  Parser parser;
  const bool has_head = co_await read_head(parser);
  if (!has_head) co_return false;
  const auto& head = parser.get();
  minor_version_ = head.version() == 10 ? 0 : 1;
  Request request = read_request(parser);
  const std::string_view target(head.target().data(), head.target().size());
  const bool has_path = read_path(target, request.path, request.query);
  std::string fault = framing_fault(head);
  if (fault.empty() && !has_path) fault = "the request's path is not valid";
  if (!fault.empty()) {
    co_await refuse(400, std::move(fault), request);
    co_return false;
  }
  being_answered_ = true;
  Admission admission = handler_.admit(request);
  if (admission.refusal != 0) co_return co_await answer_refused(std::move(admission), parser, request);
  request.record = std::move(admission.record);
  admission.body_bytes = std::min<std::uint64_t>(admission.body_bytes, context_.bodies->most_of_one());
  // Beast looks at a length that is given only while it reads the head, when the limit is not known yet.
  if (parser.content_length().value_or(0) > admission.body_bytes) {
    BodyFault too_large = body_too_large(admission.body_bytes);
    co_await refuse(too_large.status, std::move(too_large.message), request);
    co_return false;
  }
  parser.body_limit(admission.body_bytes);
  account_ = admission.account;
  ByteBudget::Share share(context_.bodies, account_);
  const bool has_body = co_await read_body(parser, request, admission.body_bytes, share);
  if (!has_body) co_return false;
  const bool keep_alive = parser.keep_alive();
  request.body = std::move(parser.get().body());

  const bool with_body = !request.body.empty();
  const std::shared_ptr<Exchange> exchange = make_exchange(std::move(request));
  if (with_body) exchange->keep_with_body(std::make_shared<ByteBudget::Share>(std::move(share)));
  handler_.handle(exchange);
  co_return co_await answer(exchange, keep_alive);
}

asio::awaitable<bool> Connection::answer_refused(Admission admission, const Parser& parser, const Request& request) {
  const bool head_only = request.method == "HEAD";
  if (!parser.is_done()) {
    co_await send_last(std::move(admission.answer), request.id, head_only);
    co_return false;
  }
  // Nothing of it is left to be read, so the connection can go on.
  const bool keep = parser.keep_alive() && !draining_;
  const bool sent = co_await send(whole_text(admission.answer, request.id, minor_version_, keep, head_only));
  if (sent && !keep) co_await say_end();
  co_return sent&& keep;
}

// Waits for a request's first byte as long as an idle connection may last, and for the rest of its head not so long.
asio::awaitable<bool> Connection::read_head(Parser& parser) {
  std::size_t length = 0;
  const bool gathered = co_await gather_head(length);
  const bool given_up = !reading_head_.exchange(false);  // for somebody else, perhaps while its last bytes came
  if (!gathered || given_up) co_return false;
  error_code error;
  parser.header_limit(limits_.header_bytes);
  parser.body_limit(boost::none);  // known when the head is
  const std::size_t used = parser.put(asio::const_buffer(buffer_.data().data(), length), error);
  if (!error && parser.is_header_done()) {
    buffer_.consume(used);
    co_return true;
  }
  const Request request = unread_request();
  if (error == beast::http::error::bad_version) {
    co_await refuse(505, "only HTTP/1.1 and HTTP/1.0 are spoken here", request);
  } else {
    co_await refuse(400, "the request is not HTTP/1.1", request);
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
      const Request request = unread_request();
      co_await refuse(scan.status(), scan.fault(), request);
      co_return false;
    }
    if (!seen.empty()) request_has_begun_ = true;
    if (scan.length() != 0) break;
    if (first) set_deadline(seen.empty() ? limits_.idle_time : limits_.header_time);
    error_code error;
    const std::size_t count = co_await transport_.async_read_some(buffer_.prepare(kReadAtOnce),
                                                                  asio::redirect_error(asio::use_awaitable, error));
    if (error || (deadline_.passed() && request_has_begun_)) {
      if (deadline_.passed() && request_has_begun_) {
        deadline_.clear();
        const Request request = unread_request();
        co_await refuse(408, "the request's head did not come in time", request);
      }
      co_return false;
    }
    if (!request_has_begun_) set_deadline(limits_.header_time);
    buffer_.commit(count);
  }
  length = scan.length();
  deadline_.clear();
  co_return true;
}

asio::awaitable<bool> Connection::read_body(Parser& parser, const Request& request, std::uint64_t most_bytes,
                                            ByteBudget::Share& share) {
  error_code error;
  const std::string_view expected = request.header("Expect");
  if (!expected.empty() && !equals_ignoring_case(expected, "100-continue")) {
    co_await refuse(417, "the only expectation that is understood is 100-continue", request);
    co_return false;
  }
  const std::string_view encoding = request.header("Content-Encoding");
  if (!parser.is_done() && !encoding.empty() && !equals_ignoring_case(encoding, "identity")) {
    co_await refuse(415, "bodies are taken as they are: Content-Encoding is not supported", request);
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
  bool wants_more = buffer_.size() == 0;
  // Not by Beast's read, which goes on until a chunk's head is whole: a sender whose next bytes are always there leaves
  // no read that waits, and that the deadline could cancel.
  while (!error && fits && !deadline_.passed() && !parser.is_done()) {
    if (wants_more) {
      const std::size_t room = std::min(kBodyAtOnce, buffer_.max_size() - buffer_.size());
      if (room == 0) {
        error = beast::http::error::bad_chunk_extension;  // a head that fills the buffer
        break;
      }
      buffer_.commit(
          co_await transport_.async_read_some(buffer_.prepare(room), asio::redirect_error(asio::use_awaitable, error)));
      if (error) break;
    }
    const std::size_t used = parser.put(buffer_.data(), error);
    buffer_.consume(used);
    wants_more = error == beast::http::error::need_more || used == 0 || buffer_.size() == 0;
    if (error == beast::http::error::need_more) error = {};
    fits = share.grow_to(parser.get().body().size());
  }
  deadline_.clear();
  if (!fits) {
    co_await refuse(503, "there are too many large requests at the moment", request);
    co_return false;
  }
  if (!error && parser.is_done()) co_return true;
  if (error == beast::http::error::body_limit) {
    BodyFault too_large = body_too_large(most_bytes);
    co_await refuse(too_large.status, std::move(too_large.message), request);
  } else if (deadline_.passed()) {
    co_await refuse(408, "the request's body did not come in time", request);
  } else if (error.category() == beast::http::make_error_code(beast::http::error::bad_chunk).category() &&
             error != beast::http::error::partial_message && error != beast::http::error::end_of_stream) {
    co_await refuse(400, "the request's body is not what its head says", request);
  }
  co_return false;
}

std::shared_ptr<Exchange> Connection::make_exchange(Request request) {
  const std::weak_ptr<Connection> weak = weak_from_this();
  auto exchange = std::make_shared<Exchange>(std::move(request), limits_.buffered_bytes, [weak] {
    const std::shared_ptr<Connection> self = weak.lock();
    if (self == nullptr) return;
    asio::post(self->transport_.get_executor(), [self] { self->waker_.wake(); });
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
    waker_.wake();
    return;
  }
  watch_.expires_after(look_after_);
  look_after_ = std::min(2 * look_after_, kLookLast);
  watch_.async_wait([self = shared_from_this(), watched](error_code error) {
    if (!error) self->look_at_client(watched);
  });
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
  std::chrono::milliseconds silence{0};  // that is filled with comments
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
      output.head = {};  // a large answer is there twice no longer than it takes to write it down
    } else if (output.has_head) {
      end_means_whole_ = !chunked;
      if (output.head.content_type == "text/event-stream") silence = limits_.comment_time;
      bytes = head_text(output.head, id, minor_version_, keep_alive && chunked && !draining_);
      if (chunked) bytes += "Transfer-Encoding: chunked\r\n";
      bytes += "\r\n";
    }
    if (!output.pieces.empty()) append_piece(bytes, output.pieces, chunked);
    if (output.finished && !output.whole && chunked) bytes += "0\r\n\r\n";
    if (!bytes.empty()) {
      const bool sent = co_await send(std::move(bytes));
      if (!sent) {
        exchange->close();
        co_return false;
      }
    }
    if (output.finished) {
      end_means_whole_ = false;
      const bool may_go_on = keep_alive && (output.whole || chunked) && !draining_;
      if (!may_go_on) co_await say_end();
      co_return may_go_on;
    }
    const bool goes_on = co_await wait_for_more(silence);
    if (!goes_on) {
      exchange->close();
      co_return false;
    }
  }
}

// Fills the silence with comments. False: the client does not take them.
asio::awaitable<bool> Connection::wait_for_more(std::chrono::milliseconds silence) {
  bool woken = co_await waker_.sleep(silence);
  while (!woken) {
    std::string comment;
    append_piece(comment, ":\n\n", minor_version_ == 1);
    const bool sent = co_await send(std::move(comment));
    if (!sent) co_return false;
    woken = co_await waker_.sleep(silence);
  }
  co_return true;
}

asio::awaitable<void> Connection::become_websocket(std::shared_ptr<Exchange> exchange, Exchange::Output output) {
  const Request& request = exchange->request();
  if (minor_version_ == 0) {
    co_return co_await refuse(400, "HTTP/1.0 has no WebSockets", request);
  }
  // A client has to wait for the answer; bytes that follow at once may be another's request.
  if (buffer_.size() != 0) {
    co_return co_await refuse(400, "the request is followed by bytes before its answer", request);
  }
  if (draining_) co_return co_await refuse(503, "the server is about to end", request);
  const std::shared_ptr<Transport> transport(shared_from_this(), &transport_);
  const std::shared_ptr<const Request> shared_request(exchange, &request);
  const ByteBudget::Account room{.budget = context_.bodies, .number = account_};
  websocket_ = std::make_shared<WebSocketSession>(transport, limits_, room, shared_request, context_.log);
  try {
    co_await websocket_->run(output.protocol, output.head.headers, output.upgrade);
  } catch (...) {
    websocket_ = nullptr;  // it holds this connection
    throw;
  }
  websocket_ = nullptr;
}

// All of it, as long as some of it goes out every now and then, and it does not take forever.
asio::awaitable<bool> Connection::send(std::string bytes) {
  using std::chrono::milliseconds;
  const milliseconds at_least_rate(1000 * bytes.size() / std::max<std::size_t>(1, limits_.least_read_rate));
  const Clock::time_point until = Clock::now() + limits_.write_time + at_least_rate;
  std::size_t done = 0;
  error_code error;
  while (done < bytes.size() && !error) {
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
    if (left.count() <= 0) break;
    set_deadline(std::min(limits_.write_time, left));
    done += co_await transport_.async_write_some(asio::buffer(bytes.data() + done, bytes.size() - done),
                                                 asio::redirect_error(asio::use_awaitable, error));
  }
  deadline_.clear();
  co_return done == bytes.size();
}

asio::awaitable<void> Connection::refuse(unsigned status, std::string message, const Request& request) {
  Response response = handler_.refuse({.status = status, .message = std::move(message), .request = request});
  co_await send_last(std::move(response), request.id, request.method == "HEAD");
}

// TLS tells a whole answer from one that was cut. And closing a socket that has unread bytes resets the connection: the
// client might lose what it has not read yet.
asio::awaitable<void> Connection::say_end() {
  error_code error;
  if (!transport_.encrypted() && transport_.socket().available(error) == 0) co_return;
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
