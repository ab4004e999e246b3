// The matrix kernel of every weight type at every level this machine has, on one thread: weight bytes per second for
// one row of activations (what decoding does), multiply-accumulates per second for 64 rows (what a prompt does).
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "backend/cpu/isa.h"
#include "quant/types.h"

namespace quarrel {
namespace {

constexpr std::size_t kColumns = 2048;
constexpr std::size_t kWeightRows = 1024;

// Memory and views for `rows` rows of activations.
struct Rows {
  explicit Rows(std::size_t rows)
      : plain(rows * kColumns), high(rows * kColumns), low(rows * kColumns), floats(4 * rows * kColumns / 16) {
    const std::size_t groups32 = kColumns / 32;
    const std::size_t groups16 = kColumns / 16;
    digits = {.high = high.data(),
              .low = low.data(),
              .scales32 = floats.data(),
              .sums32 = floats.data() + rows * groups32,
              .scales16 = floats.data() + 2 * rows * groups32,
              .sums16 = floats.data() + 2 * rows * groups32 + rows * groups16,
              .stride = kColumns,
              .groups32 = groups32,
              .groups16 = groups16};
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (float& value : plain) value = normal(random);
  }
  std::vector<float> plain;
  std::vector<std::int8_t> high, low;
  std::vector<float> floats;
  QuantizedRows digits;
};

void matmul(benchmark::State& state, IsaLevel level, QuantType type, std::size_t rows) {
  const CpuKernels& kernels = kernels_of(level);
  const std::size_t bytes = row_bytes(type_info(type), kColumns);
  // Zero blocks: every bit pattern costs the same, and no scale is a NaN.
  const std::vector<std::byte> weights(kWeightRows * bytes);
  Rows x(rows);
  for (std::size_t r = 0; r < rows; ++r)
    kernels.quantize_row(x.plain.data() + r * kColumns, kColumns, x.digits, r, true);
  std::vector<float> out(rows * kWeightRows);
  std::vector<std::byte> scratch(512 * 1024);
  const MatmulTask task{.weights = weights.data(),
                        .type = type,
                        .columns = kColumns,
                        .row_bytes = bytes,
                        .first = 0,
                        .last = kWeightRows,
                        .quantized = &x.digits,
                        .plain = x.plain.data(),
                        .plain_stride = kColumns,
                        .two_digit_rows = rows,
                        .rows = rows,
                        .out = out.data(),
                        .out_stride = kWeightRows,
                        .scratch = scratch.data()};
  for (auto _ : state) {
    kernels.matmul(task);
    benchmark::DoNotOptimize(out.data());
  }
  const auto turns = static_cast<double>(state.iterations());
  state.counters["weight_bytes/s"] =
      benchmark::Counter(turns * static_cast<double>(weights.size()), benchmark::Counter::kIsRate);
  state.counters["MAC/s"] =
      benchmark::Counter(turns * static_cast<double>(rows * kWeightRows * kColumns), benchmark::Counter::kIsRate);
}

void register_all() {
  for (const IsaLevel level : available_levels()) {
    for (const TypeInfo& info : all_types()) {
      for (const std::size_t rows : {std::size_t{1}, std::size_t{64}}) {
        const std::string name = fmt::format("matmul/{}/{}/rows:{}", level_name(level), info.name, rows);
        benchmark::RegisterBenchmark(name.c_str(),
                                     [=](benchmark::State& state) { matmul(state, level, info.type, rows); })
            ->Unit(benchmark::kMicrosecond)
            ->MinTime(0.05);
      }
    }
  }
}

}  // namespace
}  // namespace quarrel

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  quarrel::register_all();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
