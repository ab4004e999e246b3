// Holds threads up at one place, until it is opened. Copies are the same gate, and whoever may be held has one of its
// own: a test may end before a thread has gone on.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>

namespace quarrel::test {

class Gate {
 public:
  explicit Gate(bool open = false) { state_->open = open; }

  void pass() const {
    const std::shared_ptr<State> state = state_;
    std::unique_lock lock(state->mutex);
    state->reached = state->reached || !state->open;
    state->changed.notify_all();
    state->changed.wait(lock, [&] { return state->open; });
  }
  // Until somebody was held.
  void wait_until_reached() const {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [this] { return state_->reached; });
  }
  void open() const { set(true); }
  void close() const { set(false); }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool open = false, reached = false;
  };
  void set(bool open) const {
    const std::scoped_lock lock(state_->mutex);
    state_->open = open;
    state_->changed.notify_all();
  }

  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace quarrel::test
