#include "server/store_pool.h"

#include <algorithm>
#include <exception>
#include <system_error>
#include <utility>

#include "base/thread_name.h"

namespace quarrel {

bool StorePool::post(const std::string& lane, std::stop_source stop, Job job) {
  const std::scoped_lock lock(mutex_);
  if (closing_ || waiting_ >= most_waiting_) return false;
  if (idle_ <= waiting_ && threads_.size() < most_threads_) {
    try {
      threads_.emplace_back([this] { run(); });
    } catch (const std::system_error&) {
      if (threads_.empty()) return false;  // there is no thread for it now
    }
  }
  entries_.push_back({.lane = lane, .stop = std::move(stop), .job = std::move(job)});
  ++waiting_;
  changed_.notify_one();
  return true;
}

std::list<StorePool::Entry>::iterator StorePool::next() {
  return std::ranges::find_if(entries_, [this](const Entry& each) {
    return !each.running && (each.lane.empty() || std::ranges::none_of(entries_, [&](const Entry& other) {
                               return other.running && other.lane == each.lane;
                             }));
  });
}

void StorePool::run() {
  name_thread("quarrel-store");
  std::unique_lock lock(mutex_);
  for (;;) {
    auto entry = next();
    if (entry == entries_.end()) {
      if (closing_ && entries_.empty()) return;
      ++idle_;
      changed_.wait(lock);
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
