// GEMMs of F16 with F32 sums: cuBLASLt as we call it, and CUTLASS's collectives for Hopper.
#include <fmt/format.h>

#include <limits>

#include "backend/cuda/dense_gemm.h"
#include "base/as_size.h"
#include "cuda_peers/subjects.h"

namespace quarrel::cuda {
namespace {

struct Shape {
  const char* name;
  int tokens;
  int rows;
  int columns;
};

struct Kind {
  const char* name;
  PeerCall (*make)(const PeerGemm&, int swizzle, const LaunchContext&);
};

// Normal numbers, a million of them over and over: how many is prime, so no two rows are the same.
DeviceBuffer random_matrix(Fixture& fixture, int rows, int columns) {
  constexpr std::size_t kPeriod = 1048573;
  const auto some = to_halves(random_values(kPeriod, 1.0f, fixture.random()));
  std::vector<std::uint16_t> numbers(as_size(rows) * as_size(columns));
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = some[i % kPeriod];
  return to_device(numbers);
}

void compare(Fixture& fixture, const Shape& shape) {
  const DeviceBuffer weight = random_matrix(fixture, shape.rows, shape.columns);
  const DeviceBuffer in = random_matrix(fixture, shape.tokens, shape.columns);
  const DeviceBuffer out = poisoned(as_size(shape.tokens) * as_size(shape.rows) * 2);
  DenseGemm gemm;
  const PeerCall ours = [&](const LaunchContext& context) {
    gemm.run(context, {.tokens = shape.tokens, .rows = shape.rows, .columns = shape.columns, .f32_out = false},
             weight.data(), in.data(), out.data());
  };
  const PeerGemm peer{.weight = weight.as<std::uint16_t>(),
                      .in = in.as<std::uint16_t>(),
                      .out = out.as<std::uint16_t>(),
                      .tokens = shape.tokens,
                      .rows = shape.rows,
                      .columns = shape.columns};
  ours(fixture.context());
  const std::vector<float> results = results_of(out);
  const std::string what = fmt::format("{} {}x{}x{}", shape.name, shape.tokens, shape.rows, shape.columns);
  const double operations = 2.0 * shape.tokens * shape.rows * shape.columns;
  const auto time = [&](const PeerCall& call) {
    return fixture.microseconds(8, fixture.context_without_overlap(),
                                [&](int, const LaunchContext& context) { call(context); });
  };
  if (fixture.times()) {
    const double microseconds = time(ours);
    if (fixture.gemm_rate() == 0.0) fixture.set_gemm_rate(operations / (microseconds * 1e-6));
    fixture.report_operations(what + ", cuBLASLt", microseconds, operations);
  }
  // As its own profiler does: the best way to walk over the tiles depends on the shape.
  for (const Kind& kind : {Kind{"cooperative", cutlass_cooperative}, Kind{"ping-pong", cutlass_pingpong}}) {
    double best = std::numeric_limits<double>::infinity();
    int best_swizzle = 0;
    for (const int swizzle : {1, 2, 4, 8}) {
      const PeerCall call = kind.make(peer, swizzle, fixture.context());
      if (swizzle == 1) check_peer(fixture, fmt::format("{}, CUTLASS {}", what, kind.name), call, out, results);
      if (!fixture.times()) break;
      const double microseconds = time(call);
      if (microseconds >= best) continue;
      best = microseconds;
      best_swizzle = swizzle;
    }
    if (!fixture.times()) continue;
    fixture.report_operations(fmt::format("{}, CUTLASS {}, {} wide", what, kind.name, best_swizzle), best, operations);
  }
}

}  // namespace

void compare_gemms(Fixture& fixture) {
  // The first one says what the machine can do at best; then those of a layer of a 7B model.
  for (const Shape& shape :
       {Shape{"square", 8192, 8192, 8192}, Shape{"qkv", 2048, 6144, 4096}, Shape{"o", 2048, 4096, 4096},
        Shape{"gate and up", 2048, 28672, 4096}, Shape{"down", 2048, 4096, 14336}}) {
    compare(fixture, shape);
  }
}

}  // namespace quarrel::cuda
