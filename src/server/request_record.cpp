#include "server/request_record.h"

#include "server/api_error.h"
#include "session/generation.h"

namespace quarrel {
namespace {

template <typename Call>
void tell(const RequestObservers& observers, const Call& call) {
  for (const auto& observer : observers) {
    try {
      call(*observer);
    } catch (const std::exception&) {
      // For want of memory: it is a count or a line that is lost, not the request.
    }
  }
}

}  // namespace

void note_error(RequestFacts& facts, const ApiError& error) {
  facts.error = error.type;
  facts.code = error.code;
  if (facts.row == nullptr) facts.status = error.status;
}

void note_departure(RequestFacts& facts) {
  constexpr unsigned kServerError = 500, kClientLeft = 499;  // the latter is no standard, but what proxies log
  if (facts.status == 0) facts.status = facts.error.empty() ? kClientLeft : kServerError;
  const bool unfinished = facts.error.empty() && facts.finish_reason.empty();
  if (unfinished && !facts.model.empty()) facts.finish_reason = reason_name(FinishReason::cancelled);
}

RequestRecord::RequestRecord(RequestFacts facts, const RequestObservers& observers)
    : id_(facts.id), observers_(observers), facts_(std::move(facts)) {
  tell(observers_, [this](RequestObserver& observer) { observer.identify(facts_); });
  tell(observers_, [this](RequestObserver& observer) { observer.begun(facts_); });
}

RequestRecord::~RequestRecord() {
  try {
    end();
  } catch (const std::exception&) {
    // There was no memory to say so.
  }
}

RequestFacts RequestRecord::facts() const {
  const std::scoped_lock lock(mutex_);
  return facts_;
}

std::shared_ptr<const Caller> RequestRecord::caller() const {
  const std::scoped_lock lock(mutex_);
  return facts_.caller;
}

void RequestRecord::add_tokens(std::size_t tokens, std::size_t answers) {
  const Clock::time_point now = Clock::now();
  const std::scoped_lock lock(mutex_);
  TokenBatch batch{.tokens = tokens, .answers = answers};
  if (facts_.last_token) batch.gap = std::chrono::duration<double>(now - *facts_.last_token).count();
  if (!facts_.first_token) facts_.first_token = now;
  facts_.last_token = now;
  facts_.generated_tokens += tokens;
  tell(observers_, [&](RequestObserver& observer) { observer.tokens(facts_, batch); });
}

void RequestRecord::end() {
  RequestFacts seen;
  {
    const std::scoped_lock lock(mutex_);
    if (facts_.ended) return;
    seen = facts_;  // it may take memory, and what has no end can be ended again
    seen.ended = facts_.ended = Clock::now();
  }
  tell(observers_, [&](RequestObserver& observer) { observer.ended(seen); });
}

}  // namespace quarrel
