#include "server/resumable.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace quarrel {
namespace {

std::size_t bytes_of(const AnswerEvent& event) noexcept {
  return sizeof(AnswerEvent) + event.text.size() + (event.end != nullptr ? event.end->sources.size() : 0);
}

// On its way to a client, about: names, numbers and escapes come to it.
std::size_t sent_bytes_of(const AnswerEvent& event) noexcept {
  constexpr std::size_t kRest = 256;
  return kRest + 2 * event.text.size() + (event.end != nullptr ? event.end->sources.size() : 0);
}

}  // namespace

ResumableAnswer::ResumableAnswer(std::string id, std::shared_ptr<const Caller> caller, const ResumeOptions& options,
                                 std::shared_ptr<AnswerReceiver> receiver)
    : id_(std::move(id)), caller_(std::move(caller)), options_(options), receiver_(std::move(receiver)) {}

void ResumableAnswer::set_cancel(std::function<void()> cancel) {
  {
    const std::scoped_lock lock(mutex_);
    if (ended_) return;
    cancel_ = cancel;
    if (!cancelled_) return;
  }
  cancel();
}

void ResumableAnswer::never_began(const AnswerReceiver* receiver, const std::exception_ptr& why) noexcept {
  try {
    detach(receiver, false);
    const AnswerEvent event = failure_event(api_error(why));
    take(std::span(&event, 1));
  } catch (const std::exception&) {
    return;  // its time will pass
  }
}

void ResumableAnswer::accepted() {
  const std::scoped_lock lock(mutex_);
  accepted_ = true;
  if (receiver_ != nullptr) receiver_->accepted({.id = id_});
}

void ResumableAnswer::waiting(std::size_t ahead) {
  const std::scoped_lock lock(mutex_);
  if (receiver_ != nullptr) receiver_->waiting(ahead);
}

void ResumableAnswer::reading(std::size_t read, std::size_t prompt_tokens) {
  const std::scoped_lock lock(mutex_);
  if (receiver_ != nullptr) receiver_->reading(read, prompt_tokens);
}

void ResumableAnswer::take(std::span<const AnswerEvent> events) {
  std::function<void()> cancel;
  {
    const std::scoped_lock lock(mutex_);
    if (ended_) return;
    const bool has_all = next_ > last();  // who is behind catches up in parts, some times a second and no faster
    for (const AnswerEvent& event : events) {
      bytes_ += bytes_of(event);
      events_.push_back(event);
      ended_ = ended_ || event.end != nullptr;
    }
    if (ended_) cancel_ = {};
    if (has_all) send_next();
    // Nobody can have the whole of it any more.
    if (!forget_oldest() && !ended_) cancel = take_cancel();
  }
  if (cancel) cancel();
}

void ResumableAnswer::send_more() {
  const std::scoped_lock lock(mutex_);
  if (next_ <= last()) send_next();
}

void ResumableAnswer::send_next() {
  if (receiver_ == nullptr || next_ > last()) return;
  if (next_ < first_) {  // more came than is kept, faster than it was sent
    const AnswerEvent event =
        failure_event({503, "unavailable_error", "answer_not_found", "more came than is kept of an answer"});
    receiver_->take(std::span(&event, 1), {.id = id_, .event = next_ - 1});
    return lose_receiver();
  }
  const auto begin = events_.begin() + static_cast<std::ptrdiff_t>(next_ - first_);
  auto end = begin;
  for (std::size_t bytes = 0; end != events_.end() && (end == begin || bytes < options_.bytes_at_once); ++end) {
    bytes += sent_bytes_of(*end);
  }
  const std::vector<AnswerEvent> part(begin, end);
  if (!receiver_->take(part, {.id = id_, .event = next_ - 1})) return lose_receiver();
  next_ += part.size();
  sent_ = std::max(sent_, next_ - 1);
  if (ended_ && next_ > last()) lose_receiver();  // it has all there will be
}

// False: one is forgotten that was not sent.
bool ResumableAnswer::forget_oldest() {
  while (bytes_ > options_.bytes && events_.size() > 1) {
    bytes_ -= bytes_of(events_.front());
    events_.pop_front();
    ++first_;
  }
  return first_ <= (receiver_ != nullptr ? next_ : sent_ + 1);
}

void ResumableAnswer::lose_receiver() {
  receiver_.reset();
  alone_since_ = options_.now();
}

// It stays where it is too: it holds the work, which has an end to report.
std::function<void()> ResumableAnswer::take_cancel() {
  return std::exchange(cancelled_, true) ? std::function<void()>() : cancel_;
}

std::optional<Remainder> ResumableAnswer::attach(std::uint64_t event, std::shared_ptr<AnswerReceiver> receiver) {
  const std::scoped_lock lock(mutex_);
  if (event > last() || event + 1 < first_) return std::nullopt;
  if (ended_ && event == last()) return Remainder::none;
  if (receiver_ != nullptr) receiver_->replaced();
  receiver_ = std::move(receiver);
  alone_since_.reset();
  next_ = event + 1;
  if (accepted_) receiver_->accepted({.id = id_, .event = event});
  send_next();
  return Remainder::some;
}

void ResumableAnswer::detach(const AnswerReceiver* receiver, bool id_is_known) {
  std::function<void()> cancel;
  {
    const std::scoped_lock lock(mutex_);
    if (receiver_.get() != receiver) return;
    lose_receiver();
    if (!id_is_known && !ended_) cancel = take_cancel();
  }
  if (cancel) cancel();
}

void ResumableAnswer::cancel() {
  std::function<void()> cancel;
  {
    const std::scoped_lock lock(mutex_);
    if (ended_) return;
    cancel = take_cancel();
  }
  if (cancel) cancel();
}

std::optional<Clock::time_point> ResumableAnswer::expires() const {
  const std::scoped_lock lock(mutex_);
  if (!alone_since_) return std::nullopt;
  return *alone_since_ + options_.kept;
}

bool ResumableAnswer::ended() const {
  const std::scoped_lock lock(mutex_);
  return ended_;
}

std::size_t ResumableAnswer::bytes() const {
  const std::scoped_lock lock(mutex_);
  return bytes_;
}

ResumableAnswers::~ResumableAnswers() { end(); }

void ResumableAnswers::end() {
  Answers answers;
  {
    const std::scoped_lock lock(mutex_);
    answers.swap(answers_);
  }
  for (const auto& [id, answer] : answers) answer->cancel();
}

std::size_t ResumableAnswers::size() const {
  const std::scoped_lock lock(mutex_);
  return answers_.size();
}

ResumableAnswers::Answers::iterator ResumableAnswers::oldest_alone(std::optional<std::uint64_t> caller) {
  auto best = answers_.end();
  std::pair<bool, Clock::time_point> best_age;
  for (auto each = answers_.begin(); each != answers_.end(); ++each) {
    if (caller && each->second->caller().key != *caller) continue;
    const std::optional<Clock::time_point> expires = each->second->expires();
    if (!expires) continue;
    const std::pair age{!each->second->ended(), *expires};
    if (best != answers_.end() && !(age < best_age)) continue;
    best = each;
    best_age = age;
  }
  return best;
}

void ResumableAnswers::make_room(std::uint64_t caller, std::vector<std::shared_ptr<ResumableAnswer>>& given_up) {
  const auto count =
      std::ranges::count_if(answers_, [&](const auto& each) { return each.second->caller().key == caller; });
  const bool own = static_cast<std::size_t>(count) >= options_.answers_of_caller;
  if (!own && answers_.size() < options_.answers) return;
  // A caller that has too many makes room among its own.
  const auto oldest = oldest_alone(own ? std::optional(caller) : std::nullopt);
  if (oldest == answers_.end()) {
    if (own) throw ApiError(429, "rate_limit_error", "rate_limit_exceeded", "too many answers with 'resume' run");
    throw ApiError(503, "unavailable_error", "queue_full", "too many answers with 'resume' run");
  }
  given_up.push_back(oldest->second);
  answers_.erase(oldest);
}

std::shared_ptr<ResumableAnswer> ResumableAnswers::create(std::shared_ptr<const Caller> caller,
                                                          std::shared_ptr<AnswerReceiver> receiver) {
  const std::uint64_t key = caller->key;
  auto answer = std::make_shared<ResumableAnswer>(new_resume_id(), std::move(caller), options_, std::move(receiver));
  std::vector<std::shared_ptr<ResumableAnswer>> given_up;
  {
    const std::scoped_lock lock(mutex_);
    make_room(key, given_up);
    answers_.emplace(answer->id(), answer);
  }
  for (const auto& each : given_up) each->cancel();
  return answer;
}

ResumableAnswers::Attached ResumableAnswers::attach(const ResumePoint& point, std::uint64_t caller,
                                                    std::shared_ptr<AnswerReceiver> receiver) {
  std::shared_ptr<ResumableAnswer> answer;
  {
    const std::scoped_lock lock(mutex_);
    const auto found = answers_.find(point.id);
    if (found != answers_.end() && found->second->caller().key == caller) answer = found->second;
  }
  std::optional<Remainder> left;
  if (answer != nullptr) left = answer->attach(point.event, std::move(receiver));
  if (!left) {
    throw ApiError(404, "not_found_error", "answer_not_found", "there is no answer to take up at that place", "resume");
  }
  return {.answer = std::move(answer), .left = *left};
}

void ResumableAnswers::stop(const std::string& id, std::uint64_t caller) {
  std::shared_ptr<ResumableAnswer> answer;
  {
    const std::scoped_lock lock(mutex_);
    const auto found = answers_.find(id);
    if (found != answers_.end() && found->second->caller().key == caller) answer = found->second;
  }
  if (answer == nullptr) {
    throw ApiError(404, "not_found_error", "answer_not_found", "there is no such answer to stop", "Last-Event-ID");
  }
  *answer->stopped() = true;
  answer->cancel();
}

void ResumableAnswers::look() {
  std::vector<std::shared_ptr<ResumableAnswer>> given_up;
  {
    const std::scoped_lock lock(mutex_);
    const Clock::time_point now = options_.now();
    std::size_t bytes = 0;
    for (auto each = answers_.begin(); each != answers_.end();) {
      each->second->send_more();
      const std::optional<Clock::time_point> expires = each->second->expires();
      if (expires && *expires <= now) {
        given_up.push_back(each->second);
        each = answers_.erase(each);
      } else {
        bytes += each->second->bytes();
        ++each;
      }
    }
    while (bytes > options_.total_bytes) {
      const auto oldest = oldest_alone(std::nullopt);
      if (oldest == answers_.end()) break;
      bytes -= oldest->second->bytes();
      given_up.push_back(oldest->second);
      answers_.erase(oldest);
    }
  }
  for (const auto& each : given_up) each->cancel();
}

// Whoever still runs for them is ended elsewhere, and has an end to write down first.
void ResumableAnswers::forget(const std::function<bool(const Caller&)>& accepts) {
  std::vector<std::shared_ptr<ResumableAnswer>> ended;
  {
    const std::scoped_lock lock(mutex_);
    for (const auto& [id, answer] : answers_) {
      if (answer->ended() && answer->expires()) ended.push_back(answer);
    }
  }
  std::erase_if(ended, [&](const auto& answer) { return accepts(answer->caller()); });
  const std::scoped_lock lock(mutex_);
  for (const auto& answer : ended) answers_.erase(answer->id());
}

}  // namespace quarrel
