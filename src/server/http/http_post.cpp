#include "server/http/http_post.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

namespace quarrel::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using asio::ip::tcp;

// Each part begins the next; all of them under the one limit that the stream has.
class PostCall {
 public:
  explicit PostCall(const Post& request) : stream_(context_) {
    message_.method(beast::http::verb::post);
    message_.target(request.target);
    message_.version(11);
    message_.set(beast::http::field::host, request.host);
    message_.set(beast::http::field::content_type, request.content_type);
    message_.set(beast::http::field::connection, "close");
    message_.body() = request.body;
    message_.prepare_payload();
    parser_.header_limit(16 * 1024);
    parser_.body_limit(64 * 1024);
  }

  unsigned run(const Post& request) {
    boost::system::error_code error;
    tcp::resolver resolver(context_);
    std::string host = request.host;
    if (host.starts_with('[')) host = host.substr(1, host.find(']') - 1);
    const tcp::resolver::results_type places = resolver.resolve(host, request.port, error);
    if (error) return 0;
    stream_.expires_after(request.time_limit);
    stream_.async_connect(places, [this](beast::error_code failed, const tcp::endpoint&) {
      if (!failed) write();
    });
    context_.run();
    return status_;
  }

 private:
  void write() {
    beast::http::async_write(stream_, message_, [this](beast::error_code failed, std::size_t) {
      if (!failed) read();
    });
  }
  void read() {
    beast::http::async_read_header(stream_, buffer_, parser_, [this](beast::error_code failed, std::size_t) {
      if (!failed) status_ = parser_.get().result_int();
    });
  }

  asio::io_context context_;
  beast::tcp_stream stream_;
  beast::http::request<beast::http::string_body> message_;
  beast::flat_buffer buffer_{32 * 1024};
  beast::http::response_parser<beast::http::string_body> parser_;
  unsigned status_ = 0;
};

}  // namespace

PostResult post(const Post& request) {
  PostCall call(request);
  return {.status = call.run(request)};
}

}  // namespace quarrel::http
