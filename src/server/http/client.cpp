#include "server/http/client.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <charconv>
#include <optional>

#include "base/error.h"
#include "base/lower_case.h"
#include "base/printable.h"

namespace quarrel::http {
namespace {

namespace beast = boost::beast;
namespace net = boost::asio;
using boost::system::error_code;
using tcp = net::ip::tcp;

constexpr int kMostRedirections = 5;
constexpr std::size_t kPiece = std::size_t{64} << 10;
constexpr std::size_t kLongestUrl = 4096;

bool is_allowed(const Url& url, const FetchOptions& options) {
  return std::ranges::find(options.allowed_hosts, url.authority()) != options.allowed_hosts.end();
}

[[noreturn]] void refuse(const Url& url, std::string_view why) { fail(ErrorKind::io, "{} {}", url.authority(), why); }

struct Answer {
  unsigned status = 0;
  std::string location = {};
};

// One request on a connection of its own.
class Fetching {
 public:
  Fetching(const Url& url, const FetchOptions& options, const TakeBytes& take)
      : url_(url), options_(options), take_(take) {}

  Answer run() {
    if (!url_.secure) {
      beast::tcp_stream stream(io_);
      connect(stream);
      return ask(stream);
    }
    net::ssl::context tls(net::ssl::context::tls_client);
    tls.set_default_verify_paths();
    tls.set_verify_mode(net::ssl::verify_peer);
    beast::ssl_stream<beast::tcp_stream> stream(io_, tls);
    stream.set_verify_callback(net::ssl::host_name_verification(url_.host));
    if (SSL_set_tlsext_host_name(stream.native_handle(), url_.host.c_str()) != 1) refuse(url_, "has no usable name");
    connect(stream.next_layer());
    const auto shake = [&](auto done) { stream.async_handshake(net::ssl::stream_base::client, done); };
    wait(stream.next_layer(), shake, "does not prove who it is");
    return ask(stream);
  }

 private:
  // Starts something and runs until it has ended.
  template <typename Start>
  void wait(beast::tcp_stream& lowest, const Start& start, std::string_view failure) {
    error_code result = net::error::would_block;
    const std::stop_callback on_stop(options_.stop, [&] {
      net::post(io_, [&] {
        lowest.cancel();
        stopped_ = true;
      });
    });
    start([&result](error_code error, auto&&...) { result = error; });
    io_.restart();
    while (result == net::error::would_block && io_.run_one() > 0) {
    }
    if (stopped_ || options_.stop.stop_requested()) fail(ErrorKind::cancelled, "the pull was cancelled");
    if (result == beast::error::timeout) refuse(url_, "does not answer in time");
    if (result && result != beast::http::error::need_buffer) refuse(url_, failure);
  }

  void connect(beast::tcp_stream& stream) {
    tcp::resolver resolver(io_);
    tcp::resolver::results_type found;
    const auto resolve = [&](auto done) {
      resolver.async_resolve(url_.host, fmt::format("{}", url_.port),
                             [&found, done](error_code error, tcp::resolver::results_type results) {
                               found = std::move(results);
                               done(error);
                             });
    };
    wait(stream, resolve, "cannot be found");
    stream.expires_after(options_.connect_within);
    wait(stream, [&](auto done) { stream.async_connect(found, done); }, "cannot be reached");
  }

  template <typename Stream>
  Answer ask(Stream& stream) {
    namespace http = beast::http;
    beast::tcp_stream& lowest = beast::get_lowest_layer(stream);
    http::request<http::string_body> request(options_.post ? http::verb::post : http::verb::get, url_.target, 11);
    request.set(http::field::host, url_.authority());
    request.set(http::field::user_agent, "quarrel");
    request.set(http::field::connection, "close");
    for (const auto& [name, value] : options_.headers) request.set(name, value);
    if (options_.offset > 0) request.set(http::field::range, fmt::format("bytes={}-", options_.offset));
    if (options_.post) {
      request.body() = *options_.post;
      request.prepare_payload();
    }
    lowest.expires_after(options_.silence);
    wait(lowest, [&](auto done) { http::async_write(stream, request, done); }, "takes no request");

    beast::flat_buffer buffer;
    http::response_parser<http::buffer_body> parser;
    parser.body_limit(boost::none);
    lowest.expires_after(options_.silence);
    wait(lowest, [&](auto done) { http::async_read_header(stream, buffer, parser, done); }, "gives no answer");
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
    std::array<std::byte, kPiece> piece;
    while (!parser.is_done()) {
      auto& body = parser.get().body();
      body.data = piece.data();
      body.size = piece.size();
      lowest.expires_after(options_.silence);
      wait(lowest, [&](auto done) { http::async_read_some(stream, buffer, parser, done); }, "breaks off");
      const std::size_t bytes = piece.size() - parser.get().body().size;
      if (bytes > 0) take_(answer.status, std::span(piece).first(bytes));
    }
    return answer;
  }

  const Url& url_;
  const FetchOptions& options_;
  const TakeBytes& take_;
  net::io_context io_;
  bool stopped_ = false;
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
      fail(ErrorKind::unsupported, "'{}' is no host that models may be fetched from: the server's settings name those",
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
