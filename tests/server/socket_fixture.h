// What tests of sockets share: a client that sends and reads bytes, a server with a handler of the test's own.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/http/http_server.h"

namespace quarrel::http {

struct NoLog : Log {
  void write(LogLevel, std::string_view) override {}
};

class Client {
 public:
  explicit Client(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    const timeval limit{.tv_sec = 60, .tv_usec = 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  ~Client() { leave(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool connected() const { return connected_; }
  void send(std::string_view bytes) const {
    EXPECT_EQ(::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  // False: the connection has ended.
  bool try_send(std::string_view bytes) const { return ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0; }
  // Until these words have come, or the end. What came together with them and stands behind them is read next.
  std::string read_until(std::string_view words) const {
    std::size_t found = 0;
    char piece[4096];
    while ((found = surplus_.find(words)) == std::string::npos) {
      const ssize_t count = ::recv(socket_, piece, sizeof piece, 0);
      if (count <= 0) return std::exchange(surplus_, {});
      surplus_.append(piece, static_cast<std::size_t>(count));
    }
    std::string text = surplus_.substr(0, found + words.size());
    surplus_.erase(0, text.size());
    return text;
  }
  std::string read_all() const { return read_until("no answer has these words"); }
  // So many bytes, or fewer at the end.
  std::string read_exactly(std::size_t count) const {
    std::string text(count, '\0');
    std::size_t done = surplus_.copy(text.data(), count);
    surplus_.erase(0, done);
    while (done < count) {
      const ssize_t got = ::recv(socket_, text.data() + done, count - done, 0);
      if (got <= 0) break;
      done += static_cast<std::size_t>(got);
    }
    text.resize(done);
    return text;
  }
  // What has come is dropped. True: the connection was reset, which no client takes for a whole answer.
  bool ends_with_reset() const {
    surplus_.clear();
    char piece[4096];
    ssize_t count = 0;
    while ((count = ::recv(socket_, piece, sizeof piece, 0)) > 0) continue;
    return count < 0 && errno == ECONNRESET;
  }
  // Goes without a word.
  void reset() {
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    leave();
  }
  // No more will be sent.
  void end_sending() const { ::shutdown(socket_, SHUT_WR); }
  void leave() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }

 private:
  int socket_;
  bool connected_ = false;
  mutable std::string surplus_;  // has come, and nobody has read it
};

inline constexpr std::string_view kGet = "GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n";

class SocketTest : public testing::Test {
 protected:
  // Its handlers use what derived fixtures have, which ends before this one's members.
  void TearDown() override { server_.reset(); }
  void serve(std::function<void(const std::shared_ptr<Exchange>&)> handle, Limits limits = {}, int threads = 2,
             std::vector<std::uint16_t> further_ports = {}) {
    make(std::move(handle), limits, threads, std::move(further_ports));
    server_->start();
  }
  // The same without answering yet: clients can connect.
  void make(std::function<void(const std::shared_ptr<Exchange>&)> handle, Limits limits = {}, int threads = 2,
            std::vector<std::uint16_t> further_ports = {}) {
    HttpServer::Handler handler{.admit = admit_, .handle = std::move(handle), .refuse = refuse_};
    server_ = std::make_unique<HttpServer>(
        ServerOptions{.port = 0, .further_ports = std::move(further_ports), .threads = threads, .limits = limits},
        std::move(handler), *log_);
  }
  static void say_yes(const std::shared_ptr<Exchange>& exchange) { exchange->respond({.body = "yes"}); }

  std::function<Admission(const Request&)> admit_ = [](const Request&) { return Admission{.body_bytes = 100}; };
  std::function<Response(const Refusal&)> refuse_ = [](const Refusal& refusal) {
    return Response{.status = refusal.status, .content_type = "text/plain", .body = refusal.message};
  };
  std::unique_ptr<Log> log_ = std::make_unique<NoLog>();
  std::unique_ptr<HttpServer> server_;
};

}  // namespace quarrel::http
