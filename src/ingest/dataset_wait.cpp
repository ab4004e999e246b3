#include "ingest/dataset_wait.h"

#include <condition_variable>
#include <mutex>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/printable.h"

namespace quarrel {
namespace {

using std::chrono::milliseconds;

[[noreturn]] void stopped() { fail(ErrorKind::cancelled, "waiting for the store was interrupted"); }

}  // namespace

DatasetWait::DatasetWait(LongbowClient& client, std::string dataset, const SendOptions& options, Note note)
    : client_(client), dataset_(std::move(dataset)), options_(options), note_(std::move(note)) {}

void DatasetWait::note(const std::string& sentence) const {
  if (note_) note_(sentence);
}

void DatasetWait::pause(milliseconds time, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any woken;
  std::unique_lock lock(mutex);
  woken.wait_for(lock, stop, time, [] { return false; });
  if (stop.stop_requested()) stopped();
}

// A store that does not answer may come back.
Readiness DatasetWait::ask_patiently(const std::stop_token& stop) const {
  milliseconds time = options_.first_pause;
  for (int tried = 1;; ++tried) {
    try {
      const Readiness now = client_.readiness(dataset_, stop);
      if (now.state != ReadyState::busy) return now;
      return client_.wait_until_ready(dataset_, 0, options_.patience, stop);
    } catch (const LongbowError& error) {
      const bool hopeless = error.after_failure() == AfterFailure::give_up || tried >= options_.attempts;
      if (hopeless || stop.stop_requested()) throw;
      note(error.what());
    }
    pause(time, stop);
    time *= 2;
  }
}

void DatasetWait::give_up() const {
  fail(ErrorKind::busy, "the store of the dataset {} is still taking in rows after {} s; try again later",
       printable(dataset_), options_.patience.count() / 1000);
}

Readiness DatasetWait::until_ready(const std::stop_token& stop) const {
  const Readiness now = ask_patiently(stop);
  if (stop.stop_requested()) stopped();
  if (now.state == ReadyState::busy) give_up();
  return now;
}

// Another program may fill the dataset without end.
Readiness DatasetWait::until_settled(const std::stop_token& stop) const {
  Readiness last = until_ready(stop);
  const Clock::time_point deadline = Clock::now() + options_.patience;
  for (;;) {
    pause(options_.settling, stop);
    Readiness now = until_ready(stop);
    if (now.state == last.state && now.indexed == last.indexed) return now;
    if (Clock::now() >= deadline) give_up();
    last = std::move(now);
  }
}

}  // namespace quarrel
