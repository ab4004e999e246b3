#include "server/long_jobs.h"

#include <exception>
#include <system_error>
#include <utility>

namespace quarrel {
namespace {

constexpr std::size_t kMostJobs = 4;

}  // namespace

void LongJobs::stop() {
  const std::scoped_lock lock(mutex_);
  closing_ = true;
  for (Running& job : running_) job.thread.request_stop();
}

void LongJobs::end() {
  stop();
  std::list<Running> ending;  // awaited with the lock open: a job may ask for another
  {
    const std::scoped_lock lock(mutex_);
    ending.swap(running_);
  }
}

bool LongJobs::start(std::function<void(std::stop_token stop)> job) {
  const std::scoped_lock lock(mutex_);
  running_.remove_if([](const Running& each) { return each.done.load(); });
  if (closing_ || running_.size() >= kMostJobs) return false;
  Running& running = running_.emplace_back();
  try {
    running.thread = std::jthread([this, &running, job = std::move(job)](const std::stop_token& stop) {
      try {
        job(stop);
      } catch (const std::exception& error) {
        log_.try_warn("a job of the server failed: {}", error.what());
      }
      running.done = true;
    });
  } catch (const std::system_error&) {
    running_.pop_back();  // there is no thread for it now
    return false;
  } catch (...) {
    running_.pop_back();
    throw;
  }
  return true;
}

}  // namespace quarrel
