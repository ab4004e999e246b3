#include "api/callback_thread.h"

#include <utility>

#include "api/errors.h"

namespace quarrel::api {

void CallbackThread::stop() noexcept {
  std::deque<std::function<void()>> dropped;
  {
    const std::scoped_lock lock(queue_->mutex);
    queue_->stopping = true;
    dropped.swap(queue_->tasks);
    queue_->came.notify_all();
  }
  if (!thread_.joinable()) return;
  if (on_thread()) {
    thread_.detach();  // a task of its own let go of the model: it ends when that returns
  } else {
    thread_.join();
  }
}

void CallbackThread::begin() {
  const std::scoped_lock lock(beginning_);
  if (!thread_.joinable()) thread_ = std::thread([queue = queue_] { run(*queue); });
}

std::function<void(std::function<void()> task)> CallbackThread::poster() {
  return [queue = queue_](std::function<void()> task) {
    const std::scoped_lock lock(queue->mutex);
    if (queue->stopping) refuse(ErrorKind::internal, "the model is gone");
    queue->tasks.push_back(std::move(task));
    queue->came.notify_one();
  };
}

void CallbackThread::run(Queue& queue) {
  while (true) {
    std::function<void()> task;
    {
      std::unique_lock lock(queue.mutex);
      queue.came.wait(lock, [&] { return queue.stopping || !queue.tasks.empty(); });
      if (queue.stopping) return;
      task = std::move(queue.tasks.front());
      queue.tasks.pop_front();
    }
    task();
  }
}

}  // namespace quarrel::api
