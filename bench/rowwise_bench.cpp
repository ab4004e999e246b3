// The kernels that go over one row of activations, at every level this machine has, on one thread: values per second
// and the bytes that they read and write, for a row that lies in the nearest cache.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/int8_rows.h"
#include "backend/cpu/isa.h"
#include "base/aligned_buffer.h"
#include "register.h"

namespace quarrel {
namespace {

constexpr std::size_t kColumns = 2048;
constexpr std::size_t kHead = 64;    // values of a head
constexpr std::size_t kState = 128;  // values a channel of a state-space layer
constexpr std::size_t kTaps = 4;

std::vector<float> random_row(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> row(count);
  for (float& value : row) value = normal(random);
  return row;
}

// What the kernels work on. Values are put back before each turn where a kernel changes them in place: otherwise they
// would grow or vanish, and arithmetic on such numbers is not the usual one.
struct Rows {
  std::vector<float> source = random_row(kColumns, 1);
  std::vector<float> weight = random_row(kColumns, 2);
  std::vector<float> other = random_row(kColumns, 3);
  std::vector<float> values = source;
  std::vector<std::uint16_t> halves = std::vector<std::uint16_t>(kColumns);
  AlignedBuffer int8_memory = AlignedBuffer(int8_bytes(1, kColumns), "int8");
  Int8Rows int8 = lay_out_int8(int8_memory.data(), kColumns);
};

struct RowKernel {
  const char* name;
  std::size_t bytes;  // read and written a value
  std::function<void(const CpuKernels&, Rows&)> run;
};

std::vector<RowKernel> row_kernels() {
  const auto in_place = [](const auto& kernel) {
    return [kernel](const CpuKernels& kernels, Rows& rows) {
      std::copy(rows.source.begin(), rows.source.end(), rows.values.begin());
      kernel(kernels, rows.values.data(), rows);
    };
  };
  return {
      // What the others in place begin with.
      {"copy", 8, in_place([](const CpuKernels&, float*, Rows&) {})},
      {"rms_norm", 12,
       [](const CpuKernels& k, Rows& r) {
         k.rms_norm(r.source.data(), r.weight.data(), r.values.data(), kColumns, 1e-5f);
       }},
      {"layer_norm", 16,
       [](const CpuKernels& k, Rows& r) {
         k.layer_norm(r.source.data(), r.weight.data(), r.other.data(), r.values.data(), kColumns, 1e-5f);
       }},
      {"quantize_row/int8", 5,
       [](const CpuKernels& k, Rows& r) { k.quantize_row(r.source.data(), kColumns, r.int8, 0, 1e30f); }},
      {"quantize_row/split", 6,
       [](const CpuKernels& k, Rows& r) { k.quantize_row(r.source.data(), kColumns, r.int8, 0, 0.0f); }},
      {"store_half", 6, [](const CpuKernels& k, Rows& r) { k.store_half(r.source.data(), r.halves.data(), kColumns); }},
      {"add", 12, in_place([](const CpuKernels& k, float* v, Rows& r) { k.add(v, r.other.data(), kColumns); })},
      {"add_scaled", 12,
       in_place([](const CpuKernels& k, float* v, Rows& r) { k.add_scaled(v, r.other.data(), 0.5f, kColumns); })},
      {"multiply", 12,
       in_place([](const CpuKernels& k, float* v, Rows& r) { k.multiply(v, r.other.data(), kColumns); })},
      {"silu", 8, in_place([](const CpuKernels& k, float* v, Rows&) { k.silu(v, kColumns); })},
      {"swiglu", 12, in_place([](const CpuKernels& k, float* v, Rows& r) { k.swiglu(v, r.other.data(), kColumns); })},
      {"softmax", 8, in_place([](const CpuKernels& k, float* v, Rows&) { k.softmax(v, kColumns); })},
      {"load_half", 6, [](const CpuKernels& k, Rows& r) { k.load_half(r.halves.data(), r.values.data(), kColumns); }},
      {"swiglu_clamped", 12, in_place([](const CpuKernels& k, float* v, Rows& r) {
         k.swiglu_clamped(v, r.other.data(), 7.0f, 1.702f, kColumns);
       })},
      {"gelu_tanh", 8, in_place([](const CpuKernels& k, float* v, Rows&) { k.gelu_tanh(v, kColumns); })},
      {"relu_squared", 8, in_place([](const CpuKernels& k, float* v, Rows&) { k.relu_squared(v, kColumns); })},
      {"soft_cap", 8, in_place([](const CpuKernels& k, float* v, Rows&) { k.soft_cap(v, 1.0f, 30.0f, kColumns); })},
      {"softplus", 12,
       [](const CpuKernels& k, Rows& r) { k.softplus(r.source.data(), r.other.data(), r.values.data(), kColumns); }},
      {"rotate_half", 12, in_place([](const CpuKernels& k, float* v, Rows& r) {
         for (std::size_t head = 0; head < kColumns; head += kHead) {
           k.rotate_half(v + head, r.weight.data(), r.other.data(), kHead / 2);
         }
       })},
      {"rotate_interleaved", 12, in_place([](const CpuKernels& k, float* v, Rows& r) {
         for (std::size_t head = 0; head < kColumns; head += kHead) {
           k.rotate_interleaved(v + head, r.weight.data(), r.other.data(), kHead / 2);
         }
       })},
  };
}

void count(benchmark::State& state, std::size_t values, std::size_t bytes) {
  const auto turns = static_cast<double>(state.iterations());
  state.counters["values/s"] = benchmark::Counter(turns * static_cast<double>(values), benchmark::Counter::kIsRate);
  state.counters["bytes/s"] =
      benchmark::Counter(turns * static_cast<double>(values * bytes), benchmark::Counter::kIsRate);
}

void row_kernel(benchmark::State& state, IsaLevel level, const RowKernel& kernel) {
  const CpuKernels& kernels = kernels_of(level);
  Rows rows;
  for (auto _ : state) {
    kernel.run(kernels, rows);
    benchmark::ClobberMemory();
  }
  count(state, kColumns, kernel.bytes);
}

// One row through one head of a Mamba-2 layer, and through the convolution of a block of channels.
void scan(benchmark::State& state, IsaLevel level) {
  const CpuKernels& kernels = kernels_of(level);
  const std::int32_t row = 0;
  const std::vector<float> x = random_row(kHead, 6);
  const std::vector<float> b = random_row(kState, 7);
  const std::vector<float> z = random_row(kHead, 8);
  const float dt = 0.1f;
  const float a = -1.0f;
  std::vector<float> out(kHead);
  std::vector<float> values(kHead * kState);
  const ScanTask task{.rows = &row,
                      .count = 1,
                      .dim = kHead,
                      .state = kState,
                      .x = x.data(),
                      .b = b.data(),
                      .c = b.data(),
                      .dt = &dt,
                      .z = z.data(),
                      .out = out.data(),
                      .a = &a,
                      .values = values.data()};
  for (auto _ : state) {
    kernels.scan_head(task);
    benchmark::ClobberMemory();
  }
  count(state, values.size(), 2 * sizeof(float));
}

void convolve(benchmark::State& state, IsaLevel level) {
  const CpuKernels& kernels = kernels_of(level);
  const std::int32_t row = 0;
  const std::vector<float> in = random_row(kSsmStrip, 9);
  const std::vector<float> history = random_row((kTaps - 1) * kSsmStrip, 10);
  const std::vector<float> weights = random_row(kTaps * kSsmStrip, 11);
  const std::vector<float> bias = random_row(kSsmStrip, 12);
  std::vector<float> out(kSsmStrip);
  const ConvTask task{.in = in.data(),
                      .out = out.data(),
                      .rows = &row,
                      .count = 1,
                      .channels = kSsmStrip,
                      .taps = kTaps,
                      .history = history.data(),
                      .weights = weights.data(),
                      .bias = bias.data()};
  for (auto _ : state) {
    kernels.convolve(task);
    benchmark::ClobberMemory();
  }
  count(state, kSsmStrip, (2 * kTaps + 2) * sizeof(float));
}

void register_one(const std::string& name, const std::function<void(benchmark::State&)>& run) {
  benchmark::RegisterBenchmark(name.c_str(), run)->Unit(benchmark::kMicrosecond)->MinTime(0.05);
}

}  // namespace

void register_all() {
  for (const IsaLevel level : available_levels()) {
    for (const RowKernel& kernel : row_kernels()) {
      register_one(fmt::format("{}/{}", kernel.name, level_name(level)),
                   [level, kernel](benchmark::State& state) { row_kernel(state, level, kernel); });
    }
    register_one(fmt::format("scan_head/{}", level_name(level)), [=](benchmark::State& state) { scan(state, level); });
    register_one(fmt::format("convolve/{}", level_name(level)),
                 [=](benchmark::State& state) { convolve(state, level); });
  }
}

}  // namespace quarrel
