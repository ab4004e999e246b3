#include "sched/block_pool.h"

#include <cassert>

#include "base/as_size.h"

namespace quarrel {

BlockPool::BlockPool(std::int32_t size, std::int32_t max_pins) : places_(as_size(size)), max_pins_(max_pins) {
  free_.reserve(places_.size());
  for (std::int32_t id = size - 1; id >= 0; --id) free_.push_back(id);
}

void BlockPool::link(std::int32_t id) noexcept {
  Place& place = at(id);
  List& list = lists_[place.pinned ? 1 : 0];
  place.before = list.last;
  place.after = -1;
  (list.last >= 0 ? at(list.last).after : list.first) = id;
  list.last = id;
  ++list.count;
}

void BlockPool::unlink(std::int32_t id) noexcept {
  Place& place = at(id);
  List& list = lists_[place.pinned ? 1 : 0];
  (place.before >= 0 ? at(place.before).after : list.first) = place.after;
  (place.after >= 0 ? at(place.after).before : list.last) = place.before;
  place.before = place.after = -1;
  --list.count;
}

std::int32_t BlockPool::oldest_idle() const noexcept {
  return lists_[0].first >= 0 ? lists_[0].first : lists_[1].first;
}

BlockPool::Taken BlockPool::take() noexcept {
  if (!free_.empty()) {
    const std::int32_t id = free_.back();
    free_.pop_back();
    at(id).references = 1;
    return {.id = id};
  }
  const std::int32_t id = oldest_idle();
  if (id < 0) return {};
  unlink(id);
  at(id).references = 1;
  forget(id);
  return {.id = id, .evicted = true};
}

void BlockPool::retain(std::int32_t id) noexcept {
  assert(at(id).references > 0 || at(id).cached);
  if (at(id).references++ == 0) unlink(id);
}

void BlockPool::release(std::int32_t id) noexcept {
  Place& place = at(id);
  assert(place.references > 0);
  if (--place.references > 0) return;
  if (place.cached) {
    link(id);
  } else {
    free_.push_back(id);  // its room was reserved at the start
  }
}

void BlockPool::mark_cached(std::int32_t id) noexcept {
  assert(at(id).references > 0 && !at(id).cached);
  at(id).cached = true;
  ++cached_;
}

void BlockPool::forget(std::int32_t id) noexcept {
  Place& place = at(id);
  assert(place.cached);
  if (place.references == 0) unlink(id);
  if (place.pinned) unpin(id);
  place.cached = false;
  --cached_;
  if (place.references == 0) free_.push_back(id);
}

void BlockPool::unpin(std::int32_t id) noexcept {
  at(id).pinned = false;
  --pinned_;
}

bool BlockPool::pin(std::int32_t id) noexcept {
  Place& place = at(id);
  assert(place.cached);
  if (place.pinned) return true;
  if (pinned_ >= max_pins_) {
    const std::int32_t oldest = lists_[1].first;
    if (oldest < 0) return false;
    unlink(oldest);
    unpin(oldest);
    link(oldest);
  }
  if (place.references == 0) unlink(id);
  place.pinned = true;
  ++pinned_;
  if (place.references == 0) link(id);
  return true;
}

bool BlockPool::sound() const {
  std::int32_t held = 0;
  std::int32_t idle = 0;
  std::int32_t cached = 0;
  std::int32_t pinned = 0;
  for (const Place& place : places_) {
    if (place.references < 0 || (place.pinned && !place.cached)) return false;
    held += place.references > 0 ? 1 : 0;
    idle += place.references == 0 && place.cached ? 1 : 0;
    cached += place.cached ? 1 : 0;
    pinned += place.pinned ? 1 : 0;
  }
  for (std::size_t which = 0; which < 2; ++which) {
    std::int32_t count = 0;
    for (std::int32_t id = lists_[which].first; id >= 0 && count <= size(); id = at(id).after) {
      if (at(id).references != 0 || !at(id).cached || at(id).pinned != (which == 1)) return false;
      ++count;
    }
    if (count != lists_[which].count) return false;
  }
  for (const std::int32_t id : free_) {
    if (at(id).references != 0 || at(id).cached) return false;
  }
  return held + idle + free_count() == size() && idle == idle_count() && cached == cached_ && pinned == pinned_ &&
         pinned <= max_pins_;
}

}  // namespace quarrel
