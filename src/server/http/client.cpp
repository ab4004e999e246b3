#include "server/http/client.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <charconv>
#include <optional>

#include "base/error.h"
#include "base/lower_case.h"
#include "base/printable.h"
#include "server/http/resolve.h"

namespace quarrel::http {
namespace {

namespace beast = boost::beast;
namespace net = boost::asio;
using boost::system::error_code;
using tcp = net::ip::tcp;

constexpr int kMostRedirections = 5;
constexpr std::size_t kPiece = std::size_t{64} << 10;
constexpr std::size_t kMostUnread = std::size_t{256} << 10;  // a head, or the line before a chunk, must fit
constexpr std::size_t kLongestUrl = 4096;

bool is_allowed(const Url& url, const FetchOptions& options) {
  return std::ranges::find(options.allowed_hosts, url.authority()) != options.allowed_hosts.end();
}

[[noreturn]] void refuse(const Url& url, std::string_view why) { fail(ErrorKind::io, "{} {}", url.authority(), why); }

struct Answer {
  unsigned status = 0;
  std::string location = {};
};

// One request on a connection of its own, over TCP or TLS. The calling thread runs what it has begun until that is
// done, its time is over or somebody stops it; all it begins are reads and writes, which keeps the file quick to
// compile.
class Fetching {
 public:
  Fetching(const Url& url, const FetchOptions& options, const TakeBytes& take)
      : url_(url), options_(options), take_(take), socket_(io_) {}

  Answer run() {
    const std::string text = request_text();
    connect();
    if (url_.secure) shake_hands();
    send(text);
    return read_answer();
  }

 private:
  using Done = std::function<void(error_code, std::size_t)>;

  // Starts something, runs until it has ended and gives the number of bytes. The end of the stream is no failure here.
  std::size_t wait(std::chrono::seconds limit, const std::function<void(Done)>& start, std::string_view failure) {
    const auto until = std::chrono::steady_clock::now() + limit;
    const std::stop_callback on_stop(options_.stop, [this] { net::post(io_, [] {}); });  // wakes the loop below
    error_code result = net::error::would_block;
    std::size_t bytes = 0;
    io_.restart();
    start([&](error_code error, std::size_t count) {
      result = error;
      bytes = count;
    });
    while (result == net::error::would_block) {
      if (io_.run_one_until(until) > 0 && !options_.stop.stop_requested()) continue;
      error_code ignored;
      socket_.close(ignored);  // ends what was begun
      while (result == net::error::would_block && io_.run_one() > 0) {
      }
      if (options_.stop.stop_requested()) fail(ErrorKind::cancelled, "the pull was cancelled");
      refuse(url_, "does not answer in time");
    }
    cut_ = result == net::ssl::error::stream_truncated;
    ended_ = cut_ || result == net::error::eof;
    if (result && !ended_) refuse(url_, failure);
    return bytes;
  }

  void connect() {
    const std::vector<tcp::endpoint> found = resolve(url_.host, url_.port, options_.connect_within, options_.stop);
    if (found.empty()) refuse(url_, "cannot be found");
    const auto start = [&](const Done& done) {
      net::async_connect(socket_, found, [done](error_code error, const tcp::endpoint&) { done(error, 0); });
    };
    wait(options_.connect_within, start, "cannot be reached");
  }

  void shake_hands() {
    context_.set_default_verify_paths();
    context_.set_verify_mode(net::ssl::verify_peer);
    tls_.emplace(socket_, context_);
    tls_->set_verify_callback(net::ssl::host_name_verification(url_.host));
    if (SSL_set_tlsext_host_name(tls_->native_handle(), url_.host.c_str()) != 1) refuse(url_, "has no usable name");
    const auto start = [&](const Done& done) {
      tls_->async_handshake(net::ssl::stream_base::client, [done](error_code error) { done(error, 0); });
    };
    wait(options_.connect_within, start, "does not prove who it is");
    if (ended_) refuse(url_, "does not prove who it is");
  }

  std::string request_text() const {
    std::string text = fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: quarrel\r\nConnection: close\r\n",
                                   options_.post ? "POST" : "GET", url_.target, url_.authority());
    const auto add = [&](std::string_view name, std::string_view value) {
      const auto is_control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
      if (std::ranges::any_of(name, is_control) || std::ranges::any_of(value, is_control)) {
        fail(ErrorKind::bad_input, "a header of a request to {} holds a control character", url_.authority());
      }
      fmt::format_to(std::back_inserter(text), "{}: {}\r\n", name, value);
    };
    for (const auto& [name, value] : options_.headers) add(name, value);
    if (options_.offset > 0) add("Range", fmt::format("bytes={}-", options_.offset));
    if (options_.post) add("Content-Length", fmt::format("{}", options_.post->size()));
    text += "\r\n";
    if (options_.post) text += *options_.post;
    return text;
  }

  void send(std::string_view text) {
    for (std::size_t sent = 0; sent < text.size();) {
      const net::const_buffer rest(text.data() + sent, text.size() - sent);
      const auto start = [&](const Done& done) {
        tls_ ? tls_->async_write_some(rest, done) : socket_.async_write_some(rest, done);
      };
      sent += wait(options_.silence, start, "takes no request");
      if (ended_) refuse(url_, "takes no request");
    }
  }

  // Brings more bytes into `buffer_`; at the end of the stream it tells the parser.
  template <typename Parser>
  void read_more(Parser& parser, std::string_view failure) {
    if (buffer_.size() == buffer_.max_size()) refuse(url_, "sends a head without an end");
    const auto room = buffer_.prepare(std::min(kPiece, buffer_.max_size() - buffer_.size()));
    const auto start = [&](const Done& done) {
      tls_ ? tls_->async_read_some(room, done) : socket_.async_read_some(room, done);
    };
    buffer_.commit(wait(options_.silence, start, failure));
    if (!ended_) return;
    if (!parser.got_some()) refuse(url_, failure);
    error_code error;
    parser.put_eof(error);
    if (error || (cut_ && parser.need_eof())) refuse(url_, failure);
  }

  Answer read_answer() {
    namespace http = beast::http;
    http::response_parser<http::buffer_body> parser;
    parser.body_limit(boost::none);
    error_code error;
    while (!parser.is_header_done()) {
      buffer_.consume(parser.put(buffer_.data(), error));
      if (error == http::error::need_more) read_more(parser, "gives no answer");
      if ((error && error != http::error::need_more) || ended_) refuse(url_, "gives no answer");
    }
    const auto header = [&parser](http::field name) {
      const auto value = parser.get()[name];
      return std::string(value.data(), value.size());
    };
    Answer answer{.status = parser.get().result_int(), .location = header(http::field::location)};
    if (answer.status != 200 && answer.status != 206) return answer;
    const std::string begin = fmt::format("bytes {}-", options_.offset);
    if (answer.status == 206 && !header(http::field::content_range).starts_with(begin)) {
      refuse(url_, "sends another part than it was asked for");
    }
    parser.eager(true);
    std::array<std::byte, kPiece> piece;
    while (!parser.is_done()) {
      parser.get().body() = {.data = piece.data(), .size = piece.size(), .more = true};
      error = {};
      if (buffer_.size() > 0) buffer_.consume(parser.put(buffer_.data(), error));
      const std::size_t bytes = piece.size() - parser.get().body().size;
      if (bytes > 0) take_(answer.status, std::span(piece).first(bytes));
      const bool hungry = error == http::error::need_more || (!error && buffer_.size() == 0);
      if (error && !hungry && error != http::error::need_buffer) refuse(url_, "breaks off");
      if (hungry && !parser.is_done()) read_more(parser, "breaks off");
    }
    return answer;
  }

  const Url& url_;
  const FetchOptions& options_;
  const TakeBytes& take_;
  net::io_context io_{1};
  tcp::socket socket_;
  net::ssl::context context_{net::ssl::context::tls_client};
  std::optional<net::ssl::stream<tcp::socket&>> tls_;
  beast::flat_buffer buffer_{kMostUnread};
  bool ended_ = false;
  bool cut_ = false;  // TLS that ended without saying so: perhaps somebody between us wants a shorter answer
};

bool is_redirection(unsigned status) noexcept {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

}  // namespace

std::optional<Url> Url::parse(std::string_view text) {
  if (text.size() > kLongestUrl) return std::nullopt;
  Url url;
  if (text.starts_with("https://")) {
    url.secure = true;
  } else if (!text.starts_with("http://")) {
    return std::nullopt;
  }
  text.remove_prefix(url.secure ? 8 : 7);
  const std::size_t slash = std::min(text.find('/'), text.size());
  std::string_view authority = text.substr(0, slash);
  url.target = slash < text.size() ? text.substr(slash) : "/";
  const auto is_printable = [](char c) { return c > ' ' && c < 0x7f && c != '\\' && c != '#' && c != '"'; };
  if (!std::ranges::all_of(url.target, is_printable)) return std::nullopt;

  const bool bracketed = authority.starts_with('[');
  const std::size_t end = bracketed ? authority.find(']') : std::min(authority.find(':'), authority.size());
  if (end == std::string_view::npos) return std::nullopt;
  url.host = lower_case(authority.substr(bracketed ? 1 : 0, end - (bracketed ? 1 : 0)));
  std::string_view port = authority.substr(end + (bracketed ? 1 : 0));
  const auto is_host = [&](char c) {
    const bool hex = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
    return bracketed ? hex || c == ':' || c == '.' : hex || (c > 'f' && c <= 'z') || c == '-' || c == '.' || c == '_';
  };
  if (url.host.empty() || !std::ranges::all_of(url.host, is_host)) return std::nullopt;
  url.port = url.secure ? 443 : 80;
  if (port.empty()) return url;
  if (port.front() != ':') return std::nullopt;
  port.remove_prefix(1);
  const auto [rest, error] = std::from_chars(port.data(), port.data() + port.size(), url.port);
  const bool is_number = !port.empty() && error == std::errc() && rest == port.data() + port.size() && url.port != 0;
  return is_number ? std::optional(url) : std::nullopt;
}

std::string Url::authority() const {
  const std::string name = host.find(':') == std::string::npos ? host : "[" + host + "]";
  return port == (secure ? 443 : 80) ? name : fmt::format("{}:{}", name, port);
}

unsigned fetch(const Url& url, const FetchOptions& options, const TakeBytes& take) {
  Url next = url;
  for (int redirections = 0; redirections <= kMostRedirections; ++redirections) {
    if (!is_allowed(next, options)) {
      fail(ErrorKind::unsupported, "models may not be fetched from '{}': the server's settings name the hosts",
           printable(next.authority()));
    }
    const Answer answer = Fetching(next, options, take).run();
    if (!is_redirection(answer.status)) return answer.status;
    const bool same_host = answer.location.starts_with('/') && !answer.location.starts_with("//");
    const std::string here = fmt::format("{}://{}", next.secure ? "https" : "http", next.authority());
    std::optional<Url> to = Url::parse(same_host ? here + answer.location : answer.location);
    if (!to || (next.secure && !to->secure)) refuse(next, "sends us to an address that cannot be followed");
    next = std::move(*to);
  }
  refuse(next, "sends us from one address to the next");
}

}  // namespace quarrel::http
