// GEMMs of a few dozen rows with packed weights, by both kernels that do them, against sums in double, for every format
// and every way to end; then times.
#include "backend/cuda/packed_gemm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "backend/cuda/mixed_gemm.h"
#include "backend/cuda/repack.h"
#include "base/as_size.h"
#include "cuda/fixture.h"
#include "cuda/random_weights.h"
#include "quant/half.h"

namespace quarrel::cuda {
namespace {

constexpr double kBound = 1e-7;       // types without minimums stand at 1e-14
constexpr double kMixedBound = 2e-7;  // weights and their scales are rounded to F16
constexpr std::size_t kPartFloats = std::size_t{16} << 20;

std::vector<std::uint16_t> halves_of(const std::vector<float>& values) {
  std::vector<std::uint16_t> halves;
  for (const float value : values) halves.push_back(f32_to_f16_saturating(value));
  return halves;
}

// A kernel that leaves the parts of a GEMM; how many slabs they are, 0 where it cannot be cut.
struct Way {
  std::string name;
  double bound;
  int (*run)(const LaunchContext& context, const PackedGemmOp& op, std::uint16_t* image);
};

int run_packed(const LaunchContext& context, const PackedGemmOp& op, std::uint16_t*) {
  const auto plan = plan_packed_gemm(context, op, kPartFloats);
  if (plan) packed_gemm(context, op, *plan);
  return plan ? plan->slabs : 0;
}

int run_mixed(const LaunchContext& context, const PackedGemmOp& op, std::uint16_t* image) {
  const auto plan = plan_mixed_gemm(context, op, kPartFloats);
  if (plan) mixed_gemm(context, op, *plan, image);
  return plan ? plan->slabs : 0;
}

std::vector<Way> ways(const Fixture& fixture, int rows) {
  std::vector<Way> found;
  if (rows <= kMaxPackedGemmRows) found.push_back({.name = "packed gemm", .bound = kBound, .run = run_packed});
  if (fixture.context().has_wgmma) found.push_back({.name = "mixed gemm", .bound = kMixedBound, .run = run_mixed});
  return found;
}

// [rows][all rows of the matrices]
std::vector<double> exact_products(const std::vector<std::unique_ptr<RandomMatrix>>& matrices,
                                   const std::vector<std::uint16_t>& in, int rows, int columns) {
  int width = 0;
  for (const auto& matrix : matrices) width += matrix->packed.rows;
  std::vector<double> exact(as_size(rows) * as_size(width));
  int first = 0;
  for (const auto& matrix : matrices) {
    parallel_for(matrix->packed.rows, [&](int o) {
      const auto weights = matrix->row(o);
      for (int r = 0; r < rows; ++r) {
        double sum = 0.0;
        for (std::size_t c = 0; c < as_size(columns); ++c) {
          sum +=
              static_cast<double>(weights[c]) * static_cast<double>(f16_to_f32(in[as_size(r) * as_size(columns) + c]));
        }
        exact[as_size(r) * as_size(width) + as_size(first + o)] = sum;
      }
    });
    first += matrix->packed.rows;
  }
  return exact;
}

void test_products(Fixture& fixture, const std::vector<WeightFormat>& formats, int out_rows, int columns, int rows) {
  std::vector<std::unique_ptr<RandomMatrix>> matrices;
  PackedGemmOp op{.rows = rows, .columns = columns, .matrix_count = static_cast<int>(formats.size())};
  std::string shape;
  for (std::size_t i = 0; i < formats.size(); ++i) {
    matrices.push_back(std::make_unique<RandomMatrix>(formats[i], out_rows, columns, fixture.random()));
    op.matrices[i] = matrices.back()->packed;
    shape += fmt::format(" {}", type_info(quant_type(formats[i])).name);
  }
  shape += fmt::format(" {}x{}, {} rows", out_rows, columns, rows);
  const int width = op.width();
  const auto in = halves_of(random_values(as_size(rows) * as_size(columns), 1.0f, fixture.random()));
  const DeviceBuffer device_in = to_device(in);
  const auto exact = exact_products(matrices, in, rows, columns);
  const auto bias = random_values(as_size(width), 1.0f, fixture.random());
  const DeviceBuffer device_bias = to_device(bias);
  op.in = device_in.as<std::uint16_t>();
  for (const Way& way : ways(fixture, rows)) {
    const std::string name = way.name + shape;
    const DeviceBuffer parts = poisoned(kPartFloats * 4);
    const DeviceBuffer out = poisoned(as_size(rows) * as_size(width) * 4);
    op.parts = parts.as<float>();
    const DeviceBuffer image = poisoned(image_numbers(rows, columns) * 2);
    const int slabs = way.run(fixture.context(), op, image.as<std::uint16_t>());
    fixture.check(name, slabs > 0, "can be cut");
    if (slabs == 0) continue;
    JoinPartsOp join{
        .parts = op.parts, .slabs = slabs, .rows = rows, .width = width, .out = out.as<float>(), .out_stride = width};
    join_parts(fixture.context(), join);
    fixture.check(name, difference(to_host(out.as<float>(), exact.size()), exact), way.bound);
    // Added to what is there, with a bias and a scale.
    join.end = PartsEnd::add;
    join.bias = device_bias.as<float>();
    join.scale = 0.5f;
    join_parts(fixture.context(), join);
    std::vector<double> added(exact.size());
    for (std::size_t i = 0; i < added.size(); ++i) {
      added[i] = 1.5 * exact[i] + 0.5 * static_cast<double>(bias[i % as_size(width)]);
    }
    fixture.check(name + ", added", difference(to_host(out.as<float>(), added.size()), added), way.bound);
  }
}

// A row's bits do not depend on how many others there are, where the columns are cut alike.
void test_neighbours(Fixture& fixture) {
  if (!fixture.context().has_wgmma) return;
  constexpr int kMost = 200;
  constexpr int kColumns = 1024;
  const RandomMatrix matrix(WeightFormat::q4_k, 160, kColumns, fixture.random());
  const auto in = halves_of(random_values(std::size_t{kMost} * kColumns, 1.0f, fixture.random()));
  const DeviceBuffer device_in = to_device(in);
  const DeviceBuffer parts = poisoned(kPartFloats * 4);
  std::vector<float> all;
  for (const int rows : {kMost, 192, 130, 100, 70, 40, 7}) {
    PackedGemmOp op{.in = device_in.as<std::uint16_t>(), .rows = rows, .columns = kColumns, .matrix_count = 1};
    op.matrices[0] = matrix.packed;
    op.parts = parts.as<float>();
    const DeviceBuffer image = poisoned(image_numbers(rows, kColumns) * 2);
    mixed_gemm(fixture.context(), op, {.slab_chunks = 4, .slabs = 1}, image.as<std::uint16_t>());
    const auto results = to_host(op.parts, as_size(rows) * as_size(op.width()));
    if (all.empty()) all = results;
    fixture.check(fmt::format("mixed gemm, {} rows", rows), std::equal(results.begin(), results.end(), all.begin()),
                  "the same bits as among others");
  }
}

void test_glu(Fixture& fixture) {
  constexpr int kRows = 11;
  constexpr int kOut = 80;
  constexpr int kColumns = 512;
  std::vector<std::unique_ptr<RandomMatrix>> matrices;
  for (int i = 0; i < 2; ++i) {
    matrices.push_back(std::make_unique<RandomMatrix>(WeightFormat::q5_k, kOut, kColumns, fixture.random()));
  }
  const auto in = halves_of(random_values(as_size(kRows) * kColumns, 0.2f, fixture.random()));
  const DeviceBuffer device_in = to_device(in);
  const DeviceBuffer parts = poisoned(std::size_t{1} << 20);
  const DeviceBuffer out = poisoned(as_size(kRows) * kOut * 4);
  const DeviceBuffer halves = poisoned(as_size(kRows) * kOut * 2);
  PackedGemmOp op{.in = device_in.as<std::uint16_t>(),
                  .rows = kRows,
                  .columns = kColumns,
                  .matrices = {matrices[0]->packed, matrices[1]->packed},
                  .matrix_count = 2,
                  .parts = parts.as<float>()};
  const auto plan = plan_packed_gemm(fixture.context(), op, std::size_t{1} << 18);
  fixture.check("packed glu", plan.has_value(), "can be cut");
  if (!plan) return;
  packed_gemm(fixture.context(), op, *plan);
  join_parts(fixture.context(), {.parts = op.parts,
                                 .slabs = plan->slabs,
                                 .rows = kRows,
                                 .width = 2 * kOut,
                                 .end = PartsEnd::glu,
                                 .out = out.as<float>(),
                                 .out_stride = kOut,
                                 .halves = halves.as<std::uint16_t>()});
  const auto products = exact_products(matrices, in, kRows, kColumns);
  std::vector<double> exact(as_size(kRows) * kOut);
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t o = 0; o < kOut; ++o) {
      const double gate = products[r * 2 * kOut + o];
      exact[r * kOut + o] = gate / (1.0 + std::exp(-gate)) * products[r * 2 * kOut + kOut + o];
    }
  }
  const auto results = to_host(out.as<float>(), exact.size());
  fixture.check("packed glu", difference(results, exact), 1e-6);
  const auto in_halves = to_host(halves.as<std::uint16_t>(), exact.size());
  bool same = true;
  for (std::size_t i = 0; i < results.size(); ++i) same = same && in_halves[i] == f32_to_f16_saturating(results[i]);
  fixture.check("packed glu", same, "the same in F16");
}

void time_products(Fixture& fixture, WeightFormat format, int matrices, int out_rows, int columns, int rows) {
  const RandomMatrix original(format, out_rows, columns, fixture.random());
  constexpr int kCopies = 6;  // so that the cache has none of them
  std::vector<DeviceBuffer> copies;
  for (int i = 0; i < kCopies * matrices; ++i) copies.push_back(copy_of(original.packed));
  const auto in = halves_of(random_values(as_size(rows) * as_size(columns), 1.0f, fixture.random()));
  const DeviceBuffer device_in = to_device(in);
  const DeviceBuffer parts = poisoned(kPartFloats * 4);
  PackedGemmOp op{.in = device_in.as<std::uint16_t>(),
                  .rows = rows,
                  .columns = columns,
                  .matrix_count = matrices,
                  .parts = parts.as<float>()};
  for (int i = 0; i < matrices; ++i) op.matrices[i] = original.packed;
  const DeviceBuffer out = poisoned(as_size(rows) * as_size(op.width()) * 4);
  const DeviceBuffer image = poisoned(image_numbers(rows, columns) * 2);
  for (const Way& way : ways(fixture, rows)) {
    const double time = fixture.microseconds(kCopies, fixture.context(), [&](int i, const LaunchContext& context) {
      PackedGemmOp each = op;
      for (int m = 0; m < matrices; ++m) each.matrices[m].data = copies[as_size(i * matrices + m)].data();
      join_parts(context, {.parts = op.parts,
                           .slabs = way.run(context, each, image.as<std::uint16_t>()),
                           .rows = rows,
                           .width = op.width(),
                           .out = out.as<float>(),
                           .out_stride = op.width()});
    });
    fixture.report_bytes(fmt::format("{} {} {}x {}x{}, {} rows", way.name, type_info(quant_type(format)).name, matrices,
                                     out_rows, columns, rows),
                         time, static_cast<double>(original.packed.bytes()) * matrices);
  }
}

}  // namespace

void test_packed_gemm(Fixture& fixture) {
  prepare_packed_gemm(fixture.context());
  prepare_mixed_gemm(fixture.context());
  for (int format = 0; format < kWeightFormats; ++format) {
    const auto f = static_cast<WeightFormat>(format);
    test_products(fixture, {f}, 48, is_k_format(f) ? 768 : 576, 5 + 3 * format);
  }
  test_products(fixture, {WeightFormat::q4_k}, 250, 4096, 31);
  test_products(fixture, {WeightFormat::q4_k}, 100, 14336, 32);
  test_products(fixture, {WeightFormat::q4_k, WeightFormat::q4_k, WeightFormat::q6_k}, 72, 1024, 9);
  for (const int rows : {40, 64, 90, 128, 190, 300}) {
    test_products(fixture, {WeightFormat::q4_k, WeightFormat::q6_k}, 200, 1280, rows);
  }
  test_neighbours(fixture);
  test_glu(fixture);
  if (!fixture.times()) return;
  for (const int rows : {8, 16, 32, 64, 128}) {
    time_products(fixture, WeightFormat::q4_k, 2, 14336, 4096, rows);
    time_products(fixture, WeightFormat::q4_k, 1, 4096, 14336, rows);
    time_products(fixture, WeightFormat::q6_k, 1, 4096, 14336, rows);
    time_products(fixture, WeightFormat::q4_k, 1, 4096, 4096, rows);
    time_products(fixture, WeightFormat::q4_k, 1, 6144, 4096, rows);
  }
}

}  // namespace quarrel::cuda
