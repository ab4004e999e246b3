// The matrix kernel of every weight type at every level this machine has, on one thread, with weights packed and as
// they lie in a file: weight bytes per second for one row of activations (what decoding does), multiply-accumulates per
// second for 8 (several sequences) and 96 rows (a prompt). The matrix fits the second-level cache, so this is what the
// instructions can do; what memory allows is for `quarrel bench` to say.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <random>
#include <vector>

#include "backend/cpu/isa.h"
#include "base/aligned_buffer.h"
#include "quant/types.h"
#include "register.h"

namespace quarrel {
namespace {

constexpr std::size_t kColumns = 2048;
constexpr std::size_t kWeightRows = 256;

constexpr float kAllTwoDigits = 0.0f;
constexpr float kOneDigit = 1e30f;

void matmul(benchmark::State& state, IsaLevel level, QuantType type, std::size_t rows, bool packed, float threshold) {
  const CpuKernels& kernels = kernels_of(level);
  const std::size_t stride = row_bytes(type_info(type), kColumns);
  // Zero blocks: every bit pattern costs the same, and no scale is a NaN.
  const AlignedBuffer weights(kWeightRows * stride, "weights");
  std::vector<float> plain(rows * kColumns);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (float& value : plain) value = normal(random);
  const AlignedBuffer digit_memory(digit_bytes(rows, kColumns), "digits");
  const DigitRows digits = lay_out_digits(digit_memory.data(), kColumns);
  for (std::size_t r = 0; r < rows; ++r) {
    kernels.quantize_row(plain.data() + r * kColumns, kColumns, digits, r, threshold);
  }
  std::vector<float> out(rows * kWeightRows);
  const AlignedBuffer scratch(matmul_scratch_bytes(kColumns), "scratch");
  const MatmulTask task{.weights = weights.data(),
                        .type = type,
                        .packed = packed,
                        .columns = kColumns,
                        .row_stride = stride,
                        .first = 0,
                        .last = kWeightRows,
                        .digits = kernels.has_integer_kernel(type) ? &digits : nullptr,
                        .plain = plain.data(),
                        .plain_stride = kColumns,
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
      benchmark::Counter(turns * static_cast<double>(kWeightRows * stride), benchmark::Counter::kIsRate);
  state.counters["MAC/s"] =
      benchmark::Counter(turns * static_cast<double>(rows * kWeightRows * kColumns), benchmark::Counter::kIsRate);
}

}  // namespace

void register_all() {
  const auto add = [](IsaLevel level, const TypeInfo& info, std::size_t rows, bool packed, float threshold) {
    const std::string name = fmt::format("matmul/{}/{}/{}/rows:{}/{}", level_name(level), info.name,
                                         packed ? "packed" : "in_place", rows, threshold > 0.0f ? "one" : "two");
    benchmark::RegisterBenchmark(
        name.c_str(), [=](benchmark::State& state) { matmul(state, level, info.type, rows, packed, threshold); })
        ->Unit(benchmark::kMicrosecond)
        ->MinTime(0.05);
  };
  for (const IsaLevel level : available_levels()) {
    for (const TypeInfo& info : all_types()) {
      const bool packs = kernels_of(level).panel_bytes(info.type, kColumns) > 0;
      for (const bool packed : {false, true}) {
        if (packed && !packs) continue;
        add(level, info, 1, packed, kAllTwoDigits);
        add(level, info, 8, packed, kAllTwoDigits);
        add(level, info, 96, packed, kOneDigit);
        add(level, info, 96, packed, kAllTwoDigits);
      }
    }
  }
}

}  // namespace quarrel
