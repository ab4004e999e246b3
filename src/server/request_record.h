// What becomes of one request, an HTTP exchange or a message of a WebSocket: who asked, for what, when each part of the
// work was done, how it ended. Whoever works on the request fills it in; observers (metrics, log, traces, limits) are
// told when it begins, when tokens come and when it has ended, once each way.
//
// Threads: any. Observers are called by the thread that has the news; what one of them throws is nobody else's matter.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/request.h"
#include "server/caller.h"

namespace quarrel {

class LimitTicket;
struct Route;

struct RequestFacts {
  std::string id = {};
  std::string route = {};        // "POST /v1/embeddings" as the table of routes has it; empty: none was found
  const Route* row = nullptr;    // that row; null: none was found, or it is no request of HTTP
  std::string traceparent = {};  // as it came
  std::string trace = {};        // the same for this request's own span; empty: nobody traces it
  std::string address = {};      // of the client; empty on a Unix socket
  std::shared_ptr<const Caller> caller = std::make_shared<const Caller>();
  std::shared_ptr<LimitTicket> ticket = {};  // what it holds of its key's limits; null: there are none
  std::string model = {};                    // one that is offered; empty: it has not come so far
  Priority priority = Priority::normal;
  bool stream = false;

  std::size_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  unsigned status = 0;             // of the answer's head; 0: there was none; 499: its client left before
  std::string error = {};          // its type; empty: it went well
  std::string code = {};           // of the error, where it has one
  std::string finish_reason = {};  // of the last answer; "done": of vectors

  Clock::time_point begun = Clock::now();
  std::optional<Clock::time_point> acquired = {};   // the model was there
  std::optional<Clock::time_point> submitted = {};  // the prompt was tokenised
  std::optional<Clock::time_point> started = {};    // it left the queue
  std::optional<Clock::time_point> first_token = {}, last_token = {};
  std::optional<Clock::time_point> ended = {};
};

struct ApiError;
// That the request failed, and how. A message of a WebSocket has its status from this, for want of a head.
void note_error(RequestFacts& facts, const ApiError& error);
// That its client left before the answer was whole: no failure of anybody's.
void note_departure(RequestFacts& facts);

// Tokens that came together.
struct TokenBatch {
  std::size_t tokens = 0;
  std::size_t answers = 0;  // that they belong to
  double gap = 0.0;         // seconds since those before them; 0 for the first
};

class RequestObserver {
 public:
  virtual ~RequestObserver() = default;
  // Before it begins: gives it what it is known by.
  virtual void identify(RequestFacts&) {}
  virtual void begun(const RequestFacts&) {}
  // Called under the record's lock, whenever tokens come: it counts, and does not ask the record.
  virtual void tokens(const RequestFacts&, const TokenBatch&) {}
  virtual void ended(const RequestFacts&) {}
};

using RequestObservers = std::vector<std::shared_ptr<RequestObserver>>;

class RequestRecord {
 public:
  RequestRecord(RequestFacts facts, const RequestObservers& observers);
  ~RequestRecord();  // it has ended, if nobody said so before
  RequestRecord(const RequestRecord&) = delete;
  RequestRecord& operator=(const RequestRecord&) = delete;

  RequestFacts facts() const;
  std::shared_ptr<const Caller> caller() const;
  const std::string& id() const noexcept { return id_; }

  template <typename Change>
  void update(Change&& change) {
    const std::scoped_lock lock(mutex_);
    std::forward<Change>(change)(facts_);
  }
  void add_tokens(std::size_t tokens, std::size_t answers = 1);
  // Once; later calls and changes do not count.
  void end();

 private:
  const std::string id_;
  const RequestObservers observers_;
  mutable std::mutex mutex_;
  RequestFacts facts_;  // guarded
};

}  // namespace quarrel
