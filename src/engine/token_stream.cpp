#include "engine/token_stream.h"

#include <new>
#include <utility>

namespace quarrel {

std::optional<TokenEvent> TokenStream::take() {
  if (events_.empty()) {
    if (unfinished_ > 0 || lost_endings_ == 0) return std::nullopt;
    --lost_endings_;
    TokenEvent end{{.kind = SchedEvent::Kind::finished, .reason = FinishReason::failed}};
    end.error = "there was no memory to report how this answer ended";
    return end;
  }
  TokenEvent event = std::move(events_.front());
  events_.pop_front();
  return event;
}

std::optional<TokenEvent> TokenStream::next() {
  std::unique_lock lock(mutex_);
  came_.wait(lock, [&] { return has_something(); });
  return take();
}

std::optional<TokenEvent> TokenStream::next_within(std::chrono::microseconds time) {
  std::unique_lock lock(mutex_);
  came_.wait_for(lock, time, [&] { return has_something(); });
  return take();
}

bool TokenStream::done() const {
  const std::scoped_lock lock(mutex_);
  return events_.empty() && unfinished_ == 0 && lost_endings_ == 0;
}

bool TokenStream::put(std::span<TokenEvent> events) noexcept {
  bool all = true;
  {
    const std::scoped_lock lock(mutex_);
    for (TokenEvent& event : events) {
      const bool ends = event.kind == TokenEvent::Kind::finished;
      if (ends) --unfinished_;
      try {
        events_.push_back(std::move(event));
      } catch (const std::bad_alloc&) {
        all = false;
        if (ends) ++lost_endings_;
      }
    }
  }
  came_.notify_all();
  return all;
}

}  // namespace quarrel
