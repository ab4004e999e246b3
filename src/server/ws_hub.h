// What all WebSockets share: who is connected, how many answers each model computes for them, the answers that outlive
// their connections, and the broadcasts of status and metrics. A broadcast shows the server's totals, for whoever has a
// key, and what concerns its receiver's own key and models, nothing of another's. It also ends what runs for a key that
// is not good any more, on whatever kind of connection.
//
// Threads: any; one of its own, from the first WebSocket or answer on, looks at the time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "server/caller.h"
#include "server/fields.h"
#include "server/request_record.h"
#include "server/resumable.h"
#include "server/running_calls.h"
#include "server/watch/figures.h"

namespace quarrel {

class Service;
class SocketSession;

struct SocketOptions {
  double messages_per_second = 50.0;   // that a connection may send for long; after a silence twice as many at once
  std::size_t running = 64;            // answers of a connection at once
  std::size_t running_of_model = 256;  // of a model, for all connections
  std::chrono::milliseconds broadcast = std::chrono::seconds(5);  // of metrics; 0: none
  ResumeOptions resume = {};
};

// Counts the requests of each key.
class Activity final : public RequestObserver {
 public:
  struct Counts {
    std::size_t running = 0;     // that are worked on
    std::uint64_t requests = 0;  // for a model, that have ended
    std::uint64_t tokens = 0;    // generated
  };
  void begun(const RequestFacts& facts) override;
  void tokens(const RequestFacts& facts, const TokenBatch& batch) override;
  void ended(const RequestFacts& facts) override;

  Counts of(std::uint64_t key) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::uint64_t, Counts> keys_;  // guarded; those that were quiet are forgotten when there are many
};

class SocketHub {
 public:
  SocketHub(Service& service, SocketOptions options);
  ~SocketHub();
  SocketHub(const SocketHub&) = delete;
  SocketHub& operator=(const SocketHub&) = delete;

  // No request comes any more: ends the thread and what outlived its connection.
  void end();

  const SocketOptions& options() const noexcept { return options_; }
  const std::shared_ptr<Activity>& activity() const noexcept { return activity_; }
  ResumableAnswers& answers();

  void add(const std::shared_ptr<SocketSession>& session);
  void remove(const SocketSession* session);

  // Work that ends when its caller's key does.
  void watch(std::weak_ptr<RunningCall> call, std::shared_ptr<const Caller> caller);

  // A place among a model's answers, until it is dropped; null: there is none.
  std::shared_ptr<const void> take_place(const std::string& model);

  // {"connected","ready","broadcast","models"}: what this caller may know.
  Json status(const Caller& caller) const;

 private:
  struct Places;
  struct Place;

  using Sessions = std::vector<std::shared_ptr<SocketSession>>;

  Sessions sessions() const;
  void watch_time();
  void run();
  void broadcast(Clock::time_point now);
  Json metrics(const Caller& caller, const MetricsNews& news) const;

  Service& service_;
  const SocketOptions options_;
  const std::shared_ptr<Activity> activity_ = std::make_shared<Activity>();
  const std::shared_ptr<Places> places_;
  ResumableAnswers answers_;
  RunningCalls running_;
  mutable std::mutex mutex_;  // guards all below
  std::map<const SocketSession*, std::weak_ptr<SocketSession>> sessions_;
  std::vector<std::weak_ptr<SocketSession>> newcomers_;  // since the last look; none where nothing is broadcast
  std::condition_variable ending_changed_;
  bool ending_ = false;
  std::thread thread_;
  MetricsFeed feed_;  // its thread's alone
};

}  // namespace quarrel
