#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <random>
#include <utility>

#include "base/as_size.h"
#include "base/clock.h"
#include "base/error.h"
#include "engine/token_counts.h"

namespace quarrel {
namespace {

// A step that fails is tried again, smaller; after so many failures in a row its requests end instead.
constexpr std::int32_t kMostFailures = 4;

// Letters that wait to be delivered, at most: their room is made beforehand, so that news can be told without memory.
constexpr std::size_t kMostLetters = 1024;

// How long a thread that has nothing to do sleeps before it looks at deadlines again.
constexpr std::chrono::milliseconds kIdle{20};

SchedulerConfig scheduler_config(Executor& executor, const EngineOptions& options) {
  const MemoryPlan& plan = executor.plan();
  SchedulerConfig config{.block_tokens = executor.backend().block_tokens(),
                         .recurrent = !executor.model().state_layers().empty(),
                         .state_slots = plan.state_slots,
                         .context = plan.context,
                         .max_rows = options.chunk > 0 ? std::min(options.chunk, plan.limits.rows) : plan.limits.rows,
                         .max_outputs = plan.limits.outputs,
                         .max_sequences = plan.sequences,
                         .queue_limit = options.queue_limit,
                         .prefix_cache = options.prefix_cache,
                         .snapshot_interval = options.snapshot_interval,
                         .gap_factor = options.gap_factor};
  // Every running sequence has a row in a step of its own.
  config.max_rows = std::max(config.max_rows, std::min(plan.sequences, plan.limits.rows));
  const std::vector<KvGroup>& groups = executor.model().kv_groups();
  for (std::size_t group = 0; group < groups.size(); ++group) {
    config.groups.push_back({.blocks = plan.blocks[group], .window = groups[group].window});
  }
  std::random_device random;
  config.hash_seed = (std::uint64_t{random()} << 32) | random();
  return config;
}

}  // namespace

Engine::Engine(Executor& executor, const EngineOptions& options)
    : executor_(executor),
      options_(options),
      most_branches_(resolved(scheduler_config(executor, options)).max_branches),
      scheduler_(scheduler_config(executor, options)) {
  letters_.reserve(kMostLetters);
  delivering_.reserve(kMostLetters);
  thread_ = std::thread([this] { run(); });
}

Engine::~Engine() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::int64_t Engine::now() const {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch()).count();
}

SubmitResult Engine::submit(GenerateRequest request, Sink sink) {
  check(request.sampling);
  if (request.top < 0 || request.top > kMaxTopTokens) {
    fail(ErrorKind::bad_input, "the most likely {} tokens were asked for, but {} is the most", request.top,
         kMaxTopTokens);
  }
  const std::int32_t vocabulary = executor_.spec().vocabulary;
  for (const TokenId token : request.prompt) {
    if (token < 0 || token >= vocabulary) {
      fail(ErrorKind::bad_input, "token {} is not one of the model's {}", token, vocabulary);
    }
  }
  auto running = std::make_shared<Running>();
  running->sink = std::move(sink);
  running->penalties = has_penalties(request.sampling);
  running->unfinished = request.branches;
  for (std::int32_t branch = 0; branch < std::min(request.branches, most_branches_); ++branch) {
    BranchState& state = running->branches.emplace_back();
    state.sample = {.params = request.sampling, .top = request.top};
    state.sample.params.seed = branch_seed(request.sampling.seed, branch);
    if (running->penalties) state.text = request.prompt;
  }
  SchedRequest scheduled{.prompt = std::move(request.prompt),
                         .max_tokens = request.max_tokens,
                         .stop_tokens = std::move(request.stop_tokens),
                         .branches = request.branches,
                         .priority = request.priority,
                         .overflow = request.overflow,
                         .key = request.key,
                         .salt = request.salt,
                         .deadline_us = request.deadline.count() > 0 ? now() + request.deadline.count() : 0,
                         .pinned = request.pinned,
                         .keep = request.keep,
                         .score_prompt = request.score_prompt,
                         .use_cache = request.use_cache};
  const std::scoped_lock lock(mutex_);
  if (stopping_ || draining_) return {.status = SubmitStatus::draining};
  requests_.reserve(requests_.size() + 1);  // so that what was accepted can be remembered
  const SubmitResult result = scheduler_.submit(std::move(scheduled), now());
  if (result.status != SubmitStatus::accepted) return result;
  try {
    requests_.emplace(result.id, std::move(running));
  } catch (...) {
    scheduler_.cancel(result.id);
    throw;
  }
  changed_.notify_all();
  return result;
}

Engine::Submission Engine::submit(GenerateRequest request) {
  auto stream = std::make_shared<TokenStream>(request.branches);
  const SubmitResult result = submit(std::move(request), [stream](const TokenEvent& event) {
    if (!stream->put(event)) throw std::bad_alloc();
  });
  return {.result = result, .stream = result.status == SubmitStatus::accepted ? stream : nullptr};
}

bool Engine::cancel(RequestId id, EndReason reason) {
  const std::scoped_lock lock(mutex_);
  const bool found = scheduler_.cancel(id, reason);
  changed_.notify_all();
  return found;
}

bool Engine::cancel_branch(RequestId id, std::int32_t branch, EndReason reason) {
  const std::scoped_lock lock(mutex_);
  const bool found = scheduler_.cancel_branch(id, branch, reason);
  changed_.notify_all();
  return found;
}

void Engine::pause() {
  const std::scoped_lock lock(mutex_);
  scheduler_.pause();
}

void Engine::resume() {
  const std::scoped_lock lock(mutex_);
  scheduler_.resume();
  changed_.notify_all();
}

void Engine::drain() {
  std::unique_lock lock(mutex_);
  scheduler_.resume();  // what waits is still served
  draining_ = true;
  changed_.notify_all();
  changed_.wait(lock, [&] { return requests_.empty(); });
}

EngineCounters Engine::counters() const {
  const std::scoped_lock lock(mutex_);
  return {.scheduler = scheduler_.counters(), .failed_steps = failed_steps_, .tokens = tokens_};
}

std::int32_t Engine::longest_text() const {
  const std::scoped_lock lock(mutex_);
  return scheduler_.longest();
}

void Engine::clear_cache() {
  const std::scoped_lock lock(mutex_);
  scheduler_.clear_cache();
}

void Engine::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    bool ran = false;
    try {
      ran = run_step(lock);
    } catch (const std::bad_alloc&) {
      // Nothing was in flight: planning leaves the scheduler as it was, and somebody may free memory.
      ++failed_steps_;
    }
    deliver(lock);
    if (!ran && !stopping_) changed_.wait_for(lock, kIdle);
  }
  for (const auto& [id, running] : requests_) scheduler_.cancel(id);
  collect({}, lock);
  deliver(lock);
}

// Plans a step, runs it with the lock open, and commits it. False: there was nothing to run.
bool Engine::run_step(std::unique_lock<std::mutex>& lock) {
  const bool planned = scheduler_.plan(now(), plan_);
  collect({}, lock);  // what was started, and whose deadline has passed
  if (!planned) return false;
  std::string why;
  bool again = false;  // whether a smaller step might do
  try {
    load_step();
    lock.unlock();
    const auto start = Clock::now();
    StepResults results = compute();
    const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count();
    lock.lock();
    commit(std::move(results), micros, lock);
    failures_in_a_row_ = 0;
    return true;
  } catch (const std::bad_alloc&) {
    why = "there was no memory for a step";
    again = true;
  } catch (const Error& error) {
    why = error.what();
    again = error.kind() == ErrorKind::out_of_memory;
  } catch (const std::exception& error) {
    why = error.what();
  }
  if (!lock.owns_lock()) lock.lock();
  give_up(std::move(why), again, lock);
  return true;
}

// The plan as the backend wants it, with the way each output chooses its token.
void Engine::load_step() {
  rows_.clear();
  tables_.clear();
  sequences_.clear();
  outputs_.clear();
  samples_.clear();
  snapshots_.clear();
  rows_.reserve(plan_.rows.size());
  for (const PlanRow& row : plan_.rows) rows_.push_back({row.sequence, row.position, row.token});
  tables_.reserve(plan_.tables.size());
  for (const PlanTable& table : plan_.tables) tables_.push_back({table.blocks, table.first_live});
  const auto groups = as_size(plan_.groups);
  sequences_.reserve(plan_.sequences.size());
  for (std::size_t i = 0; i < plan_.sequences.size(); ++i) {
    const PlanSequence& sequence = plan_.sequences[i];
    sequences_.push_back({.tables = std::span(tables_).subspan(i * groups, groups),
                          .length = sequence.length,
                          .state_in = sequence.state_in,
                          .state_out = sequence.state_out});
  }
  samples_.reserve(plan_.outputs.size());  // outputs point into it
  outputs_.reserve(plan_.outputs.size());
  for (const PlanOutput& output : plan_.outputs) {
    const auto found = requests_.find(output.request);
    SampleRequest sample;
    if (found != requests_.end()) {
      Running& running = *found->second;
      BranchState& branch = running.branches[as_size(output.branch)];
      if (output.score < 0 && running.penalties) {
        branch.text.reserve(branch.text.size() + 1);
        branch.seen = count_seen(branch.text, branch.sample.params.penalty_window);
        branch.sample.seen = branch.seen;
      }
      sample = branch.sample;
    }
    sample.score = output.score;
    samples_.push_back(std::move(sample));
    outputs_.push_back({.row = output.row, .sample = &samples_.back()});
  }
  snapshots_.reserve(plan_.snapshots.size());
  for (const PlanSnapshot& snapshot : plan_.snapshots) snapshots_.push_back({snapshot.row, snapshot.slot});
}

StepResults Engine::compute() {
  Backend& backend = executor_.backend();
  for (const BlockCopy& copy : plan_.block_copies) backend.copy_block(copy.group, copy.from, copy.to);
  for (const SlotCopy& copy : plan_.slot_copies) backend.copy_slot(copy.from, copy.to);
  return executor_.step({.rows = rows_,
                         .generated_rows = plan_.generated_rows,
                         .sequences = sequences_,
                         .outputs = outputs_,
                         .snapshots = snapshots_});
}

void Engine::commit(StepResults&& results, std::int64_t micros, std::unique_lock<std::mutex>& lock) {
  std::vector<std::uint8_t> bad(plan_.sequences.size(), 0);
  const auto condemn = [&](std::int32_t row, const std::string& why) {
    const auto sequence = as_size(plan_.rows[as_size(row)].sequence);
    bad[sequence] = 1;
    const auto found = requests_.find(plan_.sequences[sequence].request);
    if (found != requests_.end() && found->second->error.empty()) found->second->error = why;
  };
  for (std::size_t row = 0; row < results.first_bad_layer.size(); ++row) {
    if (results.first_bad_layer[row] < 0) continue;
    condemn(static_cast<std::int32_t>(row),
            fmt::format("the model's numbers are not finite from layer {} on; its file may be damaged",
                        results.first_bad_layer[row]));
  }
  std::vector<TokenId> sampled;
  sampled.reserve(results.samples.size());
  for (std::size_t i = 0; i < results.samples.size(); ++i) {
    const SampleResult& sample = results.samples[i];
    sampled.push_back(std::max(0, sample.id));
    if (plan_.outputs[i].score < 0 && sample.id < 0) {
      condemn(plan_.outputs[i].row, "the model gave no token a probability; its file may be damaged");
    }
  }
  scheduler_.commit({.micros = micros, .sampled = sampled, .bad = bad}, now());
  // From here on nothing needs memory: what was committed is told.
  for (std::size_t i = 0; i < results.samples.size(); ++i) {
    const PlanOutput& output = plan_.outputs[i];
    const auto found = requests_.find(output.request);
    if (output.score < 0 || found == requests_.end() || bad[as_size(plan_.rows[as_size(output.row)].sequence)] != 0) {
      continue;
    }
    send({found->second,
          {.kind = TokenEvent::Kind::prompt_score,
           .request = output.request,
           .branch = output.branch,
           .sample = std::move(results.samples[i])}},
         lock);
  }
  collect(results.samples, lock);
}

// The step came to nothing. What it was for is tried again, or ends.
void Engine::give_up(std::string why, bool again, std::unique_lock<std::mutex>& lock) {
  ++failed_steps_;
  ++failures_in_a_row_;
  scheduler_.abort_step();
  if (!again || failures_in_a_row_ >= kMostFailures) {
    failures_in_a_row_ = 0;
    for (const PlanSequence& sequence : plan_.sequences) {
      const auto found = requests_.find(sequence.request);
      if (found != requests_.end()) found->second->error.swap(why);
      scheduler_.cancel(sequence.request, EndReason::failed);
    }
  }
  collect({}, lock);
}

// Turns the scheduler's events into letters. `samples` are the results of the step they speak of.
void Engine::collect(std::span<SampleResult> samples, std::unique_lock<std::mutex>& lock) {
  // Letters may be delivered on the way, with the lock open, and others may add to the events then.
  for (std::size_t i = 0; i < scheduler_.events().size(); ++i) {
    const SchedEvent event = scheduler_.events()[i];
    const auto found = requests_.find(event.request);
    if (found == requests_.end()) continue;
    const std::shared_ptr<Running> running = found->second;
    TokenEvent told{.request = event.request, .branch = event.branch};
    switch (event.kind) {
      case SchedEvent::Kind::started:
        told.kind = TokenEvent::Kind::started;
        told.cached = event.cached;
        break;
      case SchedEvent::Kind::token: {
        told.kind = TokenEvent::Kind::token;
        told.sample = std::move(samples[as_size(event.output)]);
        BranchState& branch = running->branches[as_size(event.branch)];
        ++branch.sample.draw;
        branch.sample.mirostat_mu = told.sample.mirostat_mu;
        if (running->penalties) branch.text.push_back(event.token);  // its room was made with the step
        ++tokens_;
        break;
      }
      case SchedEvent::Kind::shifted:
        told.kind = TokenEvent::Kind::shifted;
        told.dropped = event.dropped;
        break;
      case SchedEvent::Kind::finished:
        told.kind = TokenEvent::Kind::finished;
        told.reason = event.reason;
        // Of several branches the last is told why; they fail together.
        if (--running->unfinished == 0) {
          told.error.swap(running->error);
          requests_.erase(found);
        }
        break;
    }
    send({running, std::move(told)}, lock);
  }
  scheduler_.clear_events();
}

void Engine::send(Letter letter, std::unique_lock<std::mutex>& lock) {
  if (letters_.size() == kMostLetters) deliver(lock);
  letters_.push_back(std::move(letter));
}

// Hands out the letters with the lock open: a sink may call the engine.
void Engine::deliver(std::unique_lock<std::mutex>& lock) {
  if (letters_.empty()) return;
  letters_.swap(delivering_);
  lock.unlock();
  for (const Letter& letter : delivering_) {
    try {
      letter.to->sink(letter.event);
    } catch (...) {
      // Whoever cannot hear the rest has no use for it.
      cancel(letter.event.request, EndReason::failed);
    }
  }
  delivering_.clear();
  lock.lock();
  if (requests_.empty()) changed_.notify_all();
}

}  // namespace quarrel
