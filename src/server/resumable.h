// Answers that outlive their connection: each keeps its events, numbered from 1, and goes on for a minute after its
// connection was lost. Whoever has its id and is the same caller takes it up after the last event that came, on any
// kind of connection, and gets each event once. A second connection takes it away from the first.
//
// What is kept is bounded for an answer, for a caller and in all; the oldest that nobody reads makes room.
//
// Threads: any. A receiver is called with the answer's lock held, so that events come in order.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "server/answer_event.h"
#include "server/caller.h"

namespace quarrel {

struct ResumeOptions {
  std::chrono::milliseconds kept = std::chrono::seconds(60);  // after its connection was lost, or its end
  std::size_t bytes = 1024 * 1024;                            // of one answer's events
  std::size_t answers = 512;                                  // in all
  std::size_t answers_of_caller = 128;
  std::size_t total_bytes = std::size_t{64} << 20;
  std::size_t bytes_at_once = 512 * 1024;  // about, to a receiver that has much to catch up on
  std::function<Clock::time_point()> now = [] { return Clock::now(); };
};

// How much is left of an answer that is taken up.
enum class Remainder : std::uint8_t { none, some };

class ResumableAnswer {
 public:
  ResumableAnswer(std::string id, std::shared_ptr<const Caller> caller, const ResumeOptions& options,
                  std::shared_ptr<AnswerReceiver> receiver);

  const std::string& id() const noexcept { return id_; }
  const Caller& caller() const noexcept { return *caller_; }

  // Set by whoever wants no more of it: then its end is no failure.
  const std::shared_ptr<std::atomic<bool>>& stopped() const noexcept { return stopped_; }

  // ---- The side that writes ----
  void accepted();
  void waiting(std::size_t ahead);
  void reading(std::size_t read, std::size_t prompt_tokens);
  void take(std::span<const AnswerEvent> events);
  // What ends the work, and holds it until the answer's end; called at most once, and not after that.
  void set_cancel(std::function<void()> cancel);
  // Nothing will be written: what was to do so could not begin. That receiver hears of it from whoever created the
  // answer; whoever takes it up is told why.
  void never_began(const AnswerReceiver* receiver, const std::exception_ptr& why) noexcept;

  // ---- The side that reads ----
  // `receiver` gets all after that event, and nobody else; where nothing is left it is not called. No value: that event
  // is not kept any more, or has never been.
  std::optional<Remainder> attach(std::uint64_t event, std::shared_ptr<AnswerReceiver> receiver);
  // That receiver's connection is gone. An answer whose id nobody can know ends.
  void detach(const AnswerReceiver* receiver, bool id_is_known = true);
  void cancel();
  // Sends the next of what its receiver has not had. A long rest goes in parts, so that it does not outgrow what waits
  // for a client; now and then.
  void send_more();

  // When it is given up; none: somebody reads it.
  std::optional<Clock::time_point> expires() const;
  bool ended() const;
  std::size_t bytes() const;

 private:
  // What is to be called once the lock is released; empty: nothing.
  std::function<void()> take_cancel();
  void lose_receiver();
  void send_next();
  bool forget_oldest();
  std::uint64_t last() const noexcept { return first_ + events_.size() - 1; }

  const std::string id_;
  const std::shared_ptr<const Caller> caller_;
  const ResumeOptions options_;
  const std::shared_ptr<std::atomic<bool>> stopped_ = std::make_shared<std::atomic<bool>>(false);
  mutable std::mutex mutex_;  // guards all below
  std::shared_ptr<AnswerReceiver> receiver_;
  std::optional<Clock::time_point> alone_since_;
  std::deque<AnswerEvent> events_;
  std::uint64_t first_ = 1;  // the number of events_.front()
  std::uint64_t next_ = 1;   // the number of the next for the receiver
  std::uint64_t sent_ = 0;   // the number of the last that some receiver took
  std::size_t bytes_ = 0;
  bool accepted_ = false;
  bool ended_ = false;
  bool cancelled_ = false;
  std::function<void()> cancel_;
};

class ResumableAnswers {
 public:
  explicit ResumableAnswers(ResumeOptions options = {}) : options_(std::move(options)) {}
  // Ends what still runs.
  ~ResumableAnswers();
  ResumableAnswers(const ResumableAnswers&) = delete;
  ResumableAnswers& operator=(const ResumableAnswers&) = delete;

  // Throws ApiError: 429 where the caller has too many, 503 where all have.
  std::shared_ptr<ResumableAnswer> create(std::shared_ptr<const Caller> caller,
                                          std::shared_ptr<AnswerReceiver> receiver);
  // Throws ApiError(404): no such answer, not of this caller, or not from there on; nobody learns which.
  struct Attached {
    std::shared_ptr<ResumableAnswer> answer = {};
    Remainder left = Remainder::some;
  };
  Attached attach(const ResumePoint& point, std::uint64_t caller, std::shared_ptr<AnswerReceiver> receiver);
  // Its end, as if its connection had said `stop`. Throws as `attach` does.
  void stop(const std::string& id, std::uint64_t caller);
  // Sends more of long rests; gives up those whose time is over, or which are too many bytes. Some times a second.
  void look();
  // Forgets what has ended of callers that may not ask any more: nobody can take it up. Now and then.
  void forget(const std::function<bool(const Caller&)>& accepts);
  // All of them.
  void end();
  std::size_t size() const;

 private:
  using Answers = std::map<std::string, std::shared_ptr<ResumableAnswer>, std::less<>>;
  // The oldest that nobody reads, of this caller or of anybody; ended ones first.
  Answers::iterator oldest_alone(std::optional<std::uint64_t> caller);
  void make_room(std::uint64_t caller, std::vector<std::shared_ptr<ResumableAnswer>>& given_up);

  const ResumeOptions options_;
  mutable std::mutex mutex_;
  Answers answers_;  // by id; guarded
};

// Hands an answer's events to it while it is there: a writer that held it would keep it forever.
class ResumableReceiver final : public AnswerReceiver {
 public:
  explicit ResumableReceiver(const std::shared_ptr<ResumableAnswer>& answer) : answer_(answer) {}
  void accepted(const ResumePoint&) override {
    if (const auto answer = answer_.lock()) answer->accepted();
  }
  void waiting(std::size_t ahead) override {
    if (const auto answer = answer_.lock()) answer->waiting(ahead);
  }
  void reading(std::size_t read, std::size_t prompt_tokens) override {
    if (const auto answer = answer_.lock()) answer->reading(read, prompt_tokens);
  }
  bool take(std::span<const AnswerEvent> events, const ResumePoint&) override {
    const auto answer = answer_.lock();
    if (answer != nullptr) answer->take(events);
    return answer != nullptr;
  }
  void replaced() override {}

 private:
  const std::weak_ptr<ResumableAnswer> answer_;
};

}  // namespace quarrel
