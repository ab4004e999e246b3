#include "app/machine_speed.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <vector>

#include "backend/cpu/peak_loops.h"
#include "base/aligned_buffer.h"
#include "base/as_size.h"
#include "base/thread_pool.h"

// This file is compiled with optimisation and fused multiply-adds in every build: it measures the machine, not the
// build.
namespace quarrel {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kReadPasses = 5;
constexpr int kArithmeticPasses = 10;  // short ones: one of them is not disturbed
constexpr int kChains = 12;            // independent sums, enough to keep two units of four cycles busy
constexpr std::size_t kLine = 64;
constexpr std::size_t kPiece = 512;  // bytes of a turn of the read loops

// Vectors of whatever width the compiler is told the machine has.
template <std::size_t kBytes>
struct Vectors {
  typedef float Floats __attribute__((vector_size(kBytes)));
  typedef std::uint64_t Words __attribute__((vector_size(kBytes)));
};

struct Loops {
  const char* instructions;
  std::size_t vector_bytes;
  float (*multiply_add)(std::int64_t rounds);  // each round: kChains vectors
  // Of 64-bit words; `bytes` is a multiple of kPiece. `ahead` 0: without asking for what comes later.
  std::uint64_t (*sum)(const std::byte* data, std::size_t bytes, std::size_t ahead);
};

// A macro, because a target attribute cannot be a template's parameter, and a vector must not be passed between
// functions compiled for different targets.
#define QUARREL_SPEED_LOOPS(name, vector_bytes_, attributes)                                                   \
  attributes float multiply_add_##name(std::int64_t rounds) {                                                  \
    using Floats = Vectors<vector_bytes_>::Floats;                                                             \
    Floats sums[kChains];                                                                                      \
    for (int i = 0; i < kChains; ++i) sums[i] = Floats{} + static_cast<float>(i);                              \
    const Floats factor = Floats{} + 0.9999f;                                                                  \
    const Floats term = Floats{} + 0.0001f;                                                                    \
    for (std::int64_t round = 0; round < rounds; ++round) {                                                    \
      for (Floats & sum : sums) sum = sum * factor + term;                                                     \
    }                                                                                                          \
    Floats total = sums[0];                                                                                    \
    for (int i = 1; i < kChains; ++i) total += sums[i];                                                        \
    return total[0];                                                                                           \
  }                                                                                                            \
  attributes std::uint64_t sum_##name(const std::byte* data, std::size_t bytes, std::size_t ahead) {           \
    using Words = Vectors<vector_bytes_>::Words;                                                               \
    constexpr std::size_t kStreams = kPiece / sizeof(Words);                                                   \
    Words sums[kStreams] = {};                                                                                 \
    for (std::size_t at = 0; at < bytes; at += kPiece) {                                                       \
      if (ahead > 0) {                                                                                         \
        for (std::size_t line = 0; line < kPiece; line += kLine) __builtin_prefetch(data + at + ahead + line); \
      }                                                                                                        \
      const Words* words = reinterpret_cast<const Words*>(data + at);                                          \
      for (std::size_t i = 0; i < kStreams; ++i) sums[i] += words[i];                                          \
    }                                                                                                          \
    Words total = {};                                                                                          \
    for (const Words& sum : sums) total += sum;                                                                \
    std::uint64_t result = 0;                                                                                  \
    for (std::size_t i = 0; i < sizeof(Words) / sizeof(std::uint64_t); ++i) result += total[i];                \
    return result;                                                                                             \
  }

QUARREL_SPEED_LOOPS(baseline, 16, )
#if defined(__x86_64__)
QUARREL_SPEED_LOOPS(avx2, 32, __attribute__((target("avx2,fma"))))
QUARREL_SPEED_LOOPS(avx512, 64, __attribute__((target("avx512f"))))
#endif
#undef QUARREL_SPEED_LOOPS

Loops best_loops() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return {"avx512", 64, multiply_add_avx512, sum_avx512};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return {"avx2", 32, multiply_add_avx2, sum_avx2};
  }
#endif
  return {"baseline", 16, multiply_add_baseline, sum_baseline};
}

// The seconds of the fastest of several passes.
template <typename Pass>
double fastest(int passes, const Pass& pass) {
  double best = 0.0;
  for (int i = 0; i < passes; ++i) {
    const auto start = Clock::now();
    pass();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (i == 0 || seconds < best) best = seconds;
  }
  return std::max(best, 1e-9);
}

// Keeps the threads of a pool on a core each while it lives, so that none of them waits for another's. Where the
// system does not allow it they stay free.
class PinnedPool {
 public:
  explicit PinnedPool(int threads) : pool_(std::max(1, threads)) {
    CPU_ZERO(&before_);
    if (::sched_getaffinity(0, sizeof before_, &before_) != 0) return;
    std::vector<std::size_t> cores;
    for (std::size_t core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &before_)) cores.push_back(core);
    }
    pinned_ = cores.size() >= static_cast<std::size_t>(pool_.size());
    if (!pinned_) return;
    pool_.run([&](int worker, int) {
      cpu_set_t mask;
      CPU_ZERO(&mask);
      CPU_SET(cores[static_cast<std::size_t>(worker)], &mask);
      ::sched_setaffinity(0, sizeof mask, &mask);
    });
  }
  ~PinnedPool() {
    // The calling thread is worker 0 and lives on.
    if (pinned_) ::sched_setaffinity(0, sizeof before_, &before_);
  }
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  ThreadPool& operator*() noexcept { return pool_; }
  ThreadPool* operator->() noexcept { return &pool_; }

 private:
  ThreadPool pool_;
  cpu_set_t before_;
  bool pinned_ = false;
};

// Each way of reading has its passes, because machines differ in which one is the ceiling.
ReadSpeed read_speed(ThreadPool& pool, std::size_t memory_available) {
  constexpr std::size_t kLargest = std::size_t{1} << 30;
  constexpr std::size_t kSmallest = std::size_t{16} << 20;
  std::size_t bytes = kLargest;
  while (bytes > kSmallest && bytes > memory_available / 4) bytes /= 4;
  const AlignedBuffer buffer(bytes, "measuring the read bandwidth");
  // Fewer pages, fewer walks through their tables; a system without large ones says no, and that is all right.
  ::madvise(buffer.data(), bytes, MADV_HUGEPAGE);
  const Loops loops = best_loops();
  const auto pieces = static_cast<std::int64_t>(bytes / kPiece);
  // Who reads a page writes it first, so that it lies near that thread.
  const auto each_part = [&](const auto& task) {
    pool.for_range(pieces, 8, [&](std::int64_t begin, std::int64_t end) {
      task(buffer.data() + begin * static_cast<std::int64_t>(kPiece), static_cast<std::size_t>(end - begin) * kPiece);
    });
  };
  each_part([](std::byte* data, std::size_t size) { std::memset(data, 1, size); });
  std::atomic<std::uint64_t> total{0};  // what is summed must be wanted, or nothing would be read
  ReadSpeed best{.bytes_per_s = 0.0, .buffer_bytes = bytes, .method = {}};
  for (const std::size_t ahead : {std::size_t{0}, std::size_t{2048}, std::size_t{4096}, std::size_t{8192}}) {
    const double seconds = fastest(kReadPasses, [&] {
      each_part([&](const std::byte* data, std::size_t size) { total += loops.sum(data, size, ahead); });
    });
    const double speed = static_cast<double>(bytes) / seconds;
    if (total == 0 || speed <= best.bytes_per_s) continue;
    best.bytes_per_s = speed;
    best.method = ahead == 0 ? "plain" : fmt::format("prefetch {} KiB ahead", ahead / 1024);
  }
  return best;
}

// The second level belongs to a core, the third is shared.
std::vector<CacheLevel> caches_of(int threads) {
  std::vector<CacheLevel> caches;
  const auto add = [&](const char* name, int question, int count) {
    const long bytes = ::sysconf(question);
    if (bytes > 0) caches.push_back({.name = name, .bytes = static_cast<std::size_t>(bytes) * as_size(count)});
  };
  add("L2", _SC_LEVEL2_CACHE_SIZE, threads);
  add("L3", _SC_LEVEL3_CACHE_SIZE, 1);
  return caches;
}

ArithmeticSpeed f32_peak(ThreadPool& pool) {
  constexpr std::int64_t kRounds = 2'000'000;
  const Loops loops = best_loops();
  std::atomic<float> kept{0.0f};
  const double seconds =
      fastest(kArithmeticPasses, [&] { pool.run([&](int, int) { kept = loops.multiply_add(kRounds); }); });
  const auto lanes = static_cast<double>(loops.vector_bytes) / sizeof(float);
  const double macs = lanes * kChains * static_cast<double>(kRounds) * pool.size();
  return {.macs_per_s = kept != 0.0f ? macs / seconds : 0.0, .instructions = loops.instructions};
}

std::optional<ArithmeticSpeed> peak_of(const std::optional<PeakLoop>& loop, ThreadPool& pool) {
  if (!loop) return std::nullopt;
  // About as long a pass on every machine: the first run says how many rounds that takes.
  std::atomic<std::int64_t> kept{0};
  std::int64_t rounds = 10'000;
  const auto pass = [&] { pool.run([&](int, int) { kept = loop->run(rounds); }); };
  constexpr double kSeconds = 0.01;
  rounds = std::max<std::int64_t>(rounds,
                                  static_cast<std::int64_t>(static_cast<double>(rounds) * kSeconds / fastest(1, pass)));
  const double seconds = fastest(kArithmeticPasses, pass);
  const double macs = loop->macs_per_round * static_cast<double>(rounds) * pool.size();
  return ArithmeticSpeed{.macs_per_s = macs / seconds, .instructions = loop->instructions};
}

}  // namespace

MachineSpeed measure_machine(int threads, std::size_t memory_available) {
  PinnedPool pool(threads);
  MachineSpeed machine;
  machine.threads = pool->size();
  machine.caches = caches_of(machine.threads);
  machine.read = read_speed(*pool, memory_available);
  machine.f32 = f32_peak(*pool);
  machine.integer = peak_of(integer_peak_loop(), *pool);
  machine.int8_tiles = peak_of(int8_tile_peak_loop(), *pool);
  machine.bf16_tiles = peak_of(bf16_tile_peak_loop(), *pool);
  return machine;
}

const ArithmeticSpeed& MachineSpeed::fastest_integer() const {
  const ArithmeticSpeed* best = &f32;
  for (const auto* other : {&integer, &int8_tiles}) {
    if (other->has_value() && other->value().macs_per_s > best->macs_per_s) best = &other->value();
  }
  return *best;
}

}  // namespace quarrel
