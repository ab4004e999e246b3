// The bytes of one connection: its socket, and TLS over it where the listener has a certificate. Whoever reads and
// writes does not see the difference. Used on its connection's strand alone.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

namespace quarrel::http {

using Strand = boost::asio::strand<boost::asio::io_context::executor_type>;
using Socket = boost::asio::basic_stream_socket<boost::asio::generic::stream_protocol, Strand>;
using TlsContext = boost::asio::ssl::context;

class Transport {
 public:
  using executor_type = Strand;

  // Without a context the bytes go as they are. A context may be exchanged for new connections at any time: each keeps
  // what it began with.
  Transport(Socket socket, const std::shared_ptr<TlsContext>& tls);

  executor_type get_executor() noexcept { return socket_.get_executor(); }
  Socket& socket() noexcept { return socket_; }
  bool is_open() const noexcept { return socket_.is_open(); }
  bool encrypted() const noexcept { return tls_.has_value(); }

  // Before anything else; true at once without TLS.
  boost::asio::awaitable<bool> handshake();

  template <typename Buffers, typename Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    if (tls_) return tls_->async_read_some(buffers, std::forward<Token>(token));
    return socket_.async_read_some(buffers, std::forward<Token>(token));
  }
  template <typename Buffers, typename Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    if (tls_) return tls_->async_write_some(buffers, std::forward<Token>(token));
    return socket_.async_write_some(buffers, std::forward<Token>(token));
  }

  // The client has closed its connection or its sending side, whatever it sent before that and nobody has read.
  bool peer_has_ended() noexcept;

  // Nothing more will be sent. Reads and drops what still comes, up to a bound, until the client has closed too:
  // closing at once would reset the connection, and the client might never see the last bytes.
  boost::asio::awaitable<void> end_sending();

  // What is being read or written ends with an error.
  void cancel() noexcept;
  void close() noexcept;
  // The same as an error for the client, which may lose what it has not read yet.
  void reset() noexcept;

 private:
  Socket socket_;
  std::optional<boost::asio::ssl::stream<Socket&>> tls_;
};

// Ends what a transport does when a time is over. Beast's own timeouts close the socket, and then nothing can be said
// any more.
class Deadline {
 public:
  explicit Deadline(Transport& transport) : transport_(transport), timer_(transport.get_executor()) {}

  // `owner` holds this object and the transport.
  void set(std::weak_ptr<void> owner, std::chrono::milliseconds time);
  void clear();
  bool passed() const noexcept { return passed_; }

 private:
  void wait(std::weak_ptr<void> owner, std::chrono::milliseconds time, unsigned number);

  Transport& transport_;
  boost::asio::steady_timer timer_;
  unsigned number_ = 0;
  bool passed_ = false;
};

}  // namespace quarrel::http
