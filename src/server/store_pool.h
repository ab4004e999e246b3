// Threads for calls that block: to a vector store, which may take its time. Few threads and a bounded queue, so that
// whoever comes when it is full is refused, and no thread of texts or sockets ever waits for a store.
//
// Threads: any.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <list>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"

namespace quarrel {

// Whose jobs they are: a store's that is slow shall not take all places from the others.
struct StoreLane {
  enum class Order { in_turn, at_once };
  std::string name = {};
  std::string store = {};  // that they ask; it has other lanes too
  Order order = Order::in_turn;
};

class StorePool {
 public:
  using Job = std::function<void(const std::stop_token& stop)>;

  // Of those that may wait, a quarter may be of one lane.
  StorePool(std::size_t threads, std::size_t most_waiting, Log& log)
      : most_threads_(threads), most_waiting_(most_waiting), log_(log) {}
  ~StorePool() { end(); }
  StorePool(const StorePool&) = delete;
  StorePool& operator=(const StorePool&) = delete;

  // Jobs of one lane run one after another, or on half of the threads at most, those of one store on all but one.
  // Whoever asks `stop` to end it still has to wait for the job's own end; one that has not begun is run all the same,
  // soon and out of turn, so that it can say so. False: too many wait already, of all lanes or of this one, or these
  // are the last.
  bool post(StoreLane lane, std::stop_source stop, Job job);
  // Takes no more, and stops all that it has. Returns at once.
  void stop();
  // The same, and awaits them. Not from a job.
  void end();

 private:
  struct Entry {
    StoreLane lane;
    std::stop_source stop;
    Job job;
    bool running = false;
  };
  void run();
  // Under the lock:
  std::size_t count(const std::string& lane, bool running) const;
  std::size_t running_of_store(const std::string& store) const;
  bool may_run(const Entry& entry) const;

  const std::size_t most_threads_, most_waiting_;
  Log& log_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::list<Entry> entries_;  // those that run among those that wait, in the order they came
  std::size_t waiting_ = 0, idle_ = 0;
  bool closing_ = false;
  std::vector<std::jthread> threads_;  // made when they are first needed
};

}  // namespace quarrel
