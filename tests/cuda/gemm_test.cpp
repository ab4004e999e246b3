// GEMMs of many rows on weights decoded to F16, through cuBLASLt.
#include <fmt/format.h>

#include "backend/cuda/dense_gemm.h"
#include "backend/cuda/repack.h"
#include "base/as_size.h"
#include "cuda/fixture.h"
#include "cuda/random_weights.h"
#include "quant/half.h"

namespace quarrel::cuda {
namespace {

std::vector<std::uint16_t> random_halves(std::size_t count, std::mt19937_64& random) {
  std::vector<std::uint16_t> halves(count);
  // Normal numbers of both signs between 1/8 and 2.
  std::minstd_rand fast(static_cast<unsigned>(random()));
  for (std::uint16_t& half : halves) {
    const auto bits = static_cast<std::uint32_t>(fast());
    half = static_cast<std::uint16_t>((bits >> 8 & 0x83ffu) | (12u + bits % 4u) << 10);
  }
  return halves;
}

void test_gemm_shape(Fixture& fixture) {
  constexpr int kTokens = 96;
  constexpr int kRows = 256;
  constexpr int kColumns = 1024;
  const RandomMatrix matrix(WeightFormat::q4_k, kRows, kColumns, fixture.random());
  const DeviceBuffer decoded = poisoned(as_size(kRows) * kColumns * 2);
  decode_to_f16(fixture.context(), matrix.packed, decoded.as<std::uint16_t>());
  const auto in = random_halves(as_size(kTokens) * kColumns, fixture.random());
  const DeviceBuffer device_in = to_device(in);
  const DeviceBuffer out = poisoned(as_size(kTokens) * kRows * 4);
  DenseGemm gemm;
  gemm.run(fixture.context(), {.tokens = kTokens, .rows = kRows, .columns = kColumns}, decoded.as<std::uint16_t>(),
           device_in.as<std::uint16_t>(), out.data());
  const auto results = to_host(out.as<float>(), as_size(kTokens) * kRows);
  std::vector<double> exact(results.size());
  parallel_for(kRows, [&](int row) {
    const auto weights = matrix.row(row);
    for (std::size_t t = 0; t < kTokens; ++t) {
      double sum = 0.0;
      for (std::size_t c = 0; c < kColumns; ++c) {
        sum += static_cast<double>(weights[c]) * static_cast<double>(f16_to_f32(in[t * kColumns + c]));
      }
      exact[t * kRows + as_size(row)] = sum;
    }
  });
  fixture.check("gemm on decoded Q4_K", difference(results, exact), 2e-7);
}

// The same GEMM in F32, which no tensor core computes.
void compare_with_f32(Fixture& fixture, int tokens, int rows, int columns, double halves) {
  const auto numbers = [&](int count) {
    return to_device(random_values(as_size(count) * as_size(columns), 1.0f, fixture.random()));
  };
  const DeviceBuffer weight = numbers(rows);
  const DeviceBuffer in = numbers(tokens);
  const DeviceBuffer out = poisoned(as_size(tokens) * as_size(rows) * 4);
  DenseGemm gemm;
  const GemmShape shape{.tokens = tokens, .rows = rows, .columns = columns, .f32_in = true};
  const double time = fixture.microseconds(
      2, fixture.context_without_overlap(),
      [&](int, const LaunchContext& context) { gemm.run(context, shape, weight.data(), in.data(), out.data()); });
  fixture.report_operations(
      fmt::format("cuBLASLt in F32 {}x{}x{}, {:.1f} times as long", tokens, rows, columns, time / halves), time,
      2.0 * tokens * rows * columns);
}

double time_shape(Fixture& fixture, const std::string& name, int tokens, int rows, int columns) {
  const DeviceBuffer weight = to_device(random_halves(as_size(rows) * as_size(columns), fixture.random()));
  const DeviceBuffer in = to_device(random_halves(as_size(tokens) * as_size(columns), fixture.random()));
  const DeviceBuffer out = poisoned(as_size(tokens) * as_size(rows) * 2);
  DenseGemm gemm;
  const GemmShape shape{.tokens = tokens, .rows = rows, .columns = columns, .f32_out = false};
  const double operations = 2.0 * tokens * rows * columns;
  const double time =
      fixture.microseconds(8, fixture.context_without_overlap(), [&](int, const LaunchContext& context) {
        gemm.run(context, shape, weight.as<std::uint16_t>(), in.as<std::uint16_t>(), out.data());
      });
  if (fixture.gemm_rate() == 0.0) fixture.set_gemm_rate(operations / (time * 1e-6));
  fixture.report_operations(fmt::format("{} {}x{}x{}", name, tokens, rows, columns), time, operations);
  return time;
}

void time_decoding(Fixture& fixture, WeightFormat format) {
  constexpr int kRows = 14336;
  constexpr int kColumns = 4096;
  const RandomMatrix matrix(format, kRows, kColumns, fixture.random());
  const DeviceBuffer out = poisoned(std::size_t{kRows} * kColumns * 2);
  const double time = fixture.microseconds(
      8, fixture.context_without_overlap(),
      [&](int, const LaunchContext& context) { decode_to_f16(context, matrix.packed, out.as<std::uint16_t>()); });
  fixture.report_bytes(fmt::format("decode to f16 {} {}x{}", type_info(quant_type(format)).name, kRows, kColumns), time,
                       static_cast<double>(matrix.packed.bytes()) + 2.0 * kRows * kColumns);
}

}  // namespace

void test_gemm(Fixture& fixture) {
  test_gemm_shape(fixture);
  if (!fixture.times()) return;
  time_shape(fixture, "cuBLASLt", 8192, 8192, 8192);
  // The GEMMs of one layer of a 7B model, all of them for a chunk of the prompt.
  for (const int tokens : {512, 2048}) {
    double layer = 0.0;
    layer += time_shape(fixture, "cuBLASLt qkv", tokens, 6144, 4096);
    layer += time_shape(fixture, "cuBLASLt o", tokens, 4096, 4096);
    layer += time_shape(fixture, "cuBLASLt gate and up", tokens, 28672, 4096);
    layer += time_shape(fixture, "cuBLASLt down", tokens, 4096, 14336);
    fixture.report(fmt::format("GEMMs of 32 layers, {} tokens: {:.2f} ms, {:.0f} tokens/s without anything else",
                               tokens, 32.0 * layer * 1e-3, tokens / (32.0 * layer * 1e-6)));
  }
  const double halves = time_shape(fixture, "cuBLASLt", 2048, 14336, 4096);
  compare_with_f32(fixture, 2048, 14336, 4096, halves);
  time_decoding(fixture, WeightFormat::q4_k);
  time_decoding(fixture, WeightFormat::q6_k);
}

}  // namespace quarrel::cuda
