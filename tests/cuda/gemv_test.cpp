// GEMV on 1 to 16 rows: every format against sums in double over decoded weights, bits that do not depend on the number
// of rows, the fused prologues and epilogues; then times on the shapes of a 7B model.
#include "backend/cuda/gemv.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "backend/cuda/half_gemv.h"
#include "backend/cuda/repack.h"
#include "backend/cuda/rowwise.h"
#include "base/as_size.h"
#include "cuda/fixture.h"
#include "cuda/random_weights.h"
#include "quant/half.h"

namespace quarrel::cuda {
namespace {

constexpr double kBound = 1e-7;       // two int8 a value; 1e-6 is what a model may lose in all
constexpr double kHalfBound = 1e-12;  // weights in F16: all is F32

std::string format_name(WeightFormat format) { return std::string(type_info(quant_type(format)).name); }

// A step's input with an outlier here and there, as activations have them.
std::vector<float> random_input(int rows, int columns, std::mt19937_64& random) {
  auto values = random_values(as_size(rows) * as_size(columns), 1.0f, random);
  for (std::size_t i = 0; i < values.size(); i += 997) values[i] *= 50.0f;
  return values;
}

std::vector<double> norm_rows(const std::vector<float>& in, int rows, int columns, const SplitInput& input,
                              const std::vector<float>& weight, const std::vector<float>& bias) {
  std::vector<double> out(in.begin(), in.end());
  if (input.norm == NormKind::none) return out;
  for (int r = 0; r < rows; ++r) {
    double* row = out.data() + as_size(r) * as_size(columns);
    double mean = 0.0;
    for (int i = 0; i < columns; ++i) mean += row[i] / columns;
    if (input.norm == NormKind::rms) mean = 0.0;
    double squares = 0.0;
    for (int i = 0; i < columns; ++i) squares += (row[i] - mean) * (row[i] - mean);
    const double scale = 1.0 / std::sqrt(squares / columns + static_cast<double>(input.epsilon));
    for (int i = 0; i < columns; ++i) {
      row[i] = (row[i] - mean) * scale * static_cast<double>(weight[as_size(i)]);
      if (!bias.empty()) row[i] += static_cast<double>(bias[as_size(i)]);
    }
  }
  return out;
}

// exact[r][i] = row checked[i] of the matrix times input row r.
template <typename Matrix>
std::vector<double> exact_products(const Matrix& matrix, const std::vector<double>& in, int rows,
                                   const std::vector<int>& checked) {
  std::vector<double> exact(as_size(rows) * checked.size());
  const std::size_t columns = in.size() / as_size(rows);
  parallel_for(static_cast<int>(checked.size()), [&](int i) {
    const std::vector<float> weights = matrix.row(checked[as_size(i)]);
    for (std::size_t r = 0; r < as_size(rows); ++r) {
      double sum = 0.0;
      for (std::size_t c = 0; c < columns; ++c) sum += static_cast<double>(weights[c]) * in[r * columns + c];
      exact[r * checked.size() + as_size(i)] = sum;
    }
  });
  return exact;
}

std::vector<int> some_rows(int rows, int count, std::mt19937_64& random) {
  std::vector<int> chosen;
  if (rows <= count) {
    for (int i = 0; i < rows; ++i) chosen.push_back(i);
  } else {
    for (int i = 0; i < count; ++i) chosen.push_back(static_cast<int>(random() % as_size(rows)));
    chosen.push_back(rows - 1);
  }
  return chosen;
}

std::vector<float> pick(const std::vector<float>& values, int rows, int width, const std::vector<int>& chosen) {
  std::vector<float> picked;
  for (int r = 0; r < rows; ++r) {
    for (const int i : chosen) picked.push_back(values[as_size(r) * as_size(width) + as_size(i)]);
  }
  return picked;
}

void set_weight(GemvMatrix& matrix, const RandomMatrix& weight) { matrix.weight = weight.packed; }
void set_weight(GemvMatrix& matrix, const RandomHalves& weight) { matrix.halves = weight.dense; }
int rows_of(const RandomMatrix& matrix) { return matrix.packed.rows; }
int rows_of(const RandomHalves& matrix) { return matrix.dense.rows; }
int columns_of(const RandomMatrix& matrix) { return matrix.packed.columns; }
int columns_of(const RandomHalves& matrix) { return matrix.dense.columns; }
std::string type_name(const RandomMatrix& matrix) { return format_name(matrix.packed.format); }
std::string type_name(const RandomHalves&) { return "F16"; }

void run(const LaunchContext& context, const GemvOp& op, const DeviceBuffer& split) {
  if (op.matrices[0].halves.data != nullptr) return half_gemv(context, op);
  gemv_in_parts(context, op, split.data());
}

// The same rows alone and among others must give the same bits, and nearly the exact sums.
template <typename Matrix>
void test_matrix(Fixture& fixture, const Matrix& matrix, NormKind norm, double bound) {
  const int rows = rows_of(matrix);
  const int columns = columns_of(matrix);
  constexpr int kInputs = kMaxSplitRows;
  const auto in = random_input(kInputs, columns, fixture.random());
  const auto weight = random_values(as_size(columns), 1.0f, fixture.random());
  const auto bias =
      norm == NormKind::layer ? random_values(as_size(columns), 0.5f, fixture.random()) : std::vector<float>{};
  const DeviceBuffer device_in = to_device(in);
  const DeviceBuffer device_weight = to_device(weight);
  const DeviceBuffer device_bias = to_device(bias);
  const DeviceBuffer split = poisoned(split_bytes(columns, kInputs));
  SplitInput input{.rows = device_in.as<float>(),
                   .stride = columns,
                   .columns = columns,
                   .count = kInputs,
                   .norm = norm,
                   .epsilon = 1e-5f,
                   .norm_weight = norm == NormKind::none ? nullptr : device_weight.as<float>(),
                   .norm_bias = bias.empty() ? nullptr : device_bias.as<float>()};
  const auto checked = some_rows(rows, 192, fixture.random());
  const auto exact = exact_products(matrix, norm_rows(in, kInputs, columns, input, weight, bias), kInputs, checked);
  const std::string name = fmt::format("gemv {} {}x{}{}", type_name(matrix), rows, columns,
                                       norm == NormKind::none  ? ""
                                       : norm == NormKind::rms ? " rms"
                                                               : " layer norm");
  std::vector<float> all;
  bool same = true;
  for (const int count : {16, 11, 8, 5, 4, 3, 2, 1}) {
    const DeviceBuffer out = poisoned(as_size(count) * as_size(rows) * sizeof(float));
    GemvOp op{.input = input};
    op.input.count = count;
    op.matrices[0] = {.out = out.as<float>(), .stride = rows};
    set_weight(op.matrices[0], matrix);
    run(fixture.context(), op, split);
    const auto values = to_host(out.as<float>(), as_size(count) * as_size(rows));
    if (all.empty()) {
      all = values;
      fixture.check(name, difference(pick(values, count, rows, checked), exact), bound);
    }
    same = same && std::memcmp(values.data(), all.data(), values.size() * sizeof(float)) == 0;
  }
  fixture.check(name + ", 1 to 16 rows", same, "the same bits");
  // As on devices that give a block no more: shallower rings, and the rows in pieces if need be.
  bool same_within_less = true;
  for (const int count : {16, 8, 1}) {
    LaunchContext small = fixture.context();
    small.shared_bytes = 99 * 1024;
    const DeviceBuffer out = poisoned(as_size(count) * as_size(rows) * sizeof(float));
    GemvOp op{.input = input};
    op.input.count = count;
    op.matrices[0] = {.out = out.as<float>(), .stride = rows};
    set_weight(op.matrices[0], matrix);
    run(small, op, split);
    const auto values = to_host(out.as<float>(), as_size(count) * as_size(rows));
    same_within_less = same_within_less && std::memcmp(values.data(), all.data(), values.size() * sizeof(float)) == 0;
  }
  fixture.check(name + ", 99 KiB of shared memory", same_within_less, "the same bits");
}

void test_format(Fixture& fixture, WeightFormat format, int rows, int columns, NormKind norm) {
  test_matrix(fixture, RandomMatrix(format, rows, columns, fixture.random()), norm, kBound);
}

void test_halves(Fixture& fixture, int rows, int columns, NormKind norm) {
  test_matrix(fixture, RandomHalves(rows, columns, fixture.random()), norm, kHalfBound);
}

// Three matrices of different types with biases, a residual, and a gated pair.
void test_fusions(Fixture& fixture) {
  constexpr int kColumns = 1024;
  constexpr int kInputs = 3;
  const auto in = random_input(kInputs, kColumns, fixture.random());
  const std::vector<double> exact_in(in.begin(), in.end());
  const DeviceBuffer device_in = to_device(in);
  const DeviceBuffer split = poisoned(split_bytes(kColumns, kInputs));
  const SplitInput input{.rows = device_in.as<float>(), .stride = kColumns, .columns = kColumns, .count = kInputs};
  const RandomMatrix a(WeightFormat::q4_k, 512, kColumns, fixture.random());
  const RandomMatrix b(WeightFormat::q6_k, 128, kColumns, fixture.random());
  const RandomMatrix c(WeightFormat::q8_0, 100, kColumns, fixture.random());
  const RandomMatrix up(WeightFormat::q4_k, 512, kColumns, fixture.random());
  const auto bias = random_values(128, 1.0f, fixture.random());
  const auto residual = random_values(as_size(kInputs) * 128, 1.0f, fixture.random());
  const DeviceBuffer device_bias = to_device(bias);
  const auto all_rows = [&](const RandomMatrix& m) {
    return some_rows(m.packed.rows, m.packed.rows, fixture.random());
  };
  const auto exact = [&](const RandomMatrix& m) { return exact_products(m, exact_in, kInputs, all_rows(m)); };

  const DeviceBuffer out_a = poisoned(kInputs * 512 * 4);
  const DeviceBuffer out_b = poisoned(kInputs * 128 * 4);
  const DeviceBuffer out_c = poisoned(kInputs * 100 * 4);
  GemvOp qkv{.input = input, .matrix_count = 3};
  qkv.matrices[0] = {.weight = a.packed, .out = out_a.as<float>(), .stride = 512};
  qkv.matrices[1] = {.weight = b.packed, .bias = device_bias.as<float>(), .out = out_b.as<float>(), .stride = 128};
  qkv.matrices[2] = {.weight = c.packed, .out = out_c.as<float>(), .stride = 100};
  run(fixture.context(), qkv, split);
  auto exact_b = exact(b);
  for (std::size_t i = 0; i < exact_b.size(); ++i) exact_b[i] += static_cast<double>(bias[i % 128]);
  fixture.check("gemv of three types: Q4_K", difference(to_host(out_a.as<float>(), kInputs * 512), exact(a)), kBound);
  fixture.check("gemv of three types: Q6_K with bias", difference(to_host(out_b.as<float>(), kInputs * 128), exact_b),
                kBound);
  fixture.check("gemv of three types: Q8_0", difference(to_host(out_c.as<float>(), kInputs * 100), exact(c)), kBound);

  const DeviceBuffer out_add = to_device(residual);
  GemvOp add{.input = input, .output = GemvOutput::add, .scale = 0.5f};
  add.matrices[0] = {.weight = b.packed, .out = out_add.as<float>(), .stride = 128};
  run(fixture.context(), add, split);
  auto exact_add = exact(b);
  for (std::size_t i = 0; i < exact_add.size(); ++i)
    exact_add[i] = 0.5 * exact_add[i] + static_cast<double>(residual[i]);
  fixture.check("gemv into a residual", difference(to_host(out_add.as<float>(), kInputs * 128), exact_add), kBound);

  auto exact_glu = exact(a);
  const auto exact_up = exact(up);
  for (std::size_t i = 0; i < exact_glu.size(); ++i) exact_glu[i] *= exact_up[i] / (1.0 + std::exp(-exact_glu[i]));
  for (const int count : {kInputs, 1}) {
    const DeviceBuffer out_glu = poisoned(as_size(count) * 512 * 4);
    GemvOp glu{.input = input, .matrix_count = 2, .output = GemvOutput::glu};
    glu.input.count = count;
    glu.matrices[0] = {.weight = a.packed, .out = out_glu.as<float>(), .stride = 512};
    glu.matrices[1] = {.weight = up.packed};
    run(fixture.context(), glu, split);
    exact_glu.resize(as_size(count) * 512);
    fixture.check(fmt::format("gemv glu, {} rows", count),
                  difference(to_host(out_glu.as<float>(), as_size(count) * 512), exact_glu), kBound);
  }
}

// Rows that a smaller shared memory has no room for are taken in parts, and get the same bits.
void test_parts(Fixture& fixture, WeightFormat format) {
  constexpr int kRows = 512;
  constexpr int kColumns = 1024;
  const RandomMatrix gate(format, kRows, kColumns, fixture.random());
  const RandomMatrix up(format, kRows, kColumns, fixture.random());
  const DeviceBuffer in = to_device(random_input(kMaxSplitRows, kColumns, fixture.random()));
  const DeviceBuffer split = poisoned(split_bytes(kColumns, kMaxSplitRows));
  LaunchContext small = fixture.context();
  small.shared_bytes = 99 * 1024;
  for (const int count : {8, 13, 16}) {
    std::vector<float> outs[2];
    for (const bool in_parts : {false, true}) {
      const DeviceBuffer out = poisoned(as_size(count * kRows) * 4);
      GemvOp glu{.input = {.rows = in.as<float>(), .stride = kColumns, .columns = kColumns, .count = count},
                 .matrix_count = 2,
                 .output = GemvOutput::glu};
      glu.matrices[0] = {.weight = gate.packed, .out = out.as<float>(), .stride = kRows};
      glu.matrices[1] = {.weight = up.packed};
      run(in_parts ? small : fixture.context(), glu, split);
      outs[in_parts ? 1 : 0] = to_host(out.as<float>(), as_size(count * kRows));
    }
    fixture.check(fmt::format("gemv glu {}, {} rows in parts", format_name(format), count), outs[0] == outs[1],
                  "the same bits");
  }
}

// A residual and a gated pair with biases, of F16 weights: one row, two and more.
void test_half_fusions(Fixture& fixture, int rows, int columns) {
  constexpr int kInputs = 3;
  const RandomHalves gate(rows, columns, fixture.random());
  const RandomHalves up(rows, columns, fixture.random());
  const auto in = random_input(kInputs, columns, fixture.random());
  const auto bias = random_values(as_size(rows), 1.0f, fixture.random());
  const auto residual = random_values(as_size(kInputs * rows), 1.0f, fixture.random());
  const DeviceBuffer device_in = to_device(in);
  const DeviceBuffer device_bias = to_device(bias);
  const auto all_rows = some_rows(rows, rows, fixture.random());
  const std::vector<double> exact_in(in.begin(), in.end());
  const auto exact_gate = exact_products(gate, exact_in, kInputs, all_rows);
  const auto exact_up = exact_products(up, exact_in, kInputs, all_rows);
  for (const int count : {1, 2, 3}) {
    const std::size_t outputs = as_size(count * rows);
    std::vector<double> exact_sum(outputs);
    std::vector<double> exact_glu(outputs);
    for (std::size_t i = 0; i < outputs; ++i) {
      const double value = exact_gate[i] + static_cast<double>(bias[i % as_size(rows)]);
      exact_sum[i] = static_cast<double>(residual[i]) + 0.5 * value;
      exact_glu[i] = value / (1.0 + std::exp(-value)) * exact_up[i];
    }
    const SplitInput input{.rows = device_in.as<float>(), .stride = columns, .columns = columns, .count = count};
    const DeviceBuffer sum = to_device(residual);
    GemvOp add{.input = input, .output = GemvOutput::add, .scale = 0.5f};
    add.matrices[0] = {.halves = gate.dense, .bias = device_bias.as<float>(), .out = sum.as<float>(), .stride = rows};
    half_gemv(fixture.context(), add);
    const std::string name = fmt::format("gemv F16 {}x{}, {} rows ", rows, columns, count);
    fixture.check(name + "into a residual", difference(to_host(sum.as<float>(), outputs), exact_sum), kHalfBound);
    const DeviceBuffer hidden = poisoned(outputs * 4);
    GemvOp glu{.input = input, .matrix_count = 2, .output = GemvOutput::glu};
    glu.matrices[0] = {
        .halves = gate.dense, .bias = device_bias.as<float>(), .out = hidden.as<float>(), .stride = rows};
    glu.matrices[1] = {.halves = up.dense};
    half_gemv(fixture.context(), glu);
    fixture.check(name + "glu", difference(to_host(hidden.as<float>(), outputs), exact_glu), kHalfBound);
  }
}

constexpr int kHeads = 4;
constexpr int kKvHeads = 2;
constexpr int kDim = 64;

// q, k and v with rotation and cache in the same kernel, against the same in separate ones.
template <typename Q, typename V>
void test_qkv(Fixture& fixture, const Q& q, const Q& k, const V& v, bool half_split, int count) {
  constexpr int kInputs = 3;
  const int columns = columns_of(q);
  constexpr std::size_t kBlock = kKvHeads * kKvBlockTokens * kDim;
  const auto in = random_input(kInputs, columns, fixture.random());
  const DeviceBuffer device_in = to_device(in);
  const SplitInput input{.rows = device_in.as<float>(), .stride = columns, .columns = columns, .count = count};
  const DeviceBuffer bias = to_device(random_values(kHeads * kDim, 1.0f, fixture.random()));
  const DeviceBuffer positions = to_device(std::vector<std::int32_t>{70, 9, 1});
  const DeviceBuffer sequences = to_device(std::vector<std::int32_t>{0, 1, -1});
  const DeviceBuffer tables = to_device(std::vector<std::int32_t>{3, 1, 2, 0});
  std::vector<double> frequencies;
  for (int i = 0; i < kDim / 2; ++i) frequencies.push_back(std::pow(1e4, -2.0 * i / kDim));
  const DeviceBuffer device_frequencies = to_device(frequencies);
  const DeviceBuffer angles = poisoned(kInputs * kDim * 4);
  const StepRows rows{.positions = positions.as<std::int32_t>(),
                      .sequences = sequences.as<std::int32_t>(),
                      .tables = tables.as<std::int32_t>(),
                      .table_stride = 2,
                      .count = count};
  rope_angles(fixture.context(), rows, device_frequencies.as<double>(), kDim / 2, 1.0f, angles.as<float>());
  std::vector<std::uint16_t> caches[2];
  std::vector<float> queries[2];
  for (const bool fused : {false, true}) {
    const DeviceBuffer cache = poisoned(2 * 4 * kBlock * 2);
    const PagedKv kv{.keys = cache.as<std::uint16_t>(),
                     .values = cache.as<std::uint16_t>() + 4 * kBlock,
                     .key_block_stride = kBlock,
                     .value_block_stride = kBlock,
                     .heads = kKvHeads,
                     .dim = kDim};
    const DeviceBuffer out_q = poisoned(kInputs * kHeads * kDim * 4);
    const DeviceBuffer out_k = poisoned(kInputs * kKvHeads * kDim * 4);
    const DeviceBuffer out_v = poisoned(kInputs * kKvHeads * kDim * 4);
    GemvOp op{
        .input = input,
        .matrix_count = 3,
        .output = fused ? GemvOutput::qkv : GemvOutput::store,
        .qkv = {.rows = rows, .kv = kv, .angles = angles.as<float>(), .pairs = kDim / 2, .half_split = half_split}};
    op.matrices[0] = {.bias = bias.as<float>(), .out = out_q.as<float>(), .stride = kHeads * kDim};
    op.matrices[1] = {.bias = bias.as<float>(), .out = out_k.as<float>(), .stride = kKvHeads * kDim};
    op.matrices[2] = {.out = out_v.as<float>(), .stride = kKvHeads * kDim};
    set_weight(op.matrices[0], q);
    set_weight(op.matrices[1], k);
    set_weight(op.matrices[2], v);
    const DeviceBuffer split = poisoned(split_bytes(columns, kInputs));
    run(fixture.context(), op, split);
    if (!fused) {
      rope_store(fixture.context(), {.rows = rows,
                                     .kv = kv,
                                     .q = out_q.as<float>(),
                                     .k = out_k.as<float>(),
                                     .v = out_v.as<float>(),
                                     .heads = kHeads,
                                     .angles = angles.as<float>(),
                                     .pairs = kDim / 2,
                                     .interleaved = !half_split});
    }
    caches[fused] = to_host(cache.as<std::uint16_t>(), 8 * kBlock);
    queries[fused] = to_host(out_q.as<float>(), as_size(std::min(count, 2)) * kHeads * kDim);
  }
  const std::string name =
      "qkv of " + type_name(q) + (half_split ? ", halves" : "") + fmt::format(", {} rows, in one kernel: ", count);
  fixture.check(name + "q", difference(queries[1], std::vector<double>(queries[0].begin(), queries[0].end())), 1e-13);
  std::vector<float> cached;
  std::vector<double> exact;
  bool same_places = true;
  for (std::size_t i = 0; i < caches[0].size(); ++i) {
    same_places = same_places && (caches[0][i] == 0xffff) == (caches[1][i] == 0xffff);
    if (caches[0][i] == 0xffff) continue;
    cached.push_back(f16_to_f32(caches[1][i]));
    exact.push_back(static_cast<double>(f16_to_f32(caches[0][i])));
  }
  fixture.check(name + "cache", difference(cached, exact), 1e-8);
  fixture.check(name + "places", same_places, "the same");
}

void test_qkv(Fixture& fixture) {
  constexpr int kColumns = 512;
  const auto packed = [&](WeightFormat format, int heads) {
    return RandomMatrix(format, heads * kDim, kColumns, fixture.random());
  };
  const auto halves = [&](int heads) { return RandomHalves(heads * kDim, kColumns, fixture.random()); };
  for (const bool half_split : {false, true}) {
    for (const int count : {3, 1}) {
      test_qkv(fixture, packed(WeightFormat::q4_k, kHeads), packed(WeightFormat::q4_k, kKvHeads),
               packed(WeightFormat::q6_k, kKvHeads), half_split, count);
      test_qkv(fixture, halves(kHeads), halves(kKvHeads), halves(kKvHeads), half_split, count);
    }
  }
}

// A NaN in one row reaches that row's results and no other's; the norm's row is flagged.
template <typename Matrix>
void test_bad_numbers(Fixture& fixture, const Matrix& matrix, int count) {
  constexpr int kColumns = 512;
  auto in = random_input(count, kColumns, fixture.random());
  in[kColumns + 40] = std::nanf("");
  const DeviceBuffer device_in = to_device(in);
  std::vector<std::int32_t> expected(as_size(count), -1);
  const DeviceBuffer flags = to_device(expected);
  const DeviceBuffer out = poisoned(as_size(count) * 64 * 4);
  const DeviceBuffer split = poisoned(split_bytes(kColumns, count));
  for (const NormKind norm : {NormKind::none, NormKind::rms}) {
    GemvOp op{.input = {.rows = device_in.as<float>(),
                        .stride = kColumns,
                        .columns = kColumns,
                        .count = count,
                        .norm = norm,
                        .epsilon = 1e-5f,
                        .first_bad_layer = flags.as<std::int32_t>(),
                        .layer = 9}};
    op.matrices[0] = {.out = out.as<float>(), .stride = 64};
    set_weight(op.matrices[0], matrix);
    run(fixture.context(), op, split);
    const auto values = to_host(out.as<float>(), as_size(count) * 64);
    bool right = true;
    for (std::size_t i = 0; i < values.size(); ++i) right = right && std::isnan(values[i]) == (i / 64 == 1);
    fixture.check(fmt::format("gemv {} with a NaN{}, {} rows", type_name(matrix),
                              norm == NormKind::none ? "" : " before a norm", count),
                  right, "in its own row");
  }
  expected[1] = 9;
  fixture.check(fmt::format("bad rows of {}", count), to_host(flags.as<std::int32_t>(), as_size(count)) == expected,
                "flagged");
}

// Several copies of the weights, so that the cache has none of them.
template <typename Matrix>
void time_matrix(Fixture& fixture, const Matrix& matrix, std::initializer_list<int> counts, GemvOutput output) {
  const int rows = rows_of(matrix);
  const int columns = columns_of(matrix);
  const std::size_t bytes = matrix.memory.size();
  const int copies = static_cast<int>(std::max<std::size_t>(4, (std::size_t{400} << 20) / bytes));
  const bool pair = output == GemvOutput::glu;
  std::vector<DeviceBuffer> memory;
  GemvMatrix weight;
  set_weight(weight, matrix);
  const bool packed = weight.weight.data != nullptr;
  for (int i = 0; i < copies * (pair ? 2 : 1); ++i) {
    memory.push_back(packed ? copy_of(weight.weight) : copy_of(weight.halves));
  }
  const auto set_copy = [&](GemvMatrix& target, int copy) {
    target.weight = weight.weight;
    target.halves = weight.halves;
    if (packed) target.weight.data = memory[as_size(copy)].data();
    if (!packed) target.halves.data = memory[as_size(copy)].data();
  };
  const auto in = random_input(kMaxSplitRows, columns, fixture.random());
  const DeviceBuffer device_in = to_device(in);
  const DeviceBuffer out = poisoned(as_size(kMaxSplitRows) * as_size(rows) * 4);
  const DeviceBuffer split = poisoned(split_bytes(columns, kMaxSplitRows));
  for (const int count : counts) {
    const auto call = [&](int i, const LaunchContext& context) {
      GemvOp op{.input = {.rows = device_in.as<float>(), .stride = columns, .columns = columns, .count = count},
                .output = output};
      op.matrices[0] = {.out = out.as<float>(), .stride = rows};
      set_copy(op.matrices[0], i % copies);
      if (pair) {
        op.matrix_count = 2;
        set_copy(op.matrices[1], copies + i % copies);
      }
      run(context, op, split);
    };
    const double overlapped = fixture.microseconds(2 * copies, fixture.context(), call);
    const double alone = fixture.microseconds(2 * copies, fixture.context_without_overlap(), call);
    fixture.report_bytes(fmt::format("gemv {}{} {}x{} rows {:2} (alone {:.2f} us)", type_name(matrix),
                                     pair ? " glu 2x" : "", rows, columns, count, alone),
                         overlapped, static_cast<double>(bytes) * (pair ? 2.0 : 1.0));
  }
}

void time_shape(Fixture& fixture, WeightFormat format, int rows, int columns, std::initializer_list<int> counts,
                GemvOutput output) {
  time_matrix(fixture, RandomMatrix(format, rows, columns, fixture.random()), counts, output);
}

void time_halves(Fixture& fixture, int rows, int columns, std::initializer_list<int> counts, GemvOutput output) {
  time_matrix(fixture, RandomHalves(rows, columns, fixture.random()), counts, output);
}

}  // namespace

void test_gemv(Fixture& fixture) {
  prepare_gemv(fixture.context());
  prepare_half_gemv(fixture.context());
  for (int format = 0; format <= static_cast<int>(WeightFormat::q6_k); ++format) {
    const auto f = static_cast<WeightFormat>(format);
    test_format(fixture, f, 200, 512, NormKind::none);
    test_format(fixture, f, 4096, 4096, NormKind::rms);
    if (!is_k_format(f)) test_format(fixture, f, 48, 352, NormKind::layer);
  }
  test_format(fixture, WeightFormat::q4_k, 1024, 14336, NormKind::none);
  test_format(fixture, WeightFormat::q6_k, 1024, 14336, NormKind::none);
  test_format(fixture, WeightFormat::q8_0, 1024, 14336, NormKind::none);
  // Rows of fewer chunks than there are warps.
  test_format(fixture, WeightFormat::q4_0, 8500, 2048, NormKind::rms);
  test_format(fixture, WeightFormat::q8_0, 6400, 576, NormKind::none);
  test_format(fixture, WeightFormat::q6_k, 20000, 512, NormKind::rms);
  for (const NormKind norm : {NormKind::none, NormKind::rms, NormKind::layer}) {
    test_halves(fixture, 203, 72, norm);
    test_halves(fixture, 1030, 576, norm);
    test_halves(fixture, 4096, 4096, norm);
  }
  test_halves(fixture, 1024, 14336, NormKind::none);
  test_halves(fixture, 9001, 2048, NormKind::rms);
  test_halves(fixture, 32768, 5632, NormKind::none);
  test_half_fusions(fixture, 203, 72);
  test_half_fusions(fixture, 4096, 2048);
  test_half_fusions(fixture, 14336, 4096);
  test_fusions(fixture);
  test_parts(fixture, WeightFormat::q8_0);
  test_parts(fixture, WeightFormat::q6_k);
  test_qkv(fixture);
  for (const int count : {2, 3, 16}) {
    test_bad_numbers(fixture, RandomMatrix(WeightFormat::q4_k, 64, 512, fixture.random()), count);
    test_bad_numbers(fixture, RandomHalves(64, 512, fixture.random()), count);
  }
  if (!fixture.times()) return;
  for (int format = 0; format <= static_cast<int>(WeightFormat::q6_k); ++format) {
    time_shape(fixture, static_cast<WeightFormat>(format), 14336, 4096, {1, 2, 4, 8, 16}, GemvOutput::store);
  }
  time_shape(fixture, WeightFormat::q4_k, 14336, 4096, {1, 2, 4, 8, 16}, GemvOutput::glu);
  time_shape(fixture, WeightFormat::q4_k, 6144, 4096, {1, 8}, GemvOutput::store);
  time_shape(fixture, WeightFormat::q4_k, 4096, 4096, {1, 8}, GemvOutput::store);
  time_shape(fixture, WeightFormat::q4_k, 4096, 14336, {1, 2, 4, 8, 16}, GemvOutput::store);
  time_shape(fixture, WeightFormat::q6_k, 4096, 14336, {1, 8}, GemvOutput::store);
  time_shape(fixture, WeightFormat::q6_k, 32000, 4096, {1, 8}, GemvOutput::store);
  time_halves(fixture, 6144, 4096, {1, 2, 4}, GemvOutput::store);
  time_halves(fixture, 4096, 4096, {1, 2, 4}, GemvOutput::add);
  time_halves(fixture, 14336, 4096, {1, 2, 4}, GemvOutput::glu);
  time_halves(fixture, 4096, 14336, {1, 2, 4}, GemvOutput::add);
  time_halves(fixture, 32000, 4096, {1}, GemvOutput::store);
}

}  // namespace quarrel::cuda
