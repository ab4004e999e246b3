// The GEMM kernel of every weight type at every level this machine has, on one thread, with weights packed and as
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

constexpr float kSplitEverywhere = 0.0f;
constexpr float kSplitNowhere = 1e30f;

void gemm(benchmark::State& state, IsaLevel level, QuantType type, std::size_t rows, bool packed, float threshold) {
  const CpuKernels& kernels = kernels_of(level);
  const std::size_t stride = row_bytes(type_info(type), kColumns);
  // Zero blocks: every bit pattern costs the same, and no scale is a NaN.
  const AlignedBuffer weights(kWeightRows * stride, "weights");
  std::vector<float> values(rows * kColumns);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (float& value : values) value = normal(random);
  const AlignedBuffer int8_memory(int8_bytes(rows, kColumns), "int8");
  const Int8Rows int8 = lay_out_int8(int8_memory.data(), kColumns);
  for (std::size_t r = 0; r < rows; ++r) {
    kernels.quantize_row(values.data() + r * kColumns, kColumns, int8, r, threshold);
  }
  std::vector<float> out(rows * kWeightRows);
  const AlignedBuffer scratch(gemm_scratch_bytes(kColumns), "scratch");
  const WeightRows rows_of_weights{.data = weights.data(),
                                   .type = type,
                                   .packed = packed,
                                   .columns = kColumns,
                                   .row_stride = stride,
                                   .first = 0,
                                   .last = kWeightRows};
  const GemmOutput to{out.data(), kWeightRows};
  const TypeKernels& type_kernels = kernels.of(type);
  const Int8Gemm in_int8{.weights = rows_of_weights, .x = &int8, .rows = rows, .out = to, .scratch = scratch.data()};
  const F32Gemm in_f32{.weights = rows_of_weights,
                       .x = values.data(),
                       .x_stride = kColumns,
                       .rows = rows,
                       .out = to,
                       .scratch = scratch.data()};
  for (auto _ : state) {
    if (type_kernels.gemm_int8 != nullptr) {
      type_kernels.gemm_int8(in_int8);
    } else {
      type_kernels.gemm_f32(in_f32);
    }
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
    const std::string name = fmt::format("gemm/{}/{}/{}/rows:{}/{}", level_name(level), info.name,
                                         packed ? "packed" : "in_place", rows, threshold > 0.0f ? "int8" : "split");
    benchmark::RegisterBenchmark(
        name.c_str(), [=](benchmark::State& state) { gemm(state, level, info.type, rows, packed, threshold); })
        ->Unit(benchmark::kMicrosecond)
        ->MinTime(0.05);
  };
  for (const IsaLevel level : available_levels()) {
    for (const TypeInfo& info : all_types()) {
      const bool packs = kernels_of(level).of(info.type).panel_bytes != nullptr;
      for (const bool packed : {false, true}) {
        if (packed && !packs) continue;
        add(level, info, 1, packed, kSplitEverywhere);
        add(level, info, 8, packed, kSplitEverywhere);
        add(level, info, 96, packed, kSplitNowhere);
        add(level, info, 96, packed, kSplitEverywhere);
      }
    }
  }
}

}  // namespace quarrel
