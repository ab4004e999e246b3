// What keys may have a minute and at once, and what they have had. A request takes a ticket when it is admitted; the
// ticket holds its place, reserves the tokens that it may need and settles for those that it got.
//
// Threads: any. Time comes from the one clock that it was made with.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "base/clock.h"
#include "server/api_error.h"
#include "server/caller.h"
#include "server/http/message.h"
#include "server/request_record.h"

namespace quarrel {

// So much a minute, with a minute's worth in store: whoever was quiet may have that at once, and then as it flows in.
class TokenBucket {
 public:
  TokenBucket(std::int64_t per_minute, Clock::time_point now) noexcept;

  double level(Clock::time_point now) noexcept;  // below 0: more was used than was thought
  void take(double amount, Clock::time_point now) noexcept;
  void give_back(double amount, Clock::time_point now) noexcept { take(-amount, now); }
  Clock::duration time_until(double amount, Clock::time_point now) noexcept;  // until it has that; 0: it does
  Clock::duration time_for(double amount) const noexcept;                     // that flows in within it
  double capacity() const noexcept { return capacity_; }

 private:
  double capacity_;
  double level_;
  Clock::time_point at_;
};

class KeyUse;

class LimitTicket {
 public:
  explicit LimitTicket(std::shared_ptr<KeyUse> use, bool holds_place) noexcept;
  ~LimitTicket();  // gives the place back, and what was reserved and never settled
  LimitTicket(const LimitTicket&) = delete;
  LimitTicket& operator=(const LimitTicket&) = delete;

  // So many tokens may be needed. In place of what was reserved before; an error: there are not so many left.
  std::optional<ApiError> reserve(std::int64_t tokens);
  // So many were.
  void settle(std::int64_t tokens) noexcept;
  // OpenAI's x-ratelimit-…, as it stands now.
  http::Headers headers() const;

 private:
  const std::shared_ptr<KeyUse> use_;
  const bool holds_place_;
  std::mutex mutex_;       // guards all below
  double reserved_ = 0.0;  // tokens
  bool settled_ = false;
};

class Limits {
 public:
  using Now = std::function<Clock::time_point()>;
  explicit Limits(Now now = Clock::now) : now_(std::move(now)) {}

  enum class Kind : std::uint8_t {
    work,  // computes an answer: counts among those at once
    look,  // is over in a moment
    // Was charged before, or will be: what takes up an answer that runs or ends it, and what only opens the way for
    // questions. Never refused, for whoever waits outside loses what runs, or cannot stop it.
    passage,
  };
  struct Admitted {
    std::shared_ptr<LimitTicket> ticket = {};  // null: it was refused, or its key has no limits
    std::optional<ApiError> refusal = {};
    http::Headers headers = {};  // of a refusal
  };
  // One more request.
  Admitted admit(const Caller& caller, Kind kind);
  // A passage that led nowhere counts as a look after all. Throws ApiError(429) where the key has none left.
  void charge_vain_passage(const Caller& caller);

 private:
  std::shared_ptr<KeyUse> use_of(const Caller& caller);

  const Now now_;
  std::mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<KeyUse>> uses_;  // guarded; by Caller::key
};

// Settles tickets when their requests have ended.
class LimitObserver : public RequestObserver {
 public:
  void ended(const RequestFacts& facts) override;
};

}  // namespace quarrel
