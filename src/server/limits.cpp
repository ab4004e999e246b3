#include "server/limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace quarrel {
namespace {

constexpr double kMinute = 60.0;
constexpr std::chrono::seconds kLongestPromise{60};
constexpr std::size_t kManyUses = 1024;

// "1m30s", as OpenAI's headers have it.
std::string duration_text(Clock::duration time) {
  const double seconds = std::chrono::duration<double>(time).count();
  if (seconds < 1.0) return fmt::format("{}ms", static_cast<std::int64_t>(std::ceil(seconds * 1000.0)));
  const auto whole = static_cast<std::int64_t>(std::ceil(seconds - 1e-3));
  return whole < 60 ? fmt::format("{}s", whole) : fmt::format("{}m{}s", whole / 60, whole % 60);
}

ApiError too_many(const std::string& message, Clock::duration wait) {
  ApiError error(429, "rate_limit_error", "rate_limit_exceeded", message);
  error.retry_after = std::chrono::ceil<std::chrono::microseconds>(wait);
  return error;
}

}  // namespace

TokenBucket::TokenBucket(std::int64_t per_minute, Clock::time_point now) noexcept
    : capacity_(static_cast<double>(std::max<std::int64_t>(1, per_minute))), level_(capacity_), at_(now) {}

double TokenBucket::level(Clock::time_point now) noexcept {
  if (now > at_) {
    const double seconds = std::chrono::duration<double>(now - at_).count();
    level_ = std::min(capacity_, level_ + seconds * capacity_ / kMinute);
    at_ = now;
  }
  return level_;
}

void TokenBucket::take(double amount, Clock::time_point now) noexcept {
  level_ = std::min(capacity_, level(now) - amount);
}

Clock::duration TokenBucket::time_for(double amount) const noexcept {
  // A little more than it takes, so that whoever waits so long does not find it a hair's breadth short.
  const std::chrono::duration<double> seconds(amount * kMinute / capacity_);
  return std::chrono::ceil<Clock::duration>(seconds) + std::chrono::microseconds(1);
}

Clock::duration TokenBucket::time_until(double amount, Clock::time_point now) noexcept {
  const double lacking = amount - level(now);
  return lacking <= 0.0 ? Clock::duration::zero() : time_for(lacking);
}

// What one key has had.
class KeyUse {
 public:
  KeyUse(const KeyLimits& limits, const Limits::Now& now) : now_(now) { set(limits); }

  // The file of keys may say something else by now. Who has used up a minute's worth has not got another.
  void set(const KeyLimits& limits) {
    const std::scoped_lock lock(mutex_);
    if (limits_ == limits) return;
    renew(requests_, limits.requests_per_minute);
    renew(tokens_, limits.tokens_per_minute);
    limits_ = limits;
  }

  std::optional<ApiError> begin(bool takes_place) {
    const std::scoped_lock lock(mutex_);
    const Clock::time_point now = now_();
    if (takes_place && limits_.concurrency > 0 && running_ >= limits_.concurrency) {
      return too_many(fmt::format("{} requests of this key are running, and more may not run at once", running_),
                      std::chrono::seconds(1));
    }
    if (requests_ && requests_->level(now) < 1.0) {
      return too_many(fmt::format("this key is limited to {} requests a minute", limits_.requests_per_minute),
                      promise(*requests_, 1.0, now));
    }
    if (tokens_ && tokens_->level(now) < 1.0) return out_of_tokens(1.0, now);
    if (requests_) requests_->take(1.0, now);
    if (takes_place) ++running_;
    return std::nullopt;
  }

  std::optional<ApiError> reserve(double before, double tokens, double& reserved) {
    const std::scoped_lock lock(mutex_);
    if (!tokens_) return std::nullopt;
    const Clock::time_point now = now_();
    tokens_->give_back(before, now);
    reserved = 0.0;
    // What is beyond a minute's worth could never be had: it needs a full bucket, and what it takes is owed then.
    const double wanted = std::min(tokens, tokens_->capacity());
    if (tokens_->level(now) < wanted) return out_of_tokens(wanted, now);
    tokens_->take(wanted, now);
    reserved = wanted;
    return std::nullopt;
  }

  void settle(double reserved, double used) {
    const std::scoped_lock lock(mutex_);
    if (tokens_) tokens_->take(used - reserved, now_());
  }

  void end(bool had_place) {
    const std::scoped_lock lock(mutex_);
    if (had_place) --running_;
  }

  http::Headers headers() {
    const std::scoped_lock lock(mutex_);
    const Clock::time_point now = now_();
    http::Headers headers;
    const auto add = [&](std::optional<TokenBucket>& bucket, const char* what) {
      if (!bucket) return;
      const auto left = static_cast<std::int64_t>(std::max(0.0, std::floor(bucket->level(now))));
      headers.emplace_back(fmt::format("x-ratelimit-limit-{}", what),
                           fmt::format("{}", static_cast<std::int64_t>(bucket->capacity())));
      headers.emplace_back(fmt::format("x-ratelimit-remaining-{}", what), fmt::format("{}", left));
      headers.emplace_back(fmt::format("x-ratelimit-reset-{}", what),
                           duration_text(bucket->time_until(bucket->capacity(), now)));
    };
    add(requests_, "requests");
    add(tokens_, "tokens");
    return headers;
  }

  // Nothing would be forgotten with it.
  bool untouched() {
    const std::scoped_lock lock(mutex_);
    const Clock::time_point now = now_();
    const auto full = [&](std::optional<TokenBucket>& bucket) {
      return !bucket || bucket->level(now) >= bucket->capacity();
    };
    return running_ == 0 && full(requests_) && full(tokens_);
  }

 private:
  void renew(std::optional<TokenBucket>& bucket, std::int64_t per_minute) {
    if (per_minute <= 0) {
      bucket.reset();
      return;
    }
    const Clock::time_point now = now_();
    TokenBucket fresh(per_minute, now);
    if (bucket) fresh.take(std::max(0.0, bucket->capacity() - bucket->level(now)), now);
    bucket = fresh;
  }

  ApiError out_of_tokens(double wanted, Clock::time_point now) {
    return too_many(
        fmt::format("this key is limited to {} tokens a minute (prompt and answer)", limits_.tokens_per_minute),
        promise(*tokens_, wanted, now));
  }

  // Each of those who are sent away at once gets a moment of its own to come back at, in which there is enough for it.
  Clock::duration promise(TokenBucket& bucket, double amount, Clock::time_point now) {
    const Clock::time_point earliest = now + bucket.time_until(amount, now);
    promised_ =
        std::min(std::max(earliest, promised_ + bucket.time_for(amount)), std::max(earliest, now + kLongestPromise));
    return promised_ - now;
  }

  const Limits::Now now_;
  std::mutex mutex_;  // guards all below
  KeyLimits limits_;
  std::optional<TokenBucket> requests_, tokens_;
  std::int64_t running_ = 0;
  Clock::time_point promised_ = {};
};

LimitTicket::LimitTicket(std::shared_ptr<KeyUse> use, bool holds_place) noexcept
    : use_(std::move(use)), holds_place_(holds_place) {}

LimitTicket::~LimitTicket() {
  if (reserved_ > 0.0) use_->settle(reserved_, 0.0);
  use_->end(holds_place_);
}

std::optional<ApiError> LimitTicket::reserve(std::int64_t tokens) {
  const std::scoped_lock lock(mutex_);
  if (settled_) return std::nullopt;
  return use_->reserve(reserved_, static_cast<double>(tokens), reserved_);
}

void LimitTicket::settle(std::int64_t tokens) noexcept {
  const std::scoped_lock lock(mutex_);
  if (std::exchange(settled_, true)) return;
  use_->settle(std::exchange(reserved_, 0.0), static_cast<double>(tokens));
}

http::Headers LimitTicket::headers() const { return use_->headers(); }

std::shared_ptr<KeyUse> Limits::use_of(const Caller& caller) {
  const std::scoped_lock lock(mutex_);
  auto found = uses_.find(caller.key);
  if (found == uses_.end()) {
    if (uses_.size() >= kManyUses) std::erase_if(uses_, [](const auto& each) { return each.second->untouched(); });
    found = uses_.emplace(caller.key, std::make_shared<KeyUse>(caller.limits, now_)).first;
  }
  found->second->set(caller.limits);
  return found->second;
}

void Limits::charge_vain_passage(const Caller& caller) {
  const Admitted admitted = admit(caller, Kind::look);
  if (admitted.refusal) throw ApiError(*admitted.refusal);
}

Limits::Admitted Limits::admit(const Caller& caller, Kind kind) {
  if (!caller.limits.any()) return {};
  const std::shared_ptr<KeyUse> use = use_of(caller);
  const bool takes_place = kind == Kind::work;
  std::optional<ApiError> refusal;
  if (kind != Kind::passage) refusal = use->begin(takes_place);
  if (refusal) {
    return {.refusal = std::move(refusal), .headers = use->headers()};
  }
  try {
    return {.ticket = std::make_shared<LimitTicket>(use, takes_place)};
  } catch (...) {
    use->end(takes_place);
    throw;
  }
}

void LimitObserver::ended(const RequestFacts& facts) {
  if (facts.ticket) facts.ticket->settle(static_cast<std::int64_t>(facts.prompt_tokens + facts.generated_tokens));
}

}  // namespace quarrel
