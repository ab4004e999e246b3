#include "base/thread_pool.h"

#include <sched.h>

#include <chrono>
#include <system_error>

#include "base/as_size.h"
#include "base/error.h"
#include "base/thread_name.h"

namespace quarrel {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kSpinTime = std::chrono::microseconds(50);
constexpr auto kShortTime = std::chrono::microseconds(5);  // where the processor may be what the other lacks
constexpr int kTurns = 64;                                 // from one look at the clock to the next

void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");  // "yield" does nothing on most of them
#endif
}

}  // namespace

// How long one wait may spin. The awaited number is read every turn, the clock rarely: asking it takes as long as many
// turns, and what is waited for would be noticed that much later.
class ThreadPool::Patience {
 public:
  explicit Patience(bool crowded) noexcept : crowded_(crowded) {}

  // Lets a moment pass; false when it is time to sleep. `hopeful()` tells whether the other is known to be running.
  template <typename Hopeful>
  bool lasts(const Hopeful& hopeful) noexcept {
    relax();
    if (++turns_ % kTurns != 0) return true;
    const Clock::time_point now = Clock::now();
    if (turns_ == kTurns) begin_ = now;
    return now - begin_ < (crowded_ || !hopeful() ? kShortTime : kSpinTime);
  }

 private:
  const bool crowded_;
  std::uint32_t turns_ = 0;
  Clock::time_point begin_;
};

ThreadPool::ThreadPool(const ThreadOptions& options, CpuTopology topology)
    : topology_(std::move(topology)),
      workers_(options.count > 0 ? options.count : topology_.default_threads()),
      pin_(options.pin),
      binds_(options.pin || topology_.several_nodes()),
      crowded_(workers_ > topology_.most_threads()),
      mode_(options.mode),
      states_(as_size(workers_)) {
  const std::vector<LogicalCpu> places = topology_.place(workers_);
  for (std::size_t i = 0; i < states_.size(); ++i) states_[i].place = places[i];
  form_nodes();
  threads_.reserve(states_.size() - 1);
  try {
    for (int worker = 1; worker < workers_; ++worker) {
      threads_.emplace_back([this, worker] {
        name_thread("quarrel-worker");
        work(worker);
      });
    }
  } catch (const std::system_error& error) {
    const std::size_t made = threads_.size();
    stop();
    fail(ErrorKind::out_of_memory, "the system allows {} threads, not {}: {}", made + 1, workers_, error.what());
  } catch (...) {
    stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::form_nodes() {
  std::vector<NodeRange> ranges;
  ranges.reserve(states_.size());
  for (int worker = 0; worker < workers_; ++worker) {
    if (worker == 0 || numa_id_of(worker) != numa_id_of(worker - 1))
      ranges.push_back({.first = worker, .last = worker});
    ranges.back().last = worker + 1;
    states_[as_size(worker)].node = static_cast<int>(ranges.size()) - 1;
  }
  nodes_ = std::vector<Node>(ranges.size());
  for (std::size_t i = 0; i < ranges.size(); ++i) nodes_[i].workers = ranges[i];
}

void ThreadPool::stop() noexcept {
  entry_ = nullptr;
  begin_phase(false);
  for (std::thread& thread : threads_) thread.join();
}

CpuMask ThreadPool::mask_of(int worker) const noexcept {
  const LogicalCpu& place = states_[as_size(worker)].place;
  if (!pin_) return topology_.node_mask(place.node);
  CpuMask mask;
  mask.add(place.id);
  return mask;
}

// ---- The caller as a worker ----

void ThreadPool::Caller::enter() noexcept {
  pool_->has_caller_ = true;
  if (pool_->mode_.enter != nullptr) mode_ = pool_->mode_.enter();
  if (!pool_->binds_) return;
  const CpuMask before = CpuMask::of_this_thread();
  const CpuMask bound = pool_->mask_of(0);
  if (before != bound && bound.bind_this_thread()) cpus_ = before;
}

void ThreadPool::Caller::leave() noexcept {
  // Somebody else may have moved the thread meanwhile: then it stays there.
  if (cpus_ && CpuMask::of_this_thread() == pool_->mask_of(0)) cpus_->bind_this_thread();
  if (pool_->mode_.leave != nullptr) pool_->mode_.leave(mode_);
  pool_->has_caller_ = false;
}

// ---- Signals ----

// Whoever waits says that it will sleep before it looks a last time, and whoever raises looks for sleepers afterwards;
// both in one order for all threads, so one of the two notices the other.
bool ThreadPool::raise(Signal& signal, std::uint32_t value) noexcept {
  signal.value.store(value, std::memory_order_seq_cst);
  if (signal.sleepers.load(std::memory_order_seq_cst) == 0) return false;
  signal.value.notify_all();
  return signal.sleeper_cpu.load(std::memory_order_relaxed) == ::sched_getcpu();
}

void ThreadPool::sleep(Signal& signal, std::uint32_t value) noexcept {
  signal.sleeper_cpu.store(::sched_getcpu(), std::memory_order_relaxed);
  signal.sleepers.fetch_add(1, std::memory_order_seq_cst);
  for (std::uint32_t seen = signal.value.load(std::memory_order_seq_cst); seen != value;
       seen = signal.value.load(std::memory_order_seq_cst)) {
    signal.value.wait(seen, std::memory_order_seq_cst);
  }
  signal.sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

// ---- Regions ----

void ThreadPool::begin_phase(bool goes_on) noexcept {
  ++phase_;
  for (Node& node : nodes_) {
    node.start.entry = entry_;
    node.start.context = context_;
    node.start.goes_on = goes_on;
    raise(node.start.phase, phase_);
  }
}

bool ThreadPool::gather(int first, int last, std::uint32_t phase) noexcept {
  Patience patience(crowded_);
  bool some_wait = false;
  for (int worker = first; worker < last; ++worker) {
    WorkerState& state = states_[as_size(worker)];
    const auto begun = [&] { return state.begun.load(std::memory_order_relaxed) == phase; };
    while (state.done.value.load(std::memory_order_acquire) != phase) {
      if (!patience.lasts(begun)) sleep(state.done, phase);
    }
    some_wait = some_wait || state.some_wait;
  }
  return some_wait;
}

bool ThreadPool::gather() noexcept {
  bool some_wait = gather(1, nodes_[0].workers.last, phase_);
  for (std::size_t i = 1; i < nodes_.size(); ++i) {
    const int leader = nodes_[i].workers.first;
    some_wait = gather(leader, leader + 1, phase_) || some_wait;
  }
  return some_wait;
}

void ThreadPool::finish_phase(int worker) noexcept {
  WorkerState& state = states_[as_size(worker)];
  const NodeRange node = nodes_[as_size(state.node)].workers;
  const bool others_wait = node.first == worker && gather(worker + 1, node.last, state.phase);
  state.some_wait = state.in_task || others_wait;
  const bool in_the_way = raise(state.done, state.phase);
  await_phase(state, in_the_way);
}

void ThreadPool::await_phase(WorkerState& state, bool in_the_way) noexcept {
  ++state.phase;
  Signal& start = nodes_[as_size(state.node)].start.phase;
  Patience patience(crowded_ || in_the_way);
  while (start.value.load(std::memory_order_acquire) != state.phase) {
    if (!patience.lasts([] { return true; })) sleep(start, state.phase);
  }
  state.begun.store(state.phase, std::memory_order_relaxed);
}

void ThreadPool::call(int worker) noexcept {
  const Start& start = nodes_[as_size(node_of(worker))].start;
  try {
    start.entry(start.context, worker, workers_);
  } catch (const Stopped&) {
    return;  // whoever threw first has left its reason
  } catch (...) {
    const std::lock_guard lock(failure_mutex_);
    if (!failure_) failure_ = std::current_exception();
    failed_.store(true, std::memory_order_release);
  }
}

void ThreadPool::run_task(Entry entry, void* context) {
  const Caller caller(*this);
  entry_ = entry;
  context_ = context;
  begin_phase(false);
  call(0);
  while (gather()) begin_phase(true);
  if (!failed_.load(std::memory_order_acquire)) return;
  failed_.store(false, std::memory_order_relaxed);
  std::rethrow_exception(std::exchange(failure_, nullptr));
}

void ThreadPool::sync(int worker) {
  if (workers_ == 1) return;
  if (worker == 0) {
    gather();
    begin_phase(true);
  } else {
    WorkerState& state = states_[as_size(worker)];
    state.in_task = true;
    finish_phase(worker);
    state.in_task = false;
  }
  if (failed_.load(std::memory_order_acquire)) throw Stopped{};
}

void ThreadPool::work(int worker) {
  if (mode_.enter != nullptr) mode_.enter();
  if (binds_) mask_of(worker).bind_this_thread();
  const Start& start = nodes_[as_size(node_of(worker))].start;
  await_phase(states_[as_size(worker)], false);
  for (; start.entry != nullptr; finish_phase(worker)) {
    if (!start.goes_on) call(worker);
  }
}

}  // namespace quarrel
