#include "server/http/exchange.h"

#include <exception>
#include <utility>

namespace quarrel::http {

Exchange::Exchange(Request request, std::size_t most_buffered, std::function<void()> wake)
    : request_(std::move(request)), wake_(std::move(wake)), backlog_(most_buffered) {}

// One call for however much gathers until the connection takes it.
void Exchange::wake(std::unique_lock<std::mutex>& lock) {
  if (std::exchange(woken_, true)) return;
  lock.unlock();
  try {
    wake_();
  } catch (...) {
    lock.lock();
    woken_ = false;  // the next call tries again
    throw;
  }
}

void Exchange::set_head(Response head) {
  for (const auto& callback : on_head_) callback(head);
  head_ = std::move(head);
  has_head_ = true;
}

void Exchange::on_head(std::function<void(Response& head)> callback) {
  const std::scoped_lock lock(mutex_);
  on_head_.push_back(std::move(callback));
}

void Exchange::respond(Response response) {
  std::unique_lock lock(mutex_);
  if (state_ == State::finished && has_head_) return wake(lock);  // the connection may not know yet, as below
  if (state_ != State::waiting) return;
  set_head(std::move(response));
  whole_ = true;
  state_ = State::finished;
  wake(lock);
}

void Exchange::begin(Response head) {
  std::unique_lock lock(mutex_);
  if (state_ != State::waiting) return;
  set_head(std::move(head));
  state_ = State::streaming;
  wake(lock);
}

bool Exchange::write(std::string_view piece) {
  std::unique_lock lock(mutex_);
  if (unheard_) {
    break_off(lock);
    return false;
  }
  if (state_ != State::streaming) return false;
  if (!backlog_.takes(pieces_.size(), piece.size())) {
    break_off(lock);
    return false;
  }
  pieces_ += piece;
  wake(lock);
  return true;
}

void Exchange::finish() {
  std::unique_lock lock(mutex_);
  if (state_ != State::streaming) return;
  state_ = State::finished;
  wake(lock);
}

void Exchange::abandon() {
  std::unique_lock lock(mutex_);
  if (state_ == State::closed && !unheard_) return;
  if (state_ == State::finished) return wake(lock);  // the connection may not know yet, where it could not be told
  break_off(lock);
}

// The connection ends, whatever it waits for. Where it cannot be told now the next call tells it.
void Exchange::break_off(std::unique_lock<std::mutex>& lock) {
  broken_ = true;
  unheard_ = true;
  std::exception_ptr failure;
  try {
    close(lock);
  } catch (...) {
    failure = std::current_exception();
  }
  wake_();
  lock.lock();
  unheard_ = false;
  lock.unlock();
  if (failure) std::rethrow_exception(failure);
}

void Exchange::upgrade(std::string protocol, MakeWebSocketHandler make_handler) {
  if (const UpgradeFault fault = upgrade_fault(request_); fault.status != 0) {
    Response answer{.status = fault.status, .body = "{\"error\":\"" + fault.message + "\"}"};
    if (fault.status == 426) answer.headers = {{"Upgrade", "websocket"}, {"Sec-WebSocket-Version", "13"}};
    return respond(std::move(answer));
  }
  std::unique_lock lock(mutex_);
  if (state_ != State::waiting) return;
  set_head({.status = 101, .content_type = {}});
  upgrade_ = std::move(make_handler);
  protocol_ = std::move(protocol);
  state_ = State::finished;
  wake(lock);
}

bool Exchange::begun() const {
  const std::scoped_lock lock(mutex_);
  return state_ != State::waiting;
}

void Exchange::on_closed(std::function<void()> callback) {
  {
    const std::scoped_lock lock(mutex_);
    if (state_ != State::closed) {
      on_closed_.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

void Exchange::keep(std::shared_ptr<void> work) {
  const std::scoped_lock lock(mutex_);
  kept_.push_back(std::move(work));
}

void Exchange::keep_with_body(std::shared_ptr<void> share) {
  const std::scoped_lock lock(mutex_);
  kept_with_body_ = std::move(share);
}

std::shared_ptr<void> Exchange::body_share() const {
  const std::scoped_lock lock(mutex_);
  return kept_with_body_;
}

void Exchange::release_body() {
  request_.body = {};
  std::shared_ptr<void> share;  // let go of without the lock
  const std::scoped_lock lock(mutex_);
  share.swap(kept_with_body_);
}

Exchange::Output Exchange::take() {
  const std::scoped_lock lock(mutex_);
  woken_ = false;
  Output output{.has_head = std::exchange(has_head_, false),
                .head = std::move(head_),
                .whole = whole_,
                .pieces = std::exchange(pieces_, {}),
                .finished = state_ == State::finished,
                .broken = broken_,
                .upgrade = std::exchange(upgrade_, {}),
                .protocol = std::exchange(protocol_, {})};
  head_ = {};
  return output;
}

void Exchange::close() {
  std::unique_lock lock(mutex_);
  if (state_ == State::finished) return;
  close(lock);
}

void Exchange::close(std::unique_lock<std::mutex>& lock) {
  if (std::exchange(state_, State::closed) == State::closed) {
    lock.unlock();
    return;
  }
  const std::vector<std::function<void()>> callbacks = std::exchange(on_closed_, {});
  lock.unlock();
  std::exception_ptr failure;
  for (const auto& callback : callbacks) {
    try {
      callback();
    } catch (...) {
      failure = std::current_exception();  // the others hear of it all the same
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace quarrel::http
