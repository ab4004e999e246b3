#include "server/request_record.h"

namespace quarrel {

RequestRecord::RequestRecord(RequestFacts facts, const RequestObservers& observers)
    : id_(facts.id), observers_(observers), facts_(std::move(facts)) {
  for (const auto& observer : observers_) observer->begun(facts_);
}

RequestRecord::~RequestRecord() { end(); }

RequestFacts RequestRecord::facts() const {
  const std::scoped_lock lock(mutex_);
  return facts_;
}

std::shared_ptr<const Caller> RequestRecord::caller() const {
  const std::scoped_lock lock(mutex_);
  return facts_.caller;
}

void RequestRecord::add_tokens(std::size_t count) {
  const Clock::time_point now = Clock::now();
  const std::scoped_lock lock(mutex_);
  const double gap = facts_.last_token ? std::chrono::duration<double>(now - *facts_.last_token).count() : 0.0;
  if (!facts_.first_token) facts_.first_token = now;
  facts_.last_token = now;
  facts_.generated_tokens += count;
  for (const auto& observer : observers_) observer->tokens(facts_, count, gap);
}

void RequestRecord::end() {
  RequestFacts seen;
  {
    const std::scoped_lock lock(mutex_);
    if (facts_.ended) return;
    facts_.ended = Clock::now();
    seen = facts_;
  }
  for (const auto& observer : observers_) observer->ended(seen);
}

}  // namespace quarrel
