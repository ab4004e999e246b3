// Requests in, and what is asked about them. What the engine's thread does is in engine_loop.cpp.
#include "engine/engine.h"

#include <algorithm>
#include <limits>
#include <new>
#include <random>
#include <utility>

#include "base/as_size.h"
#include "base/error.h"
#include "base/thread_name.h"

namespace quarrel {
namespace {

// Events that wait to be delivered, at most.
constexpr std::size_t kMostEvents = 1024;
constexpr std::int64_t kLongestDrainUs = std::int64_t{365} * 24 * 3600 * 1'000'000;

SchedulerConfig scheduler_config(const Executor& executor, const EngineOptions& options) {
  const MemoryPlan& plan = executor.plan();
  SchedulerConfig config{
      .block_tokens = executor.backend().block_tokens(),
      .recurrent = !executor.model().state_layers().empty(),
      .state_slots = plan.state_slots,
      .context = plan.context,
      .max_rows = options.chunk > 0 ? std::min(options.chunk, plan.limits.rows) : plan.limits.rows,
      .max_outputs = plan.limits.outputs,
      .max_sequences = plan.sequences,
      .steps_in_flight = options.steps_in_flight > 0 ? options.steps_in_flight : executor.backend().steps_in_flight(),
      .whole_texts = executor.model().needs_whole_text(),
      .queue_limit = options.queue_limit,
      .queue_token_limit = options.queue_token_limit,
      .key_queue_limit = options.key_queue_limit,
      .key_queue_token_limit = options.key_queue_token_limit,
      .prefix_cache = options.prefix_cache,
      .pin_percent = options.pin_percent,
      .snapshot_interval = options.snapshot_interval,
      .gap_factor = options.gap_factor,
      .ageing_us = options.ageing.count()};
  // Every running sequence has a row in a step of its own, and an encoder's text all of them.
  config.max_rows = std::max(config.max_rows, std::min(plan.sequences, plan.limits.rows));
  if (config.whole_texts) config.max_rows = plan.limits.rows;
  const std::vector<KvGroup>& groups = executor.model().kv_groups();
  for (std::size_t group = 0; group < groups.size(); ++group) {
    config.groups.push_back({.blocks = plan.blocks[group], .window = groups[group].window});
  }
  std::random_device random;
  config.hash_seed = (std::uint64_t{random()} << 32) | random();
  return resolved(config);
}

void check_request(const EngineRequest& request, const ModelSpec& spec) {
  check(request.sampling);
  if (request.top < 0 || request.top > kMaxTopTokens) {
    fail(ErrorKind::bad_input, "the most likely {} tokens were asked for, but {} is the most", request.top,
         kMaxTopTokens);
  }
  const auto known = [&spec](TokenId token) { return token >= 0 && token < spec.vocabulary; };
  for (const TokenId token : request.prompt) {
    if (!known(token)) fail(ErrorKind::bad_input, "token {} is not one of the model's {}", token, spec.vocabulary);
  }
  for (const auto& [token, bias] : request.sampling.logit_bias) {
    if (known(token)) continue;
    fail(ErrorKind::bad_input, "the logit bias names token {}, but the vocabulary has {}", token, spec.vocabulary);
  }
  const bool wants_tokens = request.max_tokens != 0 || request.prompt_outputs == PromptOutputs::scores;
  if (wants_tokens && !spec.has_head) {
    fail(ErrorKind::unsupported, "the model ({}) turns texts into vectors; it cannot generate text", spec.architecture);
  }
  const bool ranks = request.pooled && request.pooling == Pooling::rank;
  if (ranks && spec.pooling != Pooling::rank) {
    fail(ErrorKind::unsupported, "the model ({}) does not rank texts", spec.architecture);
  }
  if (request.pooled && request.pooling == Pooling::none) {
    fail(ErrorKind::bad_input, "one vector of a text needs a pooling");
  }
}

// The branches of a request, each with its own seed. However many there are, a request that may be refused is copied
// once, and not at all if it does not fit.
std::shared_ptr<EngineJob> make_job(const EngineRequest& request, std::int32_t most_branches, bool fits) {
  auto job = std::make_shared<EngineJob>();
  const bool penalties = has_penalties(request.sampling);
  job->unfinished = request.branches;
  job->keeps_text = penalties || request.mask;
  job->prompt_length = static_cast<std::int32_t>(request.prompt.size());
  if (penalties && fits) job->prompt = request.prompt;
  job->top = request.top;
  job->prompt_logits = request.prompt_logits;
  job->pooling = request.pooled ? request.pooling : Pooling::none;
  job->vector_into = request.pooled ? request.vector_into : std::span<float>{};
  for (std::int32_t index = 0; index < std::min(request.branches, most_branches); ++index) {
    EngineBranch& branch = job->branches.emplace_back();
    branch.sampling = request.sampling;
    branch.sampling.seed = branch_seed(request.sampling.seed, index);
    if (request.mask) branch.mask = request.mask(index);
  }
  return job;
}

// Forwards events to a stream, for those who would rather wait than be called.
class StreamSink final : public EventSink {
 public:
  explicit StreamSink(std::shared_ptr<TokenStream> stream) : stream_(std::move(stream)) {}
  void take(std::span<TokenEvent> events) override {
    if (!stream_->put(events)) throw std::bad_alloc();
  }

 private:
  std::shared_ptr<TokenStream> stream_;
};

}  // namespace

Engine::Engine(std::unique_ptr<Executor> executor, const EngineOptions& options)
    : executor_(std::move(executor)),
      config_(scheduler_config(*executor_, options)),
      deadline_check_(options.deadline_check),
      scheduler_(config_),
      outbox_(kMostEvents) {
  thread_ = std::thread([this] {
    name_thread("quarrel-engine");
    run();
  });
}

Engine::~Engine() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    signal();
  }
  thread_.join();
}

void Engine::signal() {
  ++signals_;
  changed_.notify_all();
}

std::int64_t Engine::now() const {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch()).count();
}

// When so much time has passed; what lies beyond any clock is as good as never, which is 0.
std::int64_t Engine::after(std::chrono::microseconds time) const {
  const std::int64_t start = now();
  if (time.count() <= 0 || time.count() > std::numeric_limits<std::int64_t>::max() - start) return 0;
  return start + time.count();
}

SubmitResult Engine::submit(EngineRequest request, std::shared_ptr<EventSink> sink) {
  check_request(request, executor_->spec());
  const bool fits = std::cmp_less_equal(request.prompt.size(), longest_text());
  std::shared_ptr<EngineJob> job = make_job(request, config_.max_branches, fits);
  job->sink = std::move(sink);
  request.deadline_us = after(request.timeout);
  request.patience_us = request.patience.count();
  request.stepwise = static_cast<bool>(request.mask);
  const std::scoped_lock lock(mutex_);
  if (broken_) throw Error(*broken_);
  if (stopping_ || draining_) return {.status = SubmitStatus::draining};
  jobs_.reserve(jobs_.size() + 1);  // so that what was accepted can be remembered
  const SubmitResult result = scheduler_.submit(static_cast<SchedRequest&&>(request), now());
  if (result.status != SubmitStatus::accepted) return result;
  try {
    jobs_.emplace(result.id, std::move(job));
  } catch (...) {
    scheduler_.cancel(result.id);
    throw;
  }
  signal();
  return result;
}

SubmitResult Engine::admits(std::uint64_t key) {
  const std::scoped_lock lock(mutex_);
  if (broken_) throw Error(*broken_);
  if (stopping_ || draining_) return {.status = SubmitStatus::draining};
  return scheduler_.admits(key, now());
}

Engine::Submission Engine::submit(EngineRequest request) {
  auto stream = std::make_shared<TokenStream>(request.branches);
  const SubmitResult result = submit(std::move(request), std::make_shared<StreamSink>(stream));
  return {.result = result, .stream = result.status == SubmitStatus::accepted ? stream : nullptr};
}

bool Engine::cancel(RequestId id, FinishReason reason) {
  const std::scoped_lock lock(mutex_);
  const bool found = scheduler_.cancel(id, reason);
  signal();
  return found;
}

bool Engine::cancel_branch(RequestId id, std::int32_t branch, FinishReason reason) {
  const std::scoped_lock lock(mutex_);
  const bool found = scheduler_.cancel_branch(id, branch, reason);
  signal();
  return found;
}

void Engine::cancel_all(FinishReason reason, const std::string& why) {
  const std::scoped_lock lock(mutex_);
  cancel_everything(reason, why);
}

// On the engine's own thread too, where nobody would catch what it throws.
void Engine::cancel_everything(FinishReason reason, const std::string& why) {
  for (const auto& [id, job] : jobs_) {
    if (!scheduler_.cancel(id, reason)) continue;
    try {
      job->why = why;
    } catch (const std::bad_alloc&) {
      job->why.clear();  // it ends all the same
    }
  }
  signal();
}

void Engine::pause() {
  const std::scoped_lock lock(mutex_);
  scheduler_.pause();
}

void Engine::resume() {
  const std::scoped_lock lock(mutex_);
  scheduler_.resume();
  signal();
}

void Engine::drain(DrainOptions options) {
  const std::scoped_lock lock(mutex_);
  if (options.on_done) on_drained_.push_back(std::move(options.on_done));
  scheduler_.resume();  // what waits is still served
  draining_ = true;
  if (options.within) {
    const std::int64_t until = now() + std::max<std::int64_t>(0, std::min(options.within->count(), kLongestDrainUs));
    if (drain_until_us_ == 0 || until < drain_until_us_) {
      drain_until_us_ = until;
      drain_reason_ = std::move(options.reason);
    }
  }
  signal();
}

void Engine::drain_and_wait(DrainOptions options) {
  if (on_engine_thread()) fail(ErrorKind::internal, "a sink cannot wait for the engine that calls it");
  std::mutex mutex;
  std::condition_variable finished;
  bool done = false;
  options.on_done = [&, then = std::move(options.on_done)] {
    if (then) then();
    // Whoever waits may go as soon as it may look.
    const std::scoped_lock lock(mutex);
    done = true;
    finished.notify_all();
  };
  drain(std::move(options));
  std::unique_lock lock(mutex);
  finished.wait(lock, [&] { return done; });
}

Clock::duration Engine::silent_for() const noexcept {
  const Clock::time_point alive(Clock::duration(alive_at_.load()));
  if (alive == Clock::time_point{}) return {};
  return std::max(Clock::now() - std::max(alive, executor_->last_layer()), Clock::duration{});
}

EngineCounters Engine::counters() const {
  const std::scoped_lock lock(mutex_);
  return {.scheduler = scheduler_.counters(), .failed_steps = failed_steps_, .tokens = tokens_};
}

Observations Engine::observe() const {
  const std::scoped_lock lock(mutex_);
  return observed_;
}

void Engine::watch_times(bool on) {
  const std::scoped_lock lock(mutex_);
  times_wanted_ = on;
}

std::int32_t Engine::longest_text() const noexcept { return scheduler_.longest(); }

void Engine::clear_cache() {
  const std::scoped_lock lock(mutex_);
  scheduler_.clear_cache();
}

}  // namespace quarrel
