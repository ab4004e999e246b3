#include "app/machine_speed.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"

// This file is compiled with optimisation and fused multiply-adds in every build: it measures the machine, not the
// build.
namespace quarrel {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPasses = 5;
constexpr int kChains = 12;  // independent sums, enough to keep two units of four cycles busy

// Vectors of whatever width the compiler is told the machine has.
template <std::size_t kBytes>
struct Vectors {
  typedef float Floats __attribute__((vector_size(kBytes)));
  typedef std::uint64_t Words __attribute__((vector_size(kBytes)));
};

struct Loops {
  const char* instructions;
  std::size_t vector_bytes;
  float (*multiply_add)(std::int64_t rounds);                      // each round: kChains vectors
  std::uint64_t (*sum)(const std::byte* data, std::size_t bytes);  // of 64-bit words; `bytes` a multiple of 512
};

// A macro, because a target attribute cannot be a template's parameter, and a vector must not be passed between
// functions compiled for different targets.
#define QUARREL_SPEED_LOOPS(name, vector_bytes_, attributes)                                    \
  attributes float multiply_add_##name(std::int64_t rounds) {                                   \
    using Floats = Vectors<vector_bytes_>::Floats;                                              \
    Floats sums[kChains];                                                                       \
    for (int i = 0; i < kChains; ++i) sums[i] = Floats{} + static_cast<float>(i);               \
    const Floats factor = Floats{} + 0.9999f;                                                   \
    const Floats term = Floats{} + 0.0001f;                                                     \
    for (std::int64_t round = 0; round < rounds; ++round) {                                     \
      for (Floats & sum : sums) sum = sum * factor + term;                                      \
    }                                                                                           \
    Floats total = sums[0];                                                                     \
    for (int i = 1; i < kChains; ++i) total += sums[i];                                         \
    return total[0];                                                                            \
  }                                                                                             \
  attributes std::uint64_t sum_##name(const std::byte* data, std::size_t bytes) {               \
    using Words = Vectors<vector_bytes_>::Words;                                                \
    constexpr std::size_t kStreams = 512 / sizeof(Words);                                       \
    Words sums[kStreams] = {};                                                                  \
    for (std::size_t at = 0; at < bytes; at += 512) {                                           \
      const Words* words = reinterpret_cast<const Words*>(data + at);                           \
      for (std::size_t i = 0; i < kStreams; ++i) sums[i] += words[i];                           \
    }                                                                                           \
    Words total = {};                                                                           \
    for (const Words& sum : sums) total += sum;                                                 \
    std::uint64_t result = 0;                                                                   \
    for (std::size_t i = 0; i < sizeof(Words) / sizeof(std::uint64_t); ++i) result += total[i]; \
    return result;                                                                              \
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
double fastest(const Pass& pass) {
  double best = 0.0;
  for (int i = 0; i < kPasses; ++i) {
    const auto start = Clock::now();
    pass();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (i == 0 || seconds < best) best = seconds;
  }
  return std::max(best, 1e-9);
}

}  // namespace

ReadSpeed measure_read_speed(int threads, std::size_t memory_available) {
  constexpr std::size_t kLargest = std::size_t{1} << 30;
  constexpr std::size_t kSmallest = std::size_t{16} << 20;
  std::size_t bytes = kLargest;
  while (bytes > kSmallest && bytes > memory_available / 4) bytes /= 4;
  const AlignedBuffer buffer(bytes, "measuring the read bandwidth");
  const Loops loops = best_loops();
  ThreadPool pool(std::max(1, threads));
  const auto blocks = static_cast<std::int64_t>(bytes / 512);
  // Who reads a page writes it first, so that it lies near that thread.
  const auto each_part = [&](const auto& task) {
    pool.for_range(blocks, 8, [&](std::int64_t begin, std::int64_t end) {
      task(buffer.data() + begin * 512, static_cast<std::size_t>(end - begin) * 512);
    });
  };
  each_part([](std::byte* data, std::size_t size) { std::memset(data, 1, size); });
  std::atomic<std::uint64_t> total{0};  // what is summed must be wanted, or nothing would be read
  const double seconds =
      fastest([&] { each_part([&](const std::byte* data, std::size_t size) { total += loops.sum(data, size); }); });
  return {.bytes_per_s = total != 0 ? static_cast<double>(bytes) / seconds : 0.0, .buffer_bytes = bytes};
}

ArithmeticSpeed measure_f32_peak(int threads) {
  constexpr std::int64_t kRounds = 4'000'000;
  const Loops loops = best_loops();
  ThreadPool pool(std::max(1, threads));
  std::atomic<float> kept{0.0f};
  const double seconds = fastest([&] { pool.run([&](int, int) { kept = loops.multiply_add(kRounds); }); });
  const auto lanes = static_cast<double>(loops.vector_bytes) / sizeof(float);
  const double flops = 2.0 * lanes * kChains * static_cast<double>(kRounds) * pool.size();
  return {.flops_per_s = kept != 0.0f ? flops / seconds : 0.0, .instructions = loops.instructions};
}

}  // namespace quarrel
