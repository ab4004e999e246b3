// Lets a coroutine sleep until there is something to do. Used on one strand alone; others post `wake` there.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <utility>

#include "server/http/transport.h"

namespace quarrel::http {

class Waker {
 public:
  explicit Waker(const Strand& strand) : timer_(strand) {}

  // Whoever sleeps goes on; the next one to sleep does so at once if nobody does now.
  void wake() {
    woken_ = true;
    timer_.cancel();
  }
  // False: so much time has passed, and nobody woke it. 0: it sleeps until somebody does.
  boost::asio::awaitable<bool> sleep(std::chrono::milliseconds most = {}) {
    using Timer = boost::asio::steady_timer;
    if (!woken_) {
      timer_.expires_at(most.count() > 0 ? Timer::clock_type::now() + most : Timer::time_point::max());
      boost::system::error_code cancelled;
      co_await timer_.async_wait(boost::asio::redirect_error(boost::asio::use_awaitable, cancelled));
    }
    co_return std::exchange(woken_, false);
  }

 private:
  boost::asio::steady_timer timer_;
  bool woken_ = false;
};

}  // namespace quarrel::http
