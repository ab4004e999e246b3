// The attention kernel at every level this machine has, on one thread and an F16 cache: bytes of keys and values read
// per second for one row at several depths (what decoding does), floating-point operations per second for the rows of a
// prompt. The cache lies as a model's does: blocks of all layers and heads, in an order of their own.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "backend/cpu/isa.h"
#include "base/aligned_buffer.h"
#include "register.h"

namespace quarrel {
namespace {

struct HeadShape {
  const char* name;
  std::int32_t query_heads;  // query heads that share a head of keys and values
  std::int32_t dim;
};
constexpr std::array kShapes = {HeadShape{.name = "3x64", .query_heads = 3, .dim = 64},
                                HeadShape{.name = "8x64", .query_heads = 8, .dim = 64},
                                HeadShape{.name = "4x128", .query_heads = 4, .dim = 128}};

std::size_t as_size(std::int64_t value) { return static_cast<std::size_t>(value); }

// `rows` queries at the end of `context` positions, and `heads` heads of keys and values for each of them.
class Setting {
 public:
  Setting(const HeadShape& shape, std::int32_t context, std::int32_t rows, std::int32_t heads)
      : shape_(shape),
        context_(context),
        rows_(rows),
        tile_rows_(std::clamp(kAttendQueries / shape.query_heads, 1, kAttendRows)),
        head_bytes_(as_size(2 * kKvBlock * shape.dim) * sizeof(std::uint16_t)),
        heads_(as_size(heads)),
        blocks_(as_size((context + kKvBlock - 1) / kKvBlock)),
        cache_(head_bytes_ * heads_ * blocks_.size(), "a benchmark's cache"),
        q_(as_size(rows) * width()),
        out_(q_.size()),
        scratch_(
            attend_scratch_floats(as_size(tile_rows_ * shape.query_heads), as_size(shape.dim), as_size(shape.dim)) *
                sizeof(float),
            "a benchmark's scratch") {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (float& value : q_) value = normal(random);
    // Halves between 1 and 2, half of them negative.
    for (std::size_t i = 0; i < cache_.size(); i += sizeof(std::uint16_t)) {
      const auto bits = static_cast<std::uint16_t>(0x3c00u | (random() & 0x83ffu));
      std::memcpy(cache_.data() + i, &bits, sizeof bits);
    }
    std::iota(blocks_.begin(), blocks_.end(), 0);
    std::ranges::shuffle(blocks_, random);
    for (std::int32_t r = 0; r < rows; ++r) {
      begins_.push_back(0);
      ends_.push_back(context - rows + r + 1);
    }
  }

  void attend(const CpuKernels& kernels, std::size_t head) {
    for (std::int32_t first = 0; first < rows_; first += tile_rows_) {
      kernels.attend({.q = q_.data() + as_size(first) * width(),
                      .q_stride = width(),
                      .out = out_.data() + as_size(first) * width(),
                      .out_stride = width(),
                      .rows = std::min(tile_rows_, rows_ - first),
                      .query_heads = shape_.query_heads,
                      .key_dim = shape_.dim,
                      .value_dim = shape_.dim,
                      .f16 = true,
                      .base = cache_.data() + head % heads_ * head_bytes_,
                      .kv_block_bytes = head_bytes_ * heads_,
                      .kv_blocks = blocks_.data(),
                      .begins = begins_.data() + first,
                      .ends = ends_.data() + first,
                      .scale = 0.02f,
                      .scratch = scratch_.floats()});
    }
    benchmark::DoNotOptimize(out_.data());
  }

  double bytes() const { return static_cast<double>(head_bytes_) / kKvBlock * context_; }
  double flops() const {
    double positions = 0.0;
    for (const std::int32_t end : ends_) positions += end;
    return positions * shape_.query_heads * shape_.dim * 4.0;
  }

 private:
  std::size_t width() const { return as_size(shape_.query_heads * shape_.dim); }

  HeadShape shape_;
  std::int32_t context_, rows_, tile_rows_;
  std::size_t head_bytes_, heads_;
  std::vector<std::int32_t> blocks_;
  AlignedBuffer cache_;
  std::vector<float> q_, out_;
  AlignedBuffer scratch_;
  std::vector<std::int32_t> begins_, ends_;
};

void run(benchmark::State& state, IsaLevel level, const HeadShape& shape, std::int32_t context, std::int32_t rows) {
  // Decoding walks through a model's layers, so that a head's cache is cold when its turn comes again.
  constexpr std::int32_t kPositions = 400'000;
  Setting setting(shape, context, rows, rows == 1 ? std::clamp(kPositions / context, 2, 90) : 1);
  std::size_t head = 0;
  for (auto _ : state) setting.attend(kernels_of(level), head++);
  const auto turns = static_cast<double>(state.iterations());
  if (rows == 1)
    state.counters["KV bytes/s"] = benchmark::Counter(turns * setting.bytes(), benchmark::Counter::kIsRate);
  state.counters["FLOP/s"] = benchmark::Counter(turns * setting.flops(), benchmark::Counter::kIsRate);
}

void add(IsaLevel level, const HeadShape& shape, const char* kind, std::int32_t context, std::int32_t rows) {
  const std::string name = fmt::format("{}/{}/{}/{}", kind, level_name(level), shape.name, context);
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) { run(state, level, shape, context, rows); })
      ->Unit(benchmark::kMicrosecond)
      ->MinTime(0.1);
}

}  // namespace

void register_all() {
  for (const IsaLevel level : available_levels()) {
    for (const HeadShape& shape : kShapes) {
      for (const std::int32_t context : {512, 4096, 32768}) add(level, shape, "decode", context, 1);
      for (const std::int32_t context : {512, 4096}) add(level, shape, "prefill", context, 512);
    }
  }
}

}  // namespace quarrel
