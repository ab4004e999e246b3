#include "server/store_pool.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <system_error>
#include <utility>

#include "base/thread_name.h"

namespace quarrel {
namespace {

// How long one that waits, and was stopped, may wait until somebody looks.
constexpr std::chrono::milliseconds kLook{100};

}  // namespace

bool StorePool::post(StoreLane lane, std::stop_source stop, Job job) {
  const std::scoped_lock lock(mutex_);
  if (closing_ || waiting_ >= most_waiting_) return false;
  if (count(lane.name, false) >= std::max<std::size_t>(most_waiting_ / 4, 1)) return false;
  if (idle_ <= waiting_ && threads_.size() < most_threads_) {
    try {
      threads_.emplace_back([this] { run(); });
    } catch (const std::system_error&) {
      if (threads_.empty()) return false;  // there is no thread for it now
    }
  }
  entries_.push_back({.lane = std::move(lane), .stop = std::move(stop), .job = std::move(job)});
  ++waiting_;
  changed_.notify_one();
  return true;
}

std::size_t StorePool::count(const std::string& lane, bool running) const {
  return static_cast<std::size_t>(std::ranges::count_if(
      entries_, [&](const Entry& each) { return each.running == running && each.lane.name == lane; }));
}

std::size_t StorePool::running_of_store(const std::string& store) const {
  return static_cast<std::size_t>(
      std::ranges::count_if(entries_, [&](const Entry& each) { return each.running && each.lane.store == store; }));
}

bool StorePool::may_run(const Entry& entry) const {
  if (entry.running) return false;
  if (entry.stop.stop_requested() && !closing_) return true;  // it takes a moment; at the end all are stopped
  const bool in_turn = entry.lane.order == StoreLane::Order::in_turn;
  const std::size_t at_once = in_turn ? 1 : std::max<std::size_t>(most_threads_ / 2, 1);
  if (count(entry.lane.name, true) >= at_once) return false;
  return running_of_store(entry.lane.store) < std::max<std::size_t>(most_threads_ - 1, 1);
}

void StorePool::run() {
  name_thread("quarrel-store");
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto entry = std::ranges::find_if(entries_, [this](const Entry& each) { return may_run(each); });
    if (entry == entries_.end()) {
      if (closing_ && entries_.empty()) return;
      ++idle_;
      if (waiting_ > 0) {
        changed_.wait_for(lock, kLook);  // nobody tells us of a stop
      } else {
        changed_.wait(lock);
      }
      --idle_;
      continue;
    }
    entry->running = true;
    --waiting_;
    lock.unlock();
    try {
      entry->job(entry->stop.get_token());
    } catch (const std::exception& error) {
      log_.try_warn("a call to a vector store failed: {}", error.what());
    }
    entry->job = nullptr;  // what it holds ends without the lock
    lock.lock();
    entries_.erase(entry);
    changed_.notify_all();  // its lane is free
  }
}

void StorePool::stop() {
  std::vector<std::stop_source> stops;
  {
    const std::scoped_lock lock(mutex_);
    closing_ = true;
    for (const Entry& each : entries_) stops.push_back(each.stop);
    changed_.notify_all();
  }
  for (std::stop_source& each : stops) each.request_stop();  // its callbacks are somebody else's code
}

void StorePool::end() {
  stop();
  std::vector<std::jthread> threads;
  {
    const std::scoped_lock lock(mutex_);
    threads.swap(threads_);
  }
}

}  // namespace quarrel
