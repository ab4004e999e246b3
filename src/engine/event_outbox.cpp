#include "engine/event_outbox.h"

#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>

namespace quarrel {

EventOutbox::EventOutbox(std::size_t capacity) {
  waiting_.reserve(capacity);
  batch_.reserve(capacity);
  batch_ids_.reserve(capacity);
}

void EventOutbox::put(std::shared_ptr<EngineJob> job, TokenEvent event) noexcept {
  const std::size_t order = waiting_.size();
  waiting_.push_back({.job = std::move(job), .order = order, .event = std::move(event)});
}

void EventOutbox::deliver(const std::function<void(RequestId)>& failed) noexcept {
  // Mostly there is one sink, and nothing to sort.
  const auto sink = [](const Waiting& each) { return each.job->sink.get(); };
  const bool one = std::ranges::all_of(waiting_, [&](const Waiting& each) { return sink(each) == sink(waiting_[0]); });
  if (!one) {
    std::ranges::sort(waiting_, [&](const Waiting& a, const Waiting& b) {
      return sink(a) != sink(b) ? std::less<>{}(sink(a), sink(b)) : a.order < b.order;
    });
  }
  for (std::size_t begin = 0; begin < waiting_.size();) {
    std::size_t end = begin;
    batch_.clear();
    batch_ids_.clear();
    for (; end < waiting_.size() && sink(waiting_[end]) == sink(waiting_[begin]); ++end) {
      batch_ids_.push_back(waiting_[end].event.request);
      batch_.push_back(std::move(waiting_[end].event));
    }
    try {
      waiting_[begin].job->sink->take(batch_);
    } catch (...) {
      // Whoever cannot hear the rest has no use for it.
      for (const RequestId id : batch_ids_) failed(id);
    }
    begin = end;
  }
  batch_.clear();
  waiting_.clear();
}

}  // namespace quarrel
