#include "server/long_jobs.h"

#include <exception>
#include <system_error>
#include <utility>

namespace quarrel {
namespace {

constexpr std::size_t kMostJobs = 4;

}  // namespace

LongJobs::~LongJobs() {
  std::list<Running> ending;
  {
    const std::scoped_lock lock(mutex_);
    closing_ = true;
    ending.swap(running_);
  }
  for (Running& job : ending) job.thread.request_stop();
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
        log_.warn("a job of the server failed: {}", error.what());
      }
      running.done = true;
    });
  } catch (const std::system_error&) {
    running_.pop_back();  // there is no thread for it now
    return false;
  }
  return true;
}

}  // namespace quarrel
