#include "app/server_client.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <chrono>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/printable.h"

namespace quarrel {

namespace asio = boost::asio;
namespace beast_http = boost::beast::http;
using boost::system::error_code;

namespace {

using Socket = asio::basic_stream_socket<asio::generic::stream_protocol>;
using SecureSocket = asio::ssl::stream<Socket&>;

constexpr std::chrono::milliseconds kLook{50};
constexpr double kPatience = 60.0;  // seconds without a byte
constexpr double kConnectWithin = 5.0;
constexpr std::size_t kMostBody = 16u << 20;
constexpr std::size_t kMostLine = 4u << 20;

// Whoever else could have made the socket could answer in the server's place and read what is asked.
void check_owner(const std::string& path) {
  struct stat there{};
  if (::lstat(path.c_str(), &there) != 0) return;  // connecting says it better
  if (!S_ISSOCK(there.st_mode)) fail(ErrorKind::usage, "'{}' is not a socket", printable(path));
  if (there.st_uid != ::geteuid() || (there.st_mode & 077) != 0) {
    fail(ErrorKind::usage, "'{}' is not used: it belongs to another user, or others may open it", printable(path));
  }
}

void check_peer(Socket& socket, const std::string& path) {
  struct ucred peer{};
  socklen_t size = sizeof(peer);
  const int found = ::getsockopt(socket.native_handle(), SOL_SOCKET, SO_PEERCRED, &peer, &size);
  if (found != 0 || peer.uid != ::geteuid()) {
    fail(ErrorKind::usage, "{} is not used: another user's process listens there", printable(path));
  }
}

// A server that listens on every address is on this machine's own, too.
std::string reachable(const std::string& host) {
  if (host == "0.0.0.0" || host == "localhost") return "127.0.0.1";
  return host == "::" ? "::1" : host;
}

}  // namespace

class ServerClient::Connection {
 public:
  explicit Connection(std::string key) : key_(std::move(key)) {}

  bool open_unix(const std::string& path) {
    check_owner(path);
    asio::local::stream_protocol::socket socket(io_);
    error_code error;
    try {
      socket.connect(asio::local::stream_protocol::endpoint(path), error);
    } catch (const std::exception&) {
      fail(ErrorKind::usage, "'{}' is too long for the path of a socket", printable(path));
    }
    if (error) return false;
    socket_ = Socket(std::move(socket));
    check_peer(socket_, path);
    where_ = path;
    return true;
  }

  bool open_tcp(const ServerAddress& to) {
    const std::string host = reachable(to.host);
    const std::optional<asio::ip::tcp::endpoint> endpoint = find(host, to.port);
    if (!endpoint)
      fail(ErrorKind::usage, "'{}' is neither an address nor a host name that can be found", printable(to.host));
    asio::ip::tcp::socket socket(io_);
    error_code error;
    bool done = false;
    socket.async_connect(*endpoint, [&](error_code result) {
      error = result;
      done = true;
    });
    const auto started = Clock::now();
    wait(done, [&] {
      if (seconds_since(started) > kConnectWithin) socket.close();
    });
    if (error) return false;
    socket_ = Socket(std::move(socket));
    const std::string shown = host.find(':') == std::string::npos ? host : fmt::format("[{}]", host);
    where_ = fmt::format("{}://{}:{}", to.secure ? "https" : "http", shown, to.port);
    if (!endpoint->address().is_loopback()) host_ = fmt::format("{}:{}", shown, to.port);
    if (to.secure) prove(host, to.ca_file);
    return true;
  }

  ServerAnswer call(std::string_view method, std::string_view path, const std::string& body) {
    return exchange(method, path, body, {});
  }

  // With nobody to read lines, an answer of any status has its body in the result.
  ServerAnswer exchange(std::string_view method, std::string_view path, const std::string& body,
                        const Reading& reading) {
    send(method, path, body);
    Parser parser;
    parser.body_limit(boost::none);
    const auto read_head = [&](auto handler) {
      on_stream([&](auto& stream) { beast_http::async_read_header(stream, buffer_, parser, handler); });
    };
    // The head of a streamed answer comes with its first token.
    if (!run(read_head, reading.goes_on)) return {};
    ServerAnswer answer{.status = parser.get().result_int()};
    const bool lines = reading.line && answer.status == 200;
    const auto read_some = [&](auto handler) {
      on_stream([&](auto& stream) { beast_http::async_read_some(stream, buffer_, parser, handler); });
    };
    for (;;) {
      answer.body += std::exchange(parser.get().body(), {});
      if (lines) take_lines(answer.body, reading.line);
      if (answer.body.size() > (lines ? kMostLine : kMostBody)) {
        fail(ErrorKind::io, "the answer of {} is too long", where_);
      }
      if (parser.is_done()) return answer;
      // What comes at once is not waited for, so nobody is asked there.
      if (reading.goes_on && !reading.goes_on()) {
        error_code ignored;
        socket_.close(ignored);
        return answer;
      }
      if (!run(read_some, reading.goes_on)) return answer;
    }
  }

  const std::string& where() const noexcept { return where_; }

 private:
  using Parser = beast_http::response_parser<beast_http::string_body>;

  template <typename Use>
  void on_stream(const Use& use) {
    if (secure_) {
      use(*secure_);
    } else {
      use(socket_);
    }
  }

  std::optional<asio::ip::tcp::endpoint> find(const std::string& host, std::uint16_t port) {
    error_code error;
    const asio::ip::address address = asio::ip::make_address(host, error);
    if (!error) return asio::ip::tcp::endpoint(address, port);
    asio::ip::tcp::resolver resolver(io_);
    asio::ip::tcp::resolver::results_type found;
    bool done = false;
    resolver.async_resolve(host, fmt::format("{}", port),
                           [&](error_code, asio::ip::tcp::resolver::results_type results) {
                             found = std::move(results);
                             done = true;
                           });
    const auto started = Clock::now();
    wait(done, [&] {
      if (seconds_since(started) > kConnectWithin) resolver.cancel();
    });
    if (found.empty()) return std::nullopt;
    return found.begin()->endpoint();
  }

  // The server shows a certificate for the host that somebody we trust has signed.
  void prove(const std::string& host, const std::string& ca_file) {
    error_code error;
    tls_.set_default_verify_paths(error);
    tls_.set_verify_mode(asio::ssl::verify_peer);
    if (!ca_file.empty()) tls_.load_verify_file(ca_file, error);
    if (error)
      fail(ErrorKind::usage, "the certificates in '{}' cannot be read: {}", printable(ca_file), error.message());
    secure_.emplace(socket_, tls_);
    secure_->set_verify_callback(asio::ssl::host_name_verification(host));
    SSL_set_tlsext_host_name(secure_->native_handle(), host.c_str());
    bool done = false;
    secure_->async_handshake(asio::ssl::stream_base::client, [&](error_code result) {
      error = result;
      done = true;
    });
    const auto started = Clock::now();
    wait(done, [&] {
      error_code ignored;
      if (seconds_since(started) > kPatience) socket_.close(ignored);
    });
    if (error) {
      fail(ErrorKind::io, "the server at {} does not prove who it is ({}); --ca-file names certificates to trust",
           where_, error.message());
    }
  }

  // Until the operation is over.
  template <typename Look>
  void wait(const bool& done, const Look& look) {
    while (!done) {
      io_.restart();
      io_.run_for(kLook);
      if (!done) look();
    }
  }

  // False: nobody wants it any more. Throws where it fails.
  template <typename Operation>
  bool run(const Operation& operation, const std::function<bool()>& goes_on) {
    bool done = false;
    bool wanted = true;
    error_code error;
    operation([&](error_code result, std::size_t) {
      error = result;
      done = true;
    });
    const auto started = Clock::now();
    wait(done, [&] {
      wanted = wanted && (goes_on ? goes_on() : seconds_since(started) < kPatience);
      error_code ignored;
      if (!wanted) socket_.close(ignored);
    });
    if (!wanted && goes_on) return false;
    if (!wanted) fail(ErrorKind::io, "the server at {} does not answer", where_);
    if (error) fail(ErrorKind::io, "the connection to the server at {} broke: {}", where_, error.message());
    return true;
  }

  void send(std::string_view method, std::string_view path, const std::string& body) {
    beast_http::request<beast_http::string_body> request;
    request.method_string({method.data(), method.size()});
    request.target({path.data(), path.size()});
    request.set(beast_http::field::host, host_);
    request.set(beast_http::field::user_agent, "quarrel");
    if (!key_.empty()) request.set(beast_http::field::authorization, "Bearer " + key_);
    if (!body.empty()) request.set(beast_http::field::content_type, "application/json");
    request.body() = body;
    request.prepare_payload();
    const auto write = [&](auto handler) {
      on_stream([&](auto& stream) { beast_http::async_write(stream, request, handler); });
    };
    run(write, {});
  }

  static void take_lines(std::string& text, const std::function<void(std::string_view)>& line) {
    std::size_t begin = 0;
    for (std::size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
      line(std::string_view(text).substr(begin, end - begin));
      begin = end + 1;
    }
    text.erase(0, begin);
  }

  const std::string key_;
  std::string where_;
  asio::io_context io_;
  Socket socket_{io_};
  asio::ssl::context tls_{asio::ssl::context::tls_client};
  std::optional<SecureSocket> secure_;
  std::string host_ = "localhost";  // as requests name it
  boost::beast::flat_buffer buffer_{1u << 20};
};

ServerClient::ServerClient(std::unique_ptr<Connection> connection) : connection_(std::move(connection)) {}
ServerClient::~ServerClient() = default;

std::unique_ptr<ServerClient> ServerClient::connect(const ServerAddress& address) {
  auto connection = std::make_unique<Connection>(address.key);
  const bool open = (!address.unix_socket.empty() && connection->open_unix(address.unix_socket)) ||
                    (!address.host.empty() && connection->open_tcp(address));
  if (!open) return nullptr;
  return std::unique_ptr<ServerClient>(new ServerClient(std::move(connection)));
}

ServerAnswer ServerClient::call(std::string_view method, std::string_view path, const std::string& body) {
  return connection_->call(method, path, body);
}

ServerAnswer ServerClient::read_lines(std::string_view path, const std::string& body, const Reading& reading) {
  return connection_->exchange("POST", path, body, reading);
}

const std::string& ServerClient::where() const noexcept { return connection_->where(); }

namespace {

// The member of the body, which may be anything; null: it has none.
nlohmann::json error_in(const ServerAnswer& answer) {
  const auto json = nlohmann::json::parse(answer.body, nullptr, false);
  return json.is_object() && json.contains("error") ? json["error"] : nlohmann::json();
}

std::string text_in(const nlohmann::json& error, const char* member) {
  if (!error.is_object() || !error.contains(member) || !error[member].is_string()) return "";
  return printable(error[member].get<std::string>(), 400);
}

}  // namespace

std::string error_of(const ServerAnswer& answer) {
  const nlohmann::json error = error_in(answer);
  if (error.is_string()) return printable(error.get<std::string>(), 400);
  const std::string message = text_in(error, "message");
  return message.empty() ? fmt::format("it answers with the status {}", answer.status) : message;
}

std::string code_of(const ServerAnswer& answer) { return text_in(error_in(answer), "code"); }

}  // namespace quarrel
