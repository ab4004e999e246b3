#include "app/hangups.h"

#include <atomic>

namespace quarrel {
namespace {

// A signal handler can reach nothing else.
std::atomic<bool> came = false;
static_assert(std::atomic<bool>::is_always_lock_free);

}  // namespace

Hangups::Hangups() {
  came = false;
  struct sigaction action = {};
  action.sa_handler = [](int) { came = true; };
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGHUP, &action, &old_);
}

Hangups::~Hangups() { ::sigaction(SIGHUP, &old_, nullptr); }

bool Hangups::take() noexcept { return came.exchange(false); }

}  // namespace quarrel
