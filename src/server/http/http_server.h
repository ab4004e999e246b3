// Listens, reads requests and sends answers: HTTP/1.1 with keep-alive, strictly read and bounded in size, number and
// time. What a request means is the handler's matter. All sockets of the server live in this folder.
//
// Threads: a few of its own; a connection is a coroutine on a strand and has none. The handler is called on one of them
// and must not block; it answers through the Exchange, then or later.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "server/http/exchange.h"
#include "server/http/tls.h"

namespace quarrel::http {

struct Limits {
  std::size_t connections = 10'000;
  std::size_t connections_per_address = 256;      // 0: no limit
  std::size_t connections_per_local_address = 0;  // the same for clients on this machine
  std::uint32_t header_bytes = 16 * 1024;
  std::size_t body_bytes_together = 256 * 1024 * 1024;  // of all bodies that are read, or that somebody keeps
  std::size_t buffered_bytes = 1024 * 1024;             // of an answer that its client does not read
  std::chrono::milliseconds header_time = std::chrono::seconds(10);  // from a request's first byte to its last header
  std::chrono::milliseconds body_time = std::chrono::seconds(60);    // of a WebSocket's message too, once it has begun
  std::chrono::milliseconds idle_time = std::chrono::seconds(75);    // between requests
  std::chrono::milliseconds write_time = std::chrono::seconds(30);   // without any progress
  // What is sent at once may take `write_time` and as long as it takes a client that reads so many bytes a second.
  std::size_t least_read_rate = 16 * 1024;
  // A stream of events in which nothing comes for so long gets a comment: proxies and clients give up on silent ones.
  // 0: it does not.
  std::chrono::milliseconds comment_time = std::chrono::seconds(5);
  std::size_t websocket_message_bytes = 1024 * 1024;  // from a client
  // Without a byte from the client for so long it gets a ping; after as long again it is gone.
  std::chrono::milliseconds websocket_ping_time = std::chrono::seconds(20);
  // Without a message in either direction; 0: forever.
  std::chrono::milliseconds websocket_idle_time = std::chrono::hours(1);
};

struct ServerOptions {
  std::string address = "127.0.0.1";
  std::uint16_t port = 8080;                      // 0: any that is free
  std::vector<std::uint16_t> further_ports = {};  // of the same address
  std::string unix_socket = {};                   // a path: listens there too
  // The path is one of ours, whose folder is made; what is in its way is logged, and the server does without.
  bool unix_socket_optional = false;
  TlsFiles tls = {};  // for the ports; a Unix socket needs none
  int threads = 1;
  Limits limits = {};
};

// What is known of a request before its body is read.
struct Admission {
  std::uint64_t body_bytes = 0;  // the most that its body may have
  unsigned refusal = 0;          // a status: the request is refused with `answer`
  Response answer = {};
  std::shared_ptr<RequestRecord> record = {};  // goes with the request
  std::uint64_t account = 0;                   // whose it is: the bodies of one may have half of the room for all
};

// A request that HTTP itself refuses.
struct Refusal {
  unsigned status = 0;
  std::string message = {};
  // What is known of it: no body, as much of its path as could be read, no record where it was not admitted.
  Request request = {};
};

class HttpServer {
 public:
  struct Handler {
    // Called with a request without its body.
    std::function<Admission(const Request&)> admit = {};
    std::function<void(const std::shared_ptr<Exchange>&)> handle = {};
    // The answer to what HTTP itself refuses.
    std::function<Response(const Refusal&)> refuse = {};
  };

  // Listens when it returns, and answers once it is started. Throws Error(io) that names the address if it cannot.
  HttpServer(const ServerOptions& options, Handler handler, Log& log);
  // Closes all connections at once, and returns when nobody uses one any more.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  void start();

  std::uint16_t port() const noexcept { return ports().front(); }
  // In the order of the options.
  const std::vector<std::uint16_t>& ports() const noexcept;
  std::size_t connections() const noexcept;
  // The same for somebody who may outlive the server: none then.
  std::function<std::size_t()> connection_count() const;
  // Runs a task soon on one of its threads; after the server's end it throws Error(cancelled). It may outlive the
  // server.
  std::function<void(std::function<void()>)> poster() const;

  // Reads certificate and key again, for connections that come from now on. Throws Error(usage): they cannot be used,
  // and those from before stay.
  void reload_tls();

  // Connections that have no request end, the others after their answer. New ones are still answered, once each, so
  // that whoever asks learns that the server is about to end. Returns at once.
  void begin_drain();
  // Returns when no request is left that was admitted, or the time is over: true if none is left.
  bool wait_idle(std::chrono::milliseconds time);

 private:
  class Core;
  std::shared_ptr<Core> core_;
};

}  // namespace quarrel::http
