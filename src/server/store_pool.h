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

class StorePool {
 public:
  using Job = std::function<void(const std::stop_token& stop)>;

  StorePool(std::size_t threads, std::size_t most_waiting, Log& log)
      : most_threads_(threads), most_waiting_(most_waiting), log_(log) {}
  ~StorePool() { end(); }
  StorePool(const StorePool&) = delete;
  StorePool& operator=(const StorePool&) = delete;

  // Jobs of one lane run one after another; those of an empty one need not. Whoever asks `stop` to end it still has to
  // wait for the job's own end, and one that has not begun is run all the same, so that it can say so. False: too many
  // wait already, or these are the last.
  bool post(const std::string& lane, std::stop_source stop, Job job);
  // Takes no more, and stops all that it has. Returns at once.
  void stop();
  // The same, and awaits them. Not from a job.
  void end();

 private:
  struct Entry {
    std::string lane;
    std::stop_source stop;
    Job job;
    bool running = false;
  };
  void run();
  std::list<Entry>::iterator next();  // that may run now; under the lock

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
