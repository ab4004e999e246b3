// A fixed number of threads that run one task at a time, all of it together. The caller is worker 0 and returns when
// every worker is done. Whoever waits, worker or caller, first spins for a short while, because the next piece of a
// step usually comes within microseconds, and then sleeps. It sleeps sooner where spinning could only keep others from
// their work: when there are more workers than processors, when the caller sees that a worker has not even begun, and
// when a worker has woken a caller that slept on its own processor. One thread at a time may call `run`, and a task may
// not.
//
// Memory belongs to the node of the processor that touches it first. Workers are therefore numbered node by node, and
// on a machine with several NUMA nodes each may only run on its own. Neighbouring workers, which own neighbouring
// slices of a matrix's rows, are of one node, and a slice that its worker fills lies where it will be read. Each node
// has its own start signal and a leader, its first worker, who gathers the others; the caller meets the leaders alone,
// so that a barrier crosses from node to node once each way. Within a node the system balances, unless each worker is
// pinned to a processor.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/cpu_topology.h"

namespace quarrel {

// A state of a thread that belongs to it while it works for a pool, such as how it rounds.
struct ThreadMode {
  std::uint32_t (*enter)() noexcept = nullptr;             // gives what it was before
  void (*leave)(std::uint32_t before) noexcept = nullptr;  // puts it back
};

struct ThreadOptions {
  int count = 0;     // 0: as usable_threads() says
  bool pin = false;  // each worker to a processor of its own, as far as there are enough
  ThreadMode mode = {};
};

class ThreadPool {
 public:
  // Throws Error(out_of_memory) if the system does not give so many threads.
  explicit ThreadPool(const ThreadOptions& options) : ThreadPool(options, read_cpu_topology()) {}
  explicit ThreadPool(int workers) : ThreadPool(ThreadOptions{.count = std::max(1, workers)}) {}
  ThreadPool(const ThreadOptions& options, CpuTopology topology);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const noexcept { return workers_; }
  bool pinned() const noexcept { return pin_; }
  // The system's number of the NUMA node that a worker is near to; it never falls from one worker to the next.
  int numa_id_of(int worker) const noexcept { return states_[static_cast<std::size_t>(worker)].place.node; }

  // Makes the calling thread worker 0, in mode and place, until the object goes and the thread is as it was. A region
  // does this itself; around many regions it is done once. Belongs to the thread that may call `run`.
  class Caller {
   public:
    explicit Caller(ThreadPool& pool) noexcept : pool_(pool.has_caller_ ? nullptr : &pool) {
      if (pool_ != nullptr) enter();
    }
    ~Caller() {
      if (pool_ != nullptr) leave();
    }
    Caller(const Caller&) = delete;
    Caller& operator=(const Caller&) = delete;

   private:
    void enter() noexcept;
    void leave() noexcept;

    ThreadPool* pool_;  // null inside another one
    std::uint32_t mode_ = 0;
    std::optional<CpuMask> cpus_;  // where the thread could run, if that was changed
  };

  // The workers of one NUMA node: [first, last). Nodes are counted from 0, those without workers left out.
  struct NodeRange {
    int first = 0, last = 0;
  };
  int nodes() const noexcept { return static_cast<int>(nodes_.size()); }
  int node_of(int worker) const noexcept { return states_[static_cast<std::size_t>(worker)].node; }
  NodeRange node(int index) const noexcept { return nodes_[static_cast<std::size_t>(index)].workers; }

  // Calls task(worker, workers) once on each worker. The first exception thrown is rethrown here.
  template <typename Task>
  void run(Task&& task) {
    using Plain = std::remove_reference_t<Task>;
    run_task([](void* context, int worker, int workers) { (*static_cast<Plain*>(context))(worker, workers); },
             const_cast<void*>(static_cast<const void*>(&task)));
  }

  // Within a task: returns when every worker has come here or has left the task; what they did before is then visible.
  // It costs what a region costs. Once some worker has thrown, nobody's results are wanted: the others leave by an
  // exception from here, so that no one waits for who will never come. Memory they hold must belong to objects.
  void sync(int worker);

  // Each NUMA node has units(node) pieces of work: task(node, unit, worker) for all of them. Whoever is free takes the
  // next of its own node, and when there is none left helps the others.
  template <typename Units, typename Task>
  void share(const Units& units, const Task& task) {
    for (Node& node : nodes_) node.next.store(0, std::memory_order_relaxed);
    run([&](int worker, int) {
      for (int k = 0; k < nodes(); ++k) {
        const int index = (node_of(worker) + k) % nodes();
        const std::size_t count = units(index);
        std::atomic<std::size_t>& next = nodes_[static_cast<std::size_t>(index)].next;
        for (std::size_t unit = next.fetch_add(1); unit < count; unit = next.fetch_add(1)) task(index, unit, worker);
      }
    });
  }

  // Splits [0, count) into one contiguous, equal part a worker, in multiples of `grain`: task(begin, end).
  template <typename Task>
  void for_range(std::int64_t count, std::int64_t grain, Task&& task) {
    if (workers_ == 1 || count <= grain) {
      const Caller caller(*this);
      if (count > 0) task(std::int64_t{0}, count);
      return;
    }
    run([&](int worker, int workers) {
      const std::int64_t grains = (count + grain - 1) / grain;
      const std::int64_t begin = grains * worker / workers * grain;
      const std::int64_t end = std::min(count, grains * (worker + 1) / workers * grain);
      if (begin < end) task(begin, end);
    });
  }

 private:
  using Entry = void (*)(void* context, int worker, int workers);

  // A number that one thread raises and others wait for.
  struct Signal {
    std::atomic<std::uint32_t> value{0};
    std::atomic<std::uint32_t> sleepers{0};
    std::atomic<int> sleeper_cpu{-1};  // where the last of them ran
  };
  // What a worker tells whoever gathers it, on a cache line of its own; and on another one, which the other looks at
  // only when `done` is long in coming, what the worker writes while the other waits.
  // NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): the padding is the point
  struct alignas(64) WorkerState {
    Signal done;             // the last phase that it has finished
    bool some_wait = false;  // whether it, or one whom it leads, finished that by `sync`; written before `done`
    LogicalCpu place = {};   // never changes
    int node = 0;            // the same
    alignas(64) std::atomic<std::uint32_t> begun{0};
    std::uint32_t phase = 0;  // the one it is in; the worker's own
    bool in_task = false;     // whether it finishes the phase by `sync`; the same
  };
  // What the caller tells a node, on one line, so that it comes to them in one piece.
  struct alignas(64) Start {
    Signal phase;  // a region is one, or one more for each `sync`
    // Written before `phase` is raised, read after.
    Entry entry = nullptr;  // null: stop
    void* context = nullptr;
    bool goes_on = false;  // with the same task: whoever has left it only says so again
  };
  // NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): the padding is the point
  struct Node {
    Start start;
    alignas(64) std::atomic<std::size_t> next{0};  // of `share`
    NodeRange workers;                             // never changes
  };
  class Patience;
  struct Stopped {};  // what `sync` throws

  void run_task(Entry entry, void* context);
  void work(int worker);
  void call(int worker) noexcept;
  void stop() noexcept;
  // True if it woke somebody who will probably want the processor that this thread is on.
  static bool raise(Signal& signal, std::uint32_t value) noexcept;
  static void sleep(Signal& signal, std::uint32_t value) noexcept;
  void form_nodes();
  void begin_phase(bool goes_on) noexcept;
  void finish_phase(int worker) noexcept;  // and returns when the next one has begun
  void await_phase(WorkerState& state, bool in_the_way) noexcept;
  // These wait until workers have finished the phase, and say whether some are not through with the task.
  bool gather() noexcept;                                          // all
  bool gather(int first, int last, std::uint32_t phase) noexcept;  // these
  CpuMask mask_of(int worker) const noexcept;

  const CpuTopology topology_;
  const int workers_;
  const bool pin_;
  const bool binds_;    // workers are kept to some processors
  const bool crowded_;  // more workers than can run at once
  const ThreadMode mode_;
  std::vector<WorkerState> states_;  // one a worker, though worker 0 only has a place
  std::vector<std::thread> threads_;
  bool has_caller_ = false;  // a Caller lives

  std::vector<Node> nodes_;
  Entry entry_ = nullptr;  // what the nodes are told; the caller's own, like the rest up to failed_
  void* context_ = nullptr;
  std::uint32_t phase_ = 0;
  alignas(64) std::atomic<bool> failed_{false};  // failure_ is set
  std::mutex failure_mutex_;
  std::exception_ptr failure_;  // guarded by failure_mutex_
};

}  // namespace quarrel
