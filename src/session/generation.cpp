#include "session/generation.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

#include "base/as_size.h"
#include "base/clock.h"
#include "base/error.h"
#include "session/best_of.h"
#include "session/refusal.h"
#include "text/channel_filter.h"
#include "text/text_stream.h"

namespace quarrel {
namespace {

double seconds_between(std::optional<Clock::time_point> start, std::optional<Clock::time_point> end) {
  return start && end ? std::max(0.0, std::chrono::duration<double>(*end - *start).count()) : 0.0;
}

}  // namespace

// What the engine calls and the listener hears of. It lives until both the owner and the engine have let go.
class Generation::State final : public EventSink, public std::enable_shared_from_this<State> {
 public:
  State(std::shared_ptr<LoadedModel> model, const Ask& ask, EngineRequest request, Listener listener, Post post);

  void submit();
  void take(std::span<TokenEvent> events) override;

  void cancel(FinishReason reason) {
    const auto model = running_model();
    if (model && id_.load() != 0) model->engine().cancel(id_.load(), reason);
  }
  void cancel_answer(std::int32_t answer, FinishReason reason) {
    const auto model = running_model();
    if (model && id_.load() != 0 && !chooses_) model->engine().cancel_branch(id_.load(), answer, reason);
  }
  // Nobody listens any more.
  void close() {
    closed_ = true;
    if (!done_) cancel(FinishReason::cancelled);
  }

  bool done() const noexcept { return done_; }
  Usage usage() const;
  std::uint64_t seed() const noexcept { return seed_; }
  std::span<const TokenId> prompt() const noexcept { return prompt_; }

 private:
  // An answer as it grows. Only the thread that processes events touches it.
  struct Branch {
    std::optional<TextStream> text = {};
    std::optional<ChannelFilter> channels = {};  // of a model that does not only answer
    std::vector<GenerationEvent> kept = {};      // where only the best are wanted
  };

  // Null: it has ended.
  std::shared_ptr<LoadedModel> running_model() const {
    const std::scoped_lock lock(mutex_);
    return model_;
  }
  void release_model();
  void note_times(const TokenEvent& event);
  bool keep(std::span<TokenEvent> events) noexcept;
  void process() noexcept;
  bool next_batch();
  void translate(TokenEvent& event);
  void translate_token(TokenEvent& event);
  void end_branch(std::int32_t branch, FinishReason reason, const std::string& error);
  void put(GenerationEvent event);
  void report_best();
  void report() noexcept;
  void fail_open_branches() noexcept;

  const std::int32_t answers_;
  const bool chooses_;  // the best of several are wanted
  const bool show_special_;
  const std::uint64_t seed_;
  const std::vector<TokenId> prompt_;
  std::vector<TokenId> stop_tokens_;
  std::optional<EngineRequest> request_;  // until it is submitted
  Listener listener_;                     // empty after the last event
  const Post post_;
  std::atomic<RequestId> id_ = 0;
  std::atomic<bool> closed_ = false;
  std::atomic<bool> done_ = false;

  mutable std::mutex mutex_;
  // Let go before the listener hears of the end: the engine holds this for a moment longer, and whoever waited for the
  // end shall be the one who ends the model. Only the thread that processes events changes it.
  std::shared_ptr<LoadedModel> model_;
  std::vector<TokenEvent> pending_;
  bool processing_ = false;  // somebody does, or was asked to
  bool lost_ = false;        // there was no memory for an event
  Usage usage_;
  std::optional<Clock::time_point> submitted_at_, started_at_, first_at_, last_at_;

  // Only the thread that processes events touches these.
  std::deque<Branch> branches_;
  BestOf ends_;
  std::vector<TokenEvent> batch_;
  bool batch_lost_ = false;  // something that belongs to it
  std::vector<GenerationEvent> out_;
};

Generation::State::State(std::shared_ptr<LoadedModel> model, const Ask& ask, EngineRequest request, Listener listener,
                         Post post)
    : answers_(ask.answers),
      chooses_(branch_count(ask) > ask.answers),
      show_special_(ask.show_special),
      seed_(request.sampling.seed),
      prompt_(request.prompt),
      stop_tokens_(request.stop_tokens),
      request_(std::move(request)),
      listener_(std::move(listener)),
      post_(std::move(post)),
      model_(std::move(model)),
      ends_(branch_count(ask)) {
  std::ranges::sort(stop_tokens_);
  usage_.prompt_tokens = prompt_.size();
  const auto stops = std::make_shared<const StopStrings>(ask.stop);
  for (std::int32_t i = 0; i < branch_count(ask); ++i) {
    Branch& branch = branches_.emplace_back();
    if (const Tokenizer* tokenizer = model_->tokenizer()) {
      branch.text.emplace(*tokenizer, stops, true, ask.show_special);
      if (!ask.show_special) branch.channels = ChannelFilter::after(*tokenizer, prompt_);
    }
  }
  out_.reserve(branches_.size());  // so that ends can always be reported
}

void Generation::State::submit() {
  {
    const std::scoped_lock lock(mutex_);
    submitted_at_ = Clock::now();
  }
  EngineRequest request = std::move(*request_);
  request_.reset();
  const auto model = running_model();  // it may have ended before this returns
  const SubmitResult result = model->engine().submit(std::move(request), shared_from_this());
  require_accepted(result);
  id_ = result.id;
}

void Generation::State::note_times(const TokenEvent& event) {
  if (event.kind == TokenEvent::Kind::started) {
    started_at_ = event.at;
    usage_.cached_tokens = as_size(std::max(event.cached, 0));
  }
  if (event.kind == TokenEvent::Kind::token && !first_at_) first_at_ = event.at;
  last_at_ = event.at;
}

// False: there was no memory for them.
bool Generation::State::keep(std::span<TokenEvent> events) noexcept {
  try {
    // Twice as much each time: a reader that is late must not cost the engine a copy of all for every token.
    const std::size_t wanted = pending_.size() + events.size();
    if (wanted > pending_.capacity()) pending_.reserve(std::max(2 * pending_.capacity(), wanted));
    for (TokenEvent& event : events) pending_.push_back(std::move(event));
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void Generation::State::take(std::span<TokenEvent> events) {
  id_ = events.front().request;  // `submit` may not have returned yet
  {
    const std::scoped_lock lock(mutex_);
    for (const TokenEvent& event : events) note_times(event);
    if (!keep(events)) lost_ = true;
    if (std::exchange(processing_, true)) return;
  }
  if (!post_) return process();
  try {
    post_([self = shared_from_this()] { self->process(); });
  } catch (...) {
    process();
  }
}

// What has come and was not processed yet is in `batch_`. False: nothing has.
bool Generation::State::next_batch() {
  const std::scoped_lock lock(mutex_);
  batch_.clear();
  batch_.swap(pending_);
  batch_lost_ = std::exchange(lost_, false);
  processing_ = !batch_.empty() || batch_lost_;
  return processing_;
}

void Generation::State::process() noexcept {
  const auto self = shared_from_this();  // the listener may let go of everything else
  while (next_batch()) {
    try {
      for (TokenEvent& event : batch_) translate(event);
      if (batch_lost_) fail_open_branches();
    } catch (const std::exception&) {
      fail_open_branches();
    }
    report();
  }
}

// There is no memory: what is open ends here, and needs none.
void Generation::State::fail_open_branches() noexcept {
  cancel(FinishReason::failed);
  // Ends that were not reported yet are still to be; all else goes, so that there is room for the other ends.
  if (chooses_) {
    out_.clear();
  } else {
    std::erase_if(out_, [](const GenerationEvent& event) { return event.kind != GenerationEvent::Kind::finished; });
  }
  for (std::int32_t branch = 0; std::cmp_less(branch, branches_.size()); ++branch) {
    if (!chooses_ && !ends_.open(branch)) continue;
    ends_.end(branch, FinishReason::failed);
    if (chooses_ && branch >= answers_) continue;
    GenerationEvent& event = out_.emplace_back();  // there is room for one of each
    event.kind = GenerationEvent::Kind::finished;
    event.answer = branch;
    event.branch = branch;
    event.reason = FinishReason::failed;
  }
}

void Generation::State::translate(TokenEvent& event) {
  GenerationEvent result{.answer = event.branch};
  switch (event.kind) {
    case TokenEvent::Kind::waiting:
      result.kind = GenerationEvent::Kind::waiting;
      result.ahead = event.ahead;
      out_.push_back(std::move(result));
      break;
    case TokenEvent::Kind::started:
      result.kind = GenerationEvent::Kind::started;
      result.cached = event.cached;
      out_.push_back(std::move(result));
      break;
    case TokenEvent::Kind::prompt_read:
      result.kind = GenerationEvent::Kind::prompt_read;
      result.read = event.read;
      out_.push_back(std::move(result));
      break;
    case TokenEvent::Kind::prompt_score:
      result.kind = GenerationEvent::Kind::prompt_score;
      result.token = event.sample.id;
      result.logprob = event.sample.logprob;
      result.top = std::move(event.sample.top);
      out_.push_back(std::move(result));
      break;
    case TokenEvent::Kind::token: translate_token(event); break;
    case TokenEvent::Kind::shifted:
      if (!ends_.open(event.branch)) break;
      result.kind = GenerationEvent::Kind::shifted;
      result.dropped = event.dropped;
      put(std::move(result));
      break;
    case TokenEvent::Kind::finished:
      // One that has ended by a stop string ended with that, however the engine did meanwhile.
      if (ends_.open(event.branch)) end_branch(event.branch, event.reason, event.error);
      break;
    case TokenEvent::Kind::prompt_vector:
    case TokenEvent::Kind::vector: break;  // not asked for
  }
}

void Generation::State::translate_token(TokenEvent& event) {
  if (!ends_.take(event)) return;
  {
    const std::scoped_lock lock(mutex_);
    ++usage_.generated_tokens;
  }
  Branch& branch = branches_[as_size(event.branch)];
  GenerationEvent result{.kind = GenerationEvent::Kind::piece,
                         .answer = event.branch,
                         .token = event.sample.id,
                         .logprob = event.sample.logprob,
                         .top = std::move(event.sample.top)};
  const bool is_stop = std::ranges::binary_search(stop_tokens_, event.sample.id);
  const bool is_shown =
      !is_stop || (show_special_ && model_->tokenizer() != nullptr && model_->tokenizer()->is_hidden(event.sample.id));
  result.hidden = branch.channels && !branch.channels->take(event.sample.id);
  if (branch.text && is_shown && !result.hidden) result.text = branch.text->push(event.sample.id);
  put(std::move(result));
  if (!branch.text || !branch.text->stopped()) return;
  end_branch(event.branch, FinishReason::stop, {});
  model_->engine().cancel_branch(event.request, event.branch, FinishReason::stop);
}

void Generation::State::end_branch(std::int32_t number, FinishReason reason, const std::string& error) {
  Branch& branch = branches_[as_size(number)];
  std::string rest = branch.text ? branch.text->finish() : std::string();
  if (!rest.empty()) put({.kind = GenerationEvent::Kind::piece, .answer = number, .text = std::move(rest)});
  put({.kind = GenerationEvent::Kind::finished,
       .answer = number,
       .reason = reason,
       .error = reason == FinishReason::cancelled ? error : failure_text(reason, error)});
  ends_.end(number, reason);
  if (chooses_ && ends_.done()) report_best();
}

void Generation::State::put(GenerationEvent event) {
  event.branch = event.answer;
  if (chooses_) {
    branches_[as_size(event.answer)].kept.push_back(std::move(event));
  } else {
    out_.push_back(std::move(event));
  }
}

void Generation::State::report_best() {
  const std::vector<std::int32_t> best = ends_.best(answers_);
  for (std::size_t place = 0; place < best.size(); ++place) {
    for (GenerationEvent& event : branches_[as_size(best[place])].kept) {
      event.answer = static_cast<std::int32_t>(place);
      out_.push_back(std::move(event));
    }
  }
  for (Branch& branch : branches_) branch.kept.clear();
}

void Generation::State::release_model() {
  std::shared_ptr<LoadedModel> released;
  const std::scoped_lock lock(mutex_);
  released.swap(model_);
}

void Generation::State::report() noexcept {
  if (ends_.done()) release_model();
  if (listener_ && !closed_ && !out_.empty()) {
    try {
      listener_(out_);
    } catch (...) {
      closed_ = true;
      cancel(FinishReason::cancelled);
    }
  }
  out_.clear();
  if (!ends_.done() && !closed_) return;
  listener_ = nullptr;  // it may hold what holds this
  done_ = true;
}

Usage Generation::State::usage() const {
  const std::scoped_lock lock(mutex_);
  Usage result = usage_;
  result.queue_seconds = seconds_between(submitted_at_, started_at_ ? started_at_ : last_at_);
  result.prompt_seconds = seconds_between(started_at_, first_at_ ? first_at_ : last_at_);
  result.generate_seconds = seconds_between(first_at_, last_at_);
  return result;
}

Generation Generation::start(std::shared_ptr<LoadedModel> model, const Ask& ask, Listener listener, Post post) {
  EngineRequest request = request_for(ask, *model);
  auto state = std::make_shared<State>(std::move(model), ask, std::move(request), std::move(listener), std::move(post));
  state->submit();
  return Generation(std::move(state));
}

Generation::~Generation() {
  if (state_) state_->close();
}

Generation::Generation(Generation&&) noexcept = default;

Generation& Generation::operator=(Generation&& other) noexcept {
  if (this != &other) {
    if (state_) state_->close();
    state_ = std::move(other.state_);
  }
  return *this;
}

void Generation::cancel(FinishReason reason) {
  if (state_) state_->cancel(reason);
}

void Generation::cancel_answer(std::int32_t answer, FinishReason reason) {
  if (state_) state_->cancel_answer(answer, reason);
}

bool Generation::done() const { return !state_ || state_->done(); }
Usage Generation::usage() const { return state_ ? state_->usage() : Usage{}; }
std::uint64_t Generation::seed() const noexcept { return state_ ? state_->seed() : 0; }
std::span<const TokenId> Generation::prompt() const noexcept {
  return state_ ? state_->prompt() : std::span<const TokenId>{};
}

std::string_view reason_name(FinishReason reason) noexcept {
  switch (reason) {
    case FinishReason::stop: return "stop";
    case FinishReason::length: return "length";
    case FinishReason::context: return "context";
    case FinishReason::cancelled: return "cancelled";
    case FinishReason::timeout: return "timeout";
    case FinishReason::failed: return "failed";
    case FinishReason::no_token: return "no_token";
  }
  return "unknown";
}

}  // namespace quarrel
