#include "app/serve_bench.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "session/generation_stream.h"

namespace quarrel {
namespace {

constexpr auto kLongestWait = std::chrono::milliseconds(50);  // of the sending thread, so that Ctrl-C is heard soon
constexpr auto kWatchEvery = std::chrono::milliseconds(1);    // a step or so

double milliseconds(Clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); }

double per_second(std::int64_t count, double seconds) {
  return seconds > 0.0 ? static_cast<double>(count) / seconds : 0.0;
}

double share(std::uint64_t part, std::uint64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

}  // namespace

double ServeResult::prompt_tokens_per_s() const noexcept { return per_second(prompt_tokens, seconds); }
double ServeResult::generated_tokens_per_s() const noexcept { return per_second(generated_tokens, seconds); }
double ServeResult::cache_hit_rate() const noexcept {
  return share(cache_hit_tokens, cache_hit_tokens + cache_miss_tokens);
}
double ServeResult::rows_per_step() const noexcept { return share(prompt_rows + generated_rows, steps); }

// Events may come as long as the engine has requests, and so after a bench that was interrupted.
class ServeBench::Sink final : public EventSink {
 public:
  explicit Sink(ServeBench& bench) : bench_(&bench) {}
  void take(std::span<TokenEvent> events) override {
    const std::scoped_lock lock(mutex_);
    if (bench_ != nullptr) bench_->take(events);
  }
  void close() {
    const std::scoped_lock lock(mutex_);
    bench_ = nullptr;
  }

 private:
  std::mutex mutex_;
  ServeBench* bench_;
};

ServeBench::ServeBench(std::shared_ptr<LoadedModel> model, const LoadSettings& load)
    : model_(std::move(model)),
      load_(load),
      plan_(plan_load(load)),
      sink_(std::make_shared<Sink>(*this)),
      progress_(plan_.requests.size()) {}

ServeResult ServeBench::run(const GoOn& go_on) {
  Engine& engine = model_->engine();
  warm_up();
  const EngineCounters before = engine.counters();
  start_ = last_end_ = Clock::now();
  send_all(go_on);
  sink_->close();
  if (result_.interrupted) last_end_ = Clock::now();
  add_counters(before, engine.counters());
  engine.cancel_all(FinishReason::cancelled, "");
  result_.seconds = std::chrono::duration<double>(last_end_ - start_).count();
  const std::int32_t ended = result_.finished + result_.refused + result_.failed;
  result_.unfinished = static_cast<std::int32_t>(plan_.requests.size()) - ended;
  result_.first_token = percentiles(std::move(first_tokens_));
  result_.gap = percentiles(std::move(gaps_));
  result_.latency = percentiles(std::move(latencies_));
  return std::move(result_);
}

// The first steps touch memory that nobody has touched; that is not what a client of a running server meets.
void ServeBench::warm_up() {
  constexpr std::int32_t kWarmTokens = 64;
  Ask ask{.max_tokens = std::min(4, load_.output.least), .use_cache = false};
  std::vector<TokenId> prompt = load_prompt(load_, plan_, 0, model_->spec().vocabulary);
  prompt.resize(std::min<std::size_t>(prompt.size(), kWarmTokens));
  ask.prompt = std::move(prompt);
  ask.stop_tokens.emplace();
  generate(model_, ask).answers.front().require_success();
}

void ServeBench::send_all(const GoOn& go_on) {
  std::unique_lock lock(mutex_);
  while (ended_ < plan_.requests.size()) {
    while (const auto request = due()) {
      lock.unlock();
      send(*request);
      lock.lock();
    }
    if (ended_ == plan_.requests.size()) break;
    auto until = Clock::now() + kLongestWait;
    if (load_.open_loop() && next_ < plan_.ordinary) {
      const auto arrival = std::chrono::duration<double>(plan_.requests[next_].arrival);
      until = std::min(until, start_ + std::chrono::duration_cast<Clock::duration>(arrival));
    }
    ended_one_.wait_until(lock, until);
    const std::size_t ended = ended_;
    lock.unlock();
    const bool on = go_on(ended, plan_.requests.size());
    lock.lock();
    if (!on) {
      result_.interrupted = true;  // what ends from now on was not measured
      return;
    }
  }
}

// The request to be sent now, counted as sent; under the lock.
std::optional<std::size_t> ServeBench::due() {
  const std::size_t last = plan_.requests.size() - 1;
  if (last == plan_.ordinary && !long_sent_ && ordinary_ended_ >= plan_.long_after) {
    long_sent_ = true;
    return last;
  }
  if (next_ == plan_.ordinary) return std::nullopt;
  const bool now = load_.open_loop() ? seconds_since(start_) >= plan_.requests[next_].arrival
                                     : next_ - ordinary_ended_ < static_cast<std::size_t>(load_.clients);
  if (!now) return std::nullopt;
  return next_++;
}

void ServeBench::send(std::size_t request) {
  EngineRequest message;
  message.prompt = load_prompt(load_, plan_, request, model_->spec().vocabulary);
  message.max_tokens = plan_.requests[request].output;
  std::unique_lock lock(mutex_);  // so that its first event finds out what it is of
  progress_[request].sent = Clock::now();
  const SubmitResult answer = model_->engine().submit(std::move(message), sink_);
  if (answer.status == SubmitStatus::too_long) {
    fail(ErrorKind::bad_input, "a text of {} tokens is too long: {} are the most (--ctx, --cache-tokens)",
         answer.tokens, answer.limit);
  }
  if (answer.status != SubmitStatus::accepted) {
    ++result_.refused;
    ++ended_;
    if (request < plan_.ordinary) ++ordinary_ended_;
    last_end_ = Clock::now();
    return;
  }
  sent_.emplace(answer.id, request);
  lock.unlock();
  watch();
}

void ServeBench::take(std::span<TokenEvent> events) {
  bool look = false;
  bool ended = false;
  {
    const std::scoped_lock lock(mutex_);
    if (result_.interrupted) return;
    for (const TokenEvent& event : events) {
      const std::size_t request = sent_.at(event.request);
      if (event.kind == TokenEvent::Kind::token) note_token(request, event.at);
      if (event.kind == TokenEvent::Kind::finished) note_end(request, event, event.at);
      ended = ended || event.kind == TokenEvent::Kind::finished;
      look = look || event.kind == TokenEvent::Kind::started;
    }
    const auto now = Clock::now();
    look = look || now - watched_ >= kWatchEvery;
    if (look) watched_ = now;
  }
  if (ended) ended_one_.notify_one();
  if (look) watch();
}

void ServeBench::note_token(std::size_t request, Clock::time_point now) {
  Progress& progress = progress_[request];
  const bool ordinary = request < plan_.ordinary;
  if (progress.tokens == 0) {
    progress.first_token = milliseconds(now - progress.sent);
    result_.prompt_tokens += plan_.requests[request].prompt;
    if (ordinary) first_tokens_.push_back(progress.first_token);
  } else if (ordinary) {
    gaps_.push_back(milliseconds(now - progress.last));
  }
  progress.last = now;
  ++progress.tokens;
  ++result_.generated_tokens;
}

void ServeBench::note_end(std::size_t request, const TokenEvent& event, Clock::time_point now) {
  const Progress& progress = progress_[request];
  const double latency = milliseconds(now - progress.sent);
  const bool ordinary = request < plan_.ordinary;
  ++ended_;
  if (ordinary) ++ordinary_ended_;
  last_end_ = now;
  if (event.reason != FinishReason::length) {
    ++result_.failed;
    if (result_.error.empty()) result_.error = event.error.empty() ? "it ended before its length" : event.error;
    return;
  }
  ++result_.finished;
  if (ordinary) {
    latencies_.push_back(latency);
  } else {
    result_.long_prompt = {
        .tokens = plan_.requests[request].prompt, .first_token = progress.first_token, .latency = latency};
  }
}

// Peaks are those of moments at which somebody looked: when a request is sent or starts, and about once a step.
void ServeBench::watch() {
  const SchedulerCounters counters = model_->engine().counters().scheduler;
  const std::scoped_lock lock(mutex_);
  result_.queue_peak = std::max(result_.queue_peak, counters.waiting);
  result_.running_peak = std::max(result_.running_peak, counters.running);
  for (const GroupCounters& group : counters.groups) {
    if (group.total > 0) result_.kv_peak = std::max(result_.kv_peak, static_cast<double>(group.used) / group.total);
  }
}

void ServeBench::add_counters(const EngineCounters& before, const EngineCounters& after) {
  const SchedulerCounters& from = before.scheduler;
  const SchedulerCounters& to = after.scheduler;
  const std::scoped_lock lock(mutex_);
  result_.preemptions = to.preemptions - from.preemptions;
  result_.cache_hit_tokens = to.cache_hit_tokens - from.cache_hit_tokens;
  result_.cache_miss_tokens = to.cache_miss_tokens - from.cache_miss_tokens;
  result_.steps = to.steps - from.steps;
  result_.failed_steps = after.failed_steps - before.failed_steps;
  result_.prompt_rows = to.prompt_rows - from.prompt_rows;
  result_.generated_rows = to.generated_rows - from.generated_rows;
}

}  // namespace quarrel
