// Lets a coroutine sleep until there is something to do. Used on one strand alone; others post `wake` there.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "server/http/transport.h"

namespace quarrel::http {

class Waker {
 public:
  explicit Waker(const Strand& strand) : timer_(strand, boost::asio::steady_timer::time_point::max()) {}

  // Whoever sleeps goes on; the next one to sleep does so at once if nobody does now.
  void wake() {
    woken_ = true;
    timer_.cancel();
  }
  boost::asio::awaitable<void> sleep() {
    boost::system::error_code cancelled;
    if (!woken_) co_await timer_.async_wait(boost::asio::redirect_error(boost::asio::use_awaitable, cancelled));
    woken_ = false;
  }

 private:
  boost::asio::steady_timer timer_;  // never expires
  bool woken_ = false;
};

}  // namespace quarrel::http
