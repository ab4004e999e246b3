#include "server/http/transport.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace quarrel::http {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr std::size_t kMostDropped = 1024 * 1024;
constexpr std::chrono::milliseconds kTryAgain{50};

}  // namespace

Transport::Transport(Socket socket, const std::shared_ptr<TlsContext>& tls) : socket_(std::move(socket)) {
  if (tls != nullptr) tls_.emplace(socket_, *tls);
}

asio::awaitable<bool> Transport::handshake() {
  if (!tls_) co_return true;
  error_code error;
  co_await tls_->async_handshake(asio::ssl::stream_base::server, asio::redirect_error(asio::use_awaitable, error));
  co_return !error;
}

bool Transport::peer_has_ended() noexcept {
  pollfd state{.fd = socket_.native_handle(), .events = POLLRDHUP, .revents = 0};
  return ::poll(&state, 1, 0) == 1 && (state.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0;
}

asio::awaitable<void> Transport::end_sending() {
  error_code error;
  // TLS says that this is the end, so that nobody takes a cut connection for a whole answer.
  if (tls_) co_await tls_->async_shutdown(asio::redirect_error(asio::use_awaitable, error));
  error = {};
  socket_.shutdown(asio::socket_base::shutdown_send, error);
  std::array<char, 4096> dropped;
  std::size_t count = 0;
  while (!error && count < kMostDropped) {
    count += co_await socket_.async_read_some(asio::buffer(dropped), asio::redirect_error(asio::use_awaitable, error));
  }
}

void Transport::cancel() noexcept {
  error_code ignored;
  socket_.cancel(ignored);
}

void Transport::close() noexcept {
  error_code ignored;
  socket_.shutdown(asio::socket_base::shutdown_both, ignored);
  socket_.close(ignored);
}

void Transport::reset() noexcept {
  error_code ignored;
  socket_.set_option(asio::socket_base::linger(true, 0), ignored);
  socket_.close(ignored);
}

void Deadline::set(std::weak_ptr<void> owner, std::chrono::milliseconds time) {
  passed_ = false;
  wait(std::move(owner), time, ++number_);
}

// A read that has just completed cannot be cancelled, and the next one begins at once: so it is tried until one is.
void Deadline::wait(std::weak_ptr<void> owner, std::chrono::milliseconds time, unsigned number) {
  timer_.expires_after(time);
  timer_.async_wait([this, owner = std::move(owner), number](error_code error) {
    const std::shared_ptr<void> held = owner.lock();
    if (error || held == nullptr || number != number_) return;
    passed_ = true;
    transport_.cancel();
    wait(owner, kTryAgain, number);
  });
}

void Deadline::clear() {
  ++number_;
  timer_.cancel();
}

}  // namespace quarrel::http
