// GEMMs of a few dozen rows with packed weights, by all kernels that do them, against sums in double, for every format
// and every way to end; then times.
#include "backend/cuda/packed_gemm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/mixed_gemm.h"
#include "backend/cuda/register_gemm.h"
#include "backend/cuda/repack.h"
#include "backend/cuda/row_image.h"
#include "base/as_size.h"
#include "cuda/fixture.h"
#include "cuda/random_weights.h"
#include "quant/half.h"

namespace quarrel::cuda {
namespace {

constexpr double kBound = 1e-7;          // types without minimums stand at 1e-14
constexpr double kMixedBound = 2e-7;     // weights and their scales are rounded to F16
constexpr double kRegisterBound = 5e-8;  // Q6_K's products are rounded; other types stand at 1e-13
constexpr std::size_t kPartFloats = std::size_t{16} << 20;

std::vector<std::uint16_t> halves_of(const std::vector<float>& values) {
  std::vector<std::uint16_t> halves;
  for (const float value : values) halves.push_back(f32_to_f16_saturating(value));
  return halves;
}

std::vector<float> floats_of(const std::vector<std::uint16_t>& halves) {
  std::vector<float> values;
  for (const std::uint16_t half : halves) values.push_back(f16_to_f32(half));
  return values;
}

// The input of a GEMM in all forms that kernels take.
struct Input {
  DeviceBuffer halves;
  DeviceBuffer image;    // of register_gemm()
  DeviceBuffer scratch;  // for the image of mixed_gemm()

  Input(const LaunchContext& context, const std::vector<std::uint16_t>& in, int rows, int columns)
      : halves(to_device(in)), scratch(poisoned(image_numbers(rows, columns) * 2)) {
    if (rows > kMaxRegisterGemmRows) return;
    image = poisoned(register_image_numbers(rows, columns) * 2);
    const DeviceBuffer floats = to_device(floats_of(in));
    make_row_image(context, {.rows = {.data = floats.as<float>(), .stride = columns, .width = columns, .count = rows},
                             .image = image.as<std::uint16_t>(),
                             .image_rows = image_rows(rows)});
    cuda::check(cudaStreamSynchronize(context.stream), "image");
  }
};

// A GEMM and what comes after it; false where it cannot be cut.
struct Way {
  std::string name;
  double bound;
  bool (*run)(const LaunchContext& context, PackedGemmOp op, const Input& in, JoinPartsOp end);
};

bool join(const LaunchContext& context, const PackedGemmOp& op, int slabs, JoinPartsOp end) {
  end.parts = op.parts;
  end.slabs = slabs;
  end.rows = op.rows;
  end.width = op.width();
  join_parts(context, end);
  return true;
}

bool run_packed(const LaunchContext& context, PackedGemmOp op, const Input& in, JoinPartsOp end) {
  const auto plan = plan_packed_gemm(context, op, kPartFloats);
  if (!plan) return false;
  op.in = in.halves.as<std::uint16_t>();
  packed_gemm(context, op, *plan);
  return join(context, op, plan->slabs, end);
}

bool run_mixed(const LaunchContext& context, PackedGemmOp op, const Input& in, JoinPartsOp end) {
  const auto plan = plan_mixed_gemm(context, op, kPartFloats);
  if (!plan) return false;
  op.in = in.halves.as<std::uint16_t>();
  mixed_gemm(context, op, *plan, in.scratch.as<std::uint16_t>());
  return join(context, op, plan->slabs, end);
}

bool run_register(const LaunchContext& context, PackedGemmOp op, const Input& in, JoinPartsOp end) {
  const auto plan = plan_register_gemm(context, op, end, kPartFloats);
  if (!plan) return false;
  op.in = in.image.as<std::uint16_t>();
  if (const auto left = register_gemm(context, op, *plan, end)) join_parts(context, *left);
  return true;
}

std::vector<Way> ways(const Fixture& fixture, const std::vector<WeightFormat>& formats, int rows) {
  std::vector<Way> found;
  if (rows <= kMaxPackedGemmRows) found.push_back({.name = "packed gemm", .bound = kBound, .run = run_packed});
  if (!fixture.context().has_wgmma) return found;
  if (rows <= kMaxRegisterGemmRows && std::ranges::all_of(formats, is_k_format)) {
    found.push_back({.name = "register gemm", .bound = kRegisterBound, .run = run_register});
  }
  found.push_back({.name = "mixed gemm", .bound = kMixedBound, .run = run_mixed});
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
  const Input device_in(fixture.context(), in, rows, columns);
  const auto exact = exact_products(matrices, in, rows, columns);
  const auto bias = random_values(as_size(width), 1.0f, fixture.random());
  const DeviceBuffer device_bias = to_device(bias);
  for (const Way& way : ways(fixture, formats, rows)) {
    const std::string name = way.name + shape;
    const DeviceBuffer parts = poisoned(kPartFloats * 4);
    const DeviceBuffer out = poisoned(as_size(rows) * as_size(width) * 4);
    op.parts = parts.as<float>();
    JoinPartsOp end{.out = out.as<float>(), .out_stride = width};
    const bool can_run = way.run(fixture.context(), op, device_in, end);
    if (!can_run && fixture.is_limited()) continue;
    fixture.check(name, can_run, "can be cut");
    if (!can_run) continue;
    fixture.check(name, difference(to_host(out.as<float>(), exact.size()), exact), way.bound);
    // Added to what is there, with a bias and a scale.
    end.end = PartsEnd::add;
    end.bias = device_bias.as<float>();
    end.scale = 0.5f;
    way.run(fixture.context(), op, device_in, end);
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

void test_register_neighbours(Fixture& fixture) {
  if (!fixture.context().has_wgmma) return;
  constexpr int kMost = 64;
  constexpr int kColumns = 1024;
  const RandomMatrix matrix(WeightFormat::q4_k, 160, kColumns, fixture.random());
  const auto in = halves_of(random_values(std::size_t{kMost} * kColumns, 1.0f, fixture.random()));
  const DeviceBuffer out = poisoned(std::size_t{kMost} * 160 * 4);
  std::vector<float> all;
  for (const int rows : {kMost, 40, 29, 12, 7}) {
    const Input device_in(fixture.context(), in, rows, kColumns);
    PackedGemmOp op{.in = device_in.image.as<std::uint16_t>(), .rows = rows, .columns = kColumns, .matrix_count = 1};
    op.matrices[0] = matrix.packed;
    const auto left = register_gemm(
        fixture.context(), op,
        {.block_tiles = 7, .slab_chunks = 4, .slabs = 1, .is_paired = false, .ring = 3, .row_slots = rows <= 8 ? 4 : 2},
        {.out = out.as<float>(), .out_stride = 160});
    fixture.check(fmt::format("register gemm, {} rows", rows), !left, "nothing left to be joined");
    const auto results = to_host(out.as<float>(), as_size(rows) * 160);
    if (all.empty()) all = results;
    fixture.check(fmt::format("register gemm, {} rows", rows), std::equal(results.begin(), results.end(), all.begin()),
                  "the same bits as among others");
  }
}

// Rows whose last addend is in parts, completed, normed and as an image, by one kernel and by one for each.
void test_row_image(Fixture& fixture, NormKind kind, int width, int rows, int slabs, PartsEnd end) {
  const auto numbers = as_size(rows) * as_size(width);
  const DeviceBuffer parts = to_device(random_values(as_size(slabs) * numbers, 1.0f, fixture.random()));
  const DeviceBuffer vectors = to_device(random_values(as_size(3 * width), 1.0f, fixture.random()));
  const auto before = random_values(numbers, 1.0f, fixture.random());
  const DeviceBuffer bad = to_device(std::vector<std::int32_t>(as_size(rows), -1));
  const DeviceNorm norm{.kind = kind,
                        .epsilon = 1e-5f,
                        .weight = vectors.as<float>(),
                        .bias = vectors.as<float>() + width,
                        .first_bad = bad.as<std::int32_t>(),
                        .layer = 3};
  JoinPartsOp join{.parts = parts.as<float>(),
                   .slabs = slabs,
                   .rows = rows,
                   .width = width,
                   .end = end,
                   .bias = vectors.as<float>() + 2 * width,
                   .scale = 0.7f,
                   .out_stride = width};
  const DeviceBuffer x = to_device(before);
  const RowSpan span{.data = x.as<float>(), .stride = width, .width = width, .count = rows};
  join.out = span.data;
  const DeviceBuffer image = poisoned(register_image_numbers(rows, width) * 2);
  make_row_image(
      fixture.context(),
      {.rows = span, .join = join, .norm = norm, .image = image.as<std::uint16_t>(), .image_rows = image_rows(rows)});
  const auto completed = to_host(span.data, numbers);
  const auto in_halves =
      rows_of_image(to_host(image.as<std::uint16_t>(), register_image_numbers(rows, width)), rows, width);
  copy_to_device(span.data, before.data(), numbers * 4);
  const DeviceBuffer halves = poisoned(numbers * 2);
  join_parts(fixture.context(), join);
  norm_rows(fixture.context(), span, norm, halves.as<std::uint16_t>(), width);
  const std::string name = fmt::format("image of {} rows of {}, {} parts", rows, width, slabs);
  fixture.check(name, completed == to_host(span.data, numbers), "completed as by a kernel of its own");
  const auto expected = floats_of(to_host(halves.as<std::uint16_t>(), numbers));
  fixture.check(name, difference(floats_of(in_halves), std::vector<double>(expected.begin(), expected.end())), 1e-8);
}

void test_glu(Fixture& fixture, int out_rows, int rows) {
  constexpr int kColumns = 512;
  std::vector<std::unique_ptr<RandomMatrix>> matrices;
  for (int i = 0; i < 2; ++i) {
    matrices.push_back(std::make_unique<RandomMatrix>(WeightFormat::q5_k, out_rows, kColumns, fixture.random()));
  }
  const auto in = halves_of(random_values(as_size(rows) * kColumns, 0.2f, fixture.random()));
  const Input device_in(fixture.context(), in, rows, kColumns);
  const DeviceBuffer bias = to_device(random_values(as_size(2 * out_rows), 1.0f, fixture.random()));
  const auto host_bias = to_host(bias.as<float>(), as_size(2 * out_rows));
  const auto products = exact_products(matrices, in, rows, kColumns);
  const auto width = as_size(out_rows);
  std::vector<double> exact(as_size(rows) * width);
  for (std::size_t r = 0; r < as_size(rows); ++r) {
    for (std::size_t o = 0; o < width; ++o) {
      const double gate = products[r * 2 * width + o] + static_cast<double>(host_bias[o]);
      const double up = products[(r * 2 + 1) * width + o] + static_cast<double>(host_bias[width + o]);
      exact[r * width + o] = gate / (1.0 + std::exp(-gate)) * up;
    }
  }
  for (const Way& way : ways(fixture, {WeightFormat::q5_k}, rows)) {
    const bool is_image = way.run == run_register;
    const DeviceBuffer parts = poisoned(kPartFloats * 4);
    const DeviceBuffer out = poisoned(exact.size() * 4);
    const DeviceBuffer halves = poisoned(register_image_numbers(rows, out_rows) * 2);
    PackedGemmOp op{.rows = rows,
                    .columns = kColumns,
                    .matrices = {matrices[0]->packed, matrices[1]->packed},
                    .matrix_count = 2,
                    .parts = parts.as<float>()};
    const bool can_run = way.run(fixture.context(), op, device_in,
                                 {.end = PartsEnd::glu,
                                  .bias = bias.as<float>(),
                                  .second_bias = bias.as<float>() + width,
                                  .out = out.as<float>(),
                                  .out_stride = out_rows,
                                  .halves = halves.as<std::uint16_t>(),
                                  .image_rows = is_image ? image_rows(rows) : 0});
    const std::string name = fmt::format("{}, gate and up of {}, {} rows", way.name, out_rows, rows);
    if (!can_run && fixture.is_limited()) continue;
    fixture.check(name, can_run, "can be cut");
    if (!can_run) continue;
    const auto results = to_host(out.as<float>(), exact.size());
    fixture.check(name, difference(results, exact), 1e-6);
    auto in_halves = to_host(halves.as<std::uint16_t>(), register_image_numbers(rows, out_rows));
    if (is_image) in_halves = rows_of_image(in_halves, rows, out_rows);
    bool same = true;
    for (std::size_t i = 0; i < results.size(); ++i) same = same && in_halves[i] == f32_to_f16_saturating(results[i]);
    fixture.check(name, same, "the same in F16");
  }
}

void time_products(Fixture& fixture, WeightFormat format, int matrices, int out_rows, int columns, int rows) {
  const RandomMatrix original(format, out_rows, columns, fixture.random());
  constexpr int kCopies = 6;  // so that the cache has none of them
  std::vector<DeviceBuffer> copies;
  for (int i = 0; i < kCopies * matrices; ++i) copies.push_back(copy_of(original.packed));
  const auto in = halves_of(random_values(as_size(rows) * as_size(columns), 1.0f, fixture.random()));
  const Input device_in(fixture.context(), in, rows, columns);
  const DeviceBuffer parts = poisoned(kPartFloats * 4);
  PackedGemmOp op{.rows = rows, .columns = columns, .matrix_count = matrices, .parts = parts.as<float>()};
  for (int i = 0; i < matrices; ++i) op.matrices[i] = original.packed;
  const DeviceBuffer out = poisoned(as_size(rows) * as_size(op.width()) * 4);
  const DeviceBuffer halves = poisoned(register_image_numbers(std::min(rows, kMaxRegisterGemmRows), out_rows) * 2);
  for (const Way& way : ways(fixture, {format}, rows)) {
    const bool is_image = way.run == run_register;
    JoinPartsOp end{.out = out.as<float>(), .out_stride = op.width()};
    if (matrices == 2) {
      end = {.end = PartsEnd::glu, .out = out.as<float>(), .out_stride = out_rows};
      if (is_image) {
        end.halves = halves.as<std::uint16_t>();
        end.image_rows = image_rows(rows);
      }
    }
    const double time = fixture.microseconds(kCopies, fixture.context(), [&](int i, const LaunchContext& context) {
      PackedGemmOp each = op;
      for (int m = 0; m < matrices; ++m) each.matrices[m].data = copies[as_size(i * matrices + m)].data();
      way.run(context, each, device_in, end);
    });
    fixture.report_bytes(fmt::format("{} {} {}x {}x{}, {} rows", way.name, type_info(quant_type(format)).name, matrices,
                                     out_rows, columns, rows),
                         time, static_cast<double>(original.packed.bytes()) * matrices);
  }
}

// Rows that take the same room have the same plan, so that a row's bits do not depend on how many there are.
void test_plans(Fixture& fixture, int matrix_rows, int columns) {
  const auto op = [&](int rows) {
    PackedGemmOp made{.rows = rows, .columns = columns};
    made.matrices[0] = {.format = WeightFormat::q4_k, .rows = matrix_rows, .columns = columns};
    return made;
  };
  bool same = true;
  for (const int most : {8, 16, 32, 64}) {
    for (int rows = most / 2 + 1; rows <= most; ++rows) {
      same = same && plan_register_gemm(fixture.context(), op(rows), {}, kPartFloats) ==
                         plan_register_gemm(fixture.context(), op(most), {}, kPartFloats);
      if (most > kMaxPackedGemmRows) continue;
      same = same && plan_packed_gemm(fixture.context(), op(rows), kPartFloats) ==
                         plan_packed_gemm(fixture.context(), op(most), kPartFloats);
    }
  }
  fixture.check(fmt::format("plans for a matrix of {}x{}", matrix_rows, columns), same, "the same for the same room");
}

}  // namespace

void test_packed_gemm(Fixture& fixture) {
  prepare_packed_gemm(fixture.context());
  prepare_mixed_gemm(fixture.context());
  prepare_register_gemm(fixture.context());
  test_plans(fixture, 4096, 4096);
  test_plans(fixture, 1000, 14336);
  for (int format = 0; format < kWeightFormats; ++format) {
    const auto f = static_cast<WeightFormat>(format);
    test_products(fixture, {f}, 48, is_k_format(f) ? 768 : 576, 5 + 3 * format);
  }
  test_products(fixture, {WeightFormat::q4_k}, 250, 4096, 31);
  for (const int rows : {6, 32, 64}) test_products(fixture, {WeightFormat::q4_k}, 100, 14336, rows);
  for (const auto format : {WeightFormat::q5_k, WeightFormat::q6_k}) test_products(fixture, {format}, 500, 8192, 8);
  test_products(fixture, {WeightFormat::q4_k, WeightFormat::q4_k, WeightFormat::q6_k}, 72, 1024, 9);
  for (const int rows : {16, 40, 64, 90, 128, 190, 300}) {
    test_products(fixture, {WeightFormat::q4_k, WeightFormat::q6_k}, 200, 1280, rows);
  }
  test_neighbours(fixture);
  test_register_neighbours(fixture);
  test_glu(fixture, 80, 11);    // columns are cut
  test_glu(fixture, 1536, 7);   // pairs in one block, all rows at once
  test_glu(fixture, 1536, 31);  // pairs in one block
  test_glu(fixture, 4096, 60);
  if (fixture.context().has_wgmma) {
    test_row_image(fixture, NormKind::rms, 256, 3, 1, PartsEnd::store);
    test_row_image(fixture, NormKind::rms, 4096, 8, 8, PartsEnd::add);
    test_row_image(fixture, NormKind::layer, 5120, 64, 3, PartsEnd::add);
    test_row_image(fixture, NormKind::none, 14336, 9, 11, PartsEnd::add);
  }
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
