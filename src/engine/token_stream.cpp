#include "engine/token_stream.h"

#include <utility>

namespace quarrel {

std::optional<TokenEvent> TokenStream::take() {
  if (events_.empty()) return std::nullopt;
  TokenEvent event = std::move(events_.front());
  events_.pop_front();
  return event;
}

std::optional<TokenEvent> TokenStream::next() {
  std::unique_lock lock(mutex_);
  came_.wait(lock, [&] { return !events_.empty() || unfinished_ == 0; });
  return take();
}

std::optional<TokenEvent> TokenStream::next_within(std::chrono::microseconds time) {
  std::unique_lock lock(mutex_);
  came_.wait_for(lock, time, [&] { return !events_.empty() || unfinished_ == 0; });
  return take();
}

bool TokenStream::done() const {
  const std::scoped_lock lock(mutex_);
  return events_.empty() && unfinished_ == 0;
}

void TokenStream::put(TokenEvent event) {
  {
    const std::scoped_lock lock(mutex_);
    if (event.kind == TokenEvent::Kind::finished) --unfinished_;
    events_.push_back(std::move(event));
  }
  came_.notify_all();
}

}  // namespace quarrel
