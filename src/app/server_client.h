// A connection to a server of this program, for the commands that talk to one: `ps`, `stop`, `run`. HTTP/1.1 over a
// Unix socket, TCP or TLS, one call after the other, all sizes bounded. One thread; a call waits, and asks now and then
// whether it still should.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace quarrel {

struct ServerAddress {
  std::string unix_socket = {};  // empty: TCP alone
  std::string host = {};         // an address or a name; empty: the Unix socket alone
  std::uint16_t port = 0;
  bool secure = false;       // TLS on the port: the certificate is checked against the host and the system's store …
  std::string ca_file = {};  // … and, if it is not empty, against those in this file
  std::string key = {};      // empty: none is sent
};

struct ServerAnswer {
  unsigned status = 0;
  std::string body = {};
};

class ServerClient {
 public:
  // The Unix socket first, where there is one: it must be of the user whose process this is, who alone may open it, and
  // so must be the process behind it; Error(usage) if not. Null: no server is there. Error(io) for one that does not
  // prove who it is.
  static std::unique_ptr<ServerClient> connect(const ServerAddress& address);
  ~ServerClient();
  ServerClient(const ServerClient&) = delete;
  ServerClient& operator=(const ServerClient&) = delete;

  // `body` is JSON, or empty. Throws Error: io where the connection breaks or nothing comes for a while.
  ServerAnswer call(std::string_view method, std::string_view path, const std::string& body = {});

  struct Reading {
    std::function<void(std::string_view line)> line = {};  // of an answer with status 200, without its end
    std::function<bool()> goes_on = {};                    // asked some times a second; false: the connection is closed
  };
  // The lines of an answer as they come. An answer with another status has its body in the result, and no lines.
  ServerAnswer read_lines(std::string_view path, const std::string& body, const Reading& reading);

  const std::string& where() const noexcept;  // for people

 private:
  class Connection;
  explicit ServerClient(std::unique_ptr<Connection> connection);
  std::unique_ptr<Connection> connection_;
};

// "the model 'x' is not there": what an answer that is no success says of itself, in one bounded line.
std::string error_of(const ServerAnswer& answer);

// "queue_full": the error's code in such an answer; empty: it has none.
std::string code_of(const ServerAnswer& answer);

}  // namespace quarrel
