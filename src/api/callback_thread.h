// The thread that a model's callbacks run on, so that a slow one holds up no computing. It begins with the first task
// and ends with its owner, who may be let go of by one of its own tasks. Tasks come one at a time, in order.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace quarrel::api {

class CallbackThread {
 public:
  CallbackThread() : queue_(std::make_shared<Queue>()) {}
  ~CallbackThread() { stop(); }
  CallbackThread(const CallbackThread&) = delete;
  CallbackThread& operator=(const CallbackThread&) = delete;

  // From any thread. The poster may outlive the CallbackThread; it throws then.
  std::function<void(std::function<void()> task)> poster();
  void begin();  // what the first task needs; throws std::system_error
  bool on_thread() const noexcept { return thread_.get_id() == std::this_thread::get_id(); }
  // Waits for the task that runs, unless that is who calls; those that have not begun are dropped.
  void stop() noexcept;

 private:
  struct Queue {
    std::mutex mutex;
    std::condition_variable came;
    std::deque<std::function<void()>> tasks;
    bool stopping = false;
  };
  static void run(Queue& queue);

  std::shared_ptr<Queue> queue_;
  std::mutex beginning_;
  std::thread thread_;
};

}  // namespace quarrel::api
