// The numbers at the edges of what a state-space layer may meet: dt from 1e-8 to 1e4, A from -1e4 to -1e-6, denormals,
// F16's largest. Nothing there may become a NaN, and every device is close to double in relative terms, save for what
// the CPU leaves out where it takes denormals for zero. Its kernels alone are right down to those.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "backend/cpu/isa.h"
#include "backend/sampling.h"
#include "ops/harness.h"

namespace quarrel::test {
namespace {

constexpr float kHalfMost = 65504.0f;
constexpr float kDenormal = std::numeric_limits<float>::denorm_min();

double plain_silu(double z) { return z / (1.0 + std::exp(-z)); }

void expect_relative(float actual, double expected, double tolerance) {
  ASSERT_FALSE(std::isnan(actual));
  // Half a denormal: the best that a float can do down there.
  ASSERT_LE(std::abs(static_cast<double>(actual) - expected), tolerance * std::abs(expected) + 2.2e-45)
      << actual << " is not " << expected;
}

TEST(SsmKernels, SoftplusAndSiluAreExactToTheLastBitsEverywhere) {
  std::vector<float> values = {0.0f, -0.0f, kDenormal, -kDenormal, 1e-38f, -1e-8f, kHalfMost, -kHalfMost, 1e4f, 3e38f};
  for (float z = -105.0f; z < 105.0f; z += 0.0371f) values.push_back(z);
  for (const IsaLevel level : available_levels()) {
    SCOPED_TRACE(level_name(level));
    const CpuKernels& kernels = kernels_of(level);
    std::vector<float> out(values.size());
    kernels.softplus(values.data(), nullptr, out.data(), values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto z = static_cast<double>(values[i]);
      ASSERT_NO_FATAL_FAILURE(expect_relative(out[i], z > 40.0 ? z : std::log1p(std::exp(z)), 4e-7)) << z;
    }
    // SiLU through a convolution of width 1.
    std::array<float, kSsmStrip> ones{};
    std::array<float, kSsmStrip> zeros{};
    ones.fill(1.0f);
    const std::int32_t row = 0;
    for (std::size_t i = 0; i < values.size(); i += kSsmStrip) {
      kernels.convolve({.in = values.data() + i,
                        .out = out.data() + i,
                        .rows = &row,
                        .count = 1,
                        .channels = std::min(kSsmStrip, values.size() - i),
                        .taps = 1,
                        .weights = ones.data(),
                        .bias = zeros.data()});
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      // Below -87 the e^z within is a denormal itself and has fewer bits.
      const auto z = static_cast<double>(values[i]);
      const double lost = z < -87.0 ? -z * 1.5e-45 : 0.0;
      ASSERT_FALSE(std::isnan(out[i])) << z;
      ASSERT_LE(std::abs(static_cast<double>(out[i]) - plain_silu(z)), 5e-7 * std::abs(plain_silu(z)) + lost + 2.2e-45)
          << z;
    }
  }
}

// Every A of the table is a head (version 2) or a channel (version 1); every row of the text takes another combination
// of dt, x, B, C and z. There is no convolution to speak of, and what is positive stays so, so nothing cancels.
struct Extremes {
  std::vector<float> a = {-1e4f, -100.0f, -1.0f, -0.01f, -1e-6f};
  std::vector<float> dt;  // before softplus
  std::vector<float> sizes = {0.0f, kDenormal, 1e-38f, 1e-8f, 1.0f, 300.0f, kHalfMost};
  std::vector<float> gates = {-kHalfMost, -88.0f, -20.0f, 1e-8f, 2.0f, kHalfMost};
  Extremes() {
    for (const double wanted : {1e-8, 1e-4, 0.5, 20.0, 1e4}) {
      dt.push_back(static_cast<float>(wanted > 30.0 ? wanted : std::log(std::expm1(wanted))));
    }
    dt.push_back(-50.0f);
  }
};

struct ExtremeRow {
  float dt, x, b, c, z;
};

std::vector<ExtremeRow> extreme_rows(const Extremes& table) {
  std::vector<ExtremeRow> rows;
  for (std::size_t i = 0; i < 150; ++i) {
    const auto pick = [&](const std::vector<float>& from, std::uint64_t seed) {
      return from[static_cast<std::size_t>(uniform(seed, i) * static_cast<double>(from.size()))];
    };
    rows.push_back(
        {pick(table.dt, 1), pick(table.sizes, 2), pick(table.sizes, 3), pick(table.sizes, 4), pick(table.gates, 5)});
  }
  return rows;
}

// What a value below it may lose: nothing, or all of it on a device to which denormals are zero.
double smallest_value(const DeviceUnderTest& device) {
  return device.device.name() == "cpu" ? static_cast<double>(std::numeric_limits<float>::min()) : 0.0;
}

// What one channel gives: what comes out of SiLU and the state are F32, as everywhere. Each factor and each product of
// two may lose `tiny`, and the others enlarge what was lost.
void expect_channel(const Floats& out, std::size_t channel, const std::vector<ExtremeRow>& rows, double a,
                    double tiny) {
  const auto before_scan = [](float value) {
    return static_cast<double>(static_cast<float>(plain_silu(static_cast<double>(value))));
  };
  float state = 0.0f;
  double lost = 0.0;  // of the state
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const double dt_raw = static_cast<double>(rows[r].dt);
    const double dt = dt_raw > 40.0 ? dt_raw : std::log1p(std::exp(dt_raw));
    const double x = before_scan(rows[r].x);
    const double b = before_scan(rows[r].b);
    const double c = before_scan(rows[r].c);
    lost = lost * std::exp(dt * a) + tiny * (static_cast<double>(state) + (1.0 + dt) * (1.0 + x) * (1.0 + b));
    state = static_cast<float>(static_cast<double>(state) * std::exp(dt * a) + dt * x * b);
    const double y = static_cast<double>(state) * c + x;
    const double z = static_cast<double>(rows[r].z);
    const double expected = y * plain_silu(z);
    const double lost_y = lost * c + tiny * (2.0 + static_cast<double>(state));
    // SiLU is z e^z where e^z is so small.
    const double lost_here = lost_y * std::abs(plain_silu(z)) + y * tiny * std::min(105.0, 1.0 + std::abs(z));
    const float actual = out.at(r, channel);
    ASSERT_FALSE(std::isnan(actual)) << "row " << r << ", channel " << channel;
    ASSERT_LE(std::abs(static_cast<double>(actual) - expected), 5e-5 * std::abs(expected) + lost_here + 1e-30)
        << actual << " is not " << expected << " in row " << r << ", channel " << channel;
  }
}

TEST(SsmExtremes, Version2) {
  const Extremes table;
  const std::vector<ExtremeRow> rows = extreme_rows(table);
  const std::size_t heads = table.a.size();
  Floats in(rows.size(), 2 * heads + 2 + heads);  // z, x, B, C, dt
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::size_t h = 0; h < heads; ++h) {
      in.at(r, h) = rows[r].z;
      in.at(r, heads + h) = rows[r].x;
      in.at(r, 2 * heads + 2 + h) = rows[r].dt;
    }
    in.at(r, 2 * heads) = rows[r].b;
    in.at(r, 2 * heads + 1) = rows[r].c;
  }
  for_each_device([&](const DeviceUnderTest& device) {
    OpFixture fixture(device);
    const SsmOp op{.version = 2,
                   .in = fixture.input(in),
                   .out = fixture.activation(static_cast<std::int32_t>(heads)),
                   .conv = fixture.vector(std::vector<float>(heads + 2, 1.0f)),
                   .a = fixture.vector(table.a),
                   .d = fixture.vector(std::vector<float>(heads, 1.0f)),
                   .inner = static_cast<std::int32_t>(heads),
                   .state = 1,
                   .heads = static_cast<std::int32_t>(heads),
                   .groups = 1,
                   .conv_width = 1};
    fixture.cache({.groups = {},
                   .state_layers = {{.conv_values = 0, .scan_values = static_cast<std::int64_t>(heads)}},
                   .kv_type = KvType::f32,
                   .blocks = {},
                   .state_slots = 1});
    const Floats out = fixture.run(StepPlan().add(0, static_cast<std::int32_t>(rows.size()), {.state_out = 0}), op.out,
                                   [&](Backend& backend) { backend.ssm(op); });
    for (std::size_t h = 0; h < heads; ++h) {
      ASSERT_NO_FATAL_FAILURE(expect_channel(out, h, rows, static_cast<double>(table.a[h]), smallest_value(device)));
    }
  });
}

// Channels 0 to 4 meet the As of the table. Channels 5 to 7 carry dt, B and C to the projections, which only pick them.
TEST(SsmExtremes, Version1) {
  const Extremes table;
  std::vector<ExtremeRow> rows = extreme_rows(table);
  for (ExtremeRow& row : rows) row.dt = std::max(row.dt, 0.5f);  // what SiLU lets through
  const std::size_t scanned = table.a.size();
  const std::size_t inner = scanned + 3;
  Floats in(rows.size(), 2 * inner);  // x, z
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::size_t i = 0; i < scanned; ++i) in.at(r, i) = rows[r].x;
    in.at(r, scanned) = rows[r].dt;
    in.at(r, scanned + 1) = rows[r].b;
    in.at(r, scanned + 2) = rows[r].c;
    for (std::size_t i = 0; i < inner; ++i) in.at(r, inner + i) = rows[r].z;
  }
  Floats x_proj(3, inner);
  for (std::size_t i = 0; i < 3; ++i) x_proj.at(i, scanned + i) = 1.0f;
  Floats dt_proj(inner, 1);
  std::ranges::fill(dt_proj.values, 1.0f);
  std::vector<float> a = table.a;
  a.resize(inner, -1.0f);
  for (ExtremeRow& row : rows) row.dt = static_cast<float>(plain_silu(static_cast<double>(row.dt)));
  for_each_device([&](const DeviceUnderTest& device) {
    OpFixture fixture(device);
    const SsmOp op{.version = 1,
                   .in = fixture.input(in),
                   .out = fixture.activation(static_cast<std::int32_t>(inner)),
                   .conv = fixture.vector(std::vector<float>(inner, 1.0f)),
                   .a = fixture.vector(a),
                   .d = fixture.vector(std::vector<float>(inner, 1.0f)),
                   .x_proj = fixture.matrix(x_proj),
                   .dt_proj = fixture.matrix(dt_proj),
                   .inner = static_cast<std::int32_t>(inner),
                   .state = 1,
                   .conv_width = 1,
                   .dt_rank = 1};
    fixture.cache({.groups = {},
                   .state_layers = {{.conv_values = 0, .scan_values = static_cast<std::int64_t>(inner)}},
                   .kv_type = KvType::f32,
                   .blocks = {},
                   .state_slots = 1});
    const Floats out = fixture.run(StepPlan().add(0, static_cast<std::int32_t>(rows.size()), {.state_out = 0}), op.out,
                                   [&](Backend& backend) { backend.ssm(op); });
    for (std::size_t i = 0; i < scanned; ++i) {
      ASSERT_NO_FATAL_FAILURE(expect_channel(out, i, rows, static_cast<double>(table.a[i]), smallest_value(device)));
    }
  });
}

// Finite values whose squares are no floats any more are normed like others; without a weight a norm only divides.
TEST(SsmExtremes, TheNormTakesLargeValues) {
  const float values[] = {3e30f, -4e30f, 0.0f, 1e29f, 2e30f, -1e30f, 3e30f, 1e25f, -2e30f};
  constexpr std::size_t kCount = std::size(values);
  double squares = 0.0;
  for (const float value : values) squares += static_cast<double>(value) * static_cast<double>(value);
  for (const IsaLevel level : available_levels()) {
    SCOPED_TRACE(level_name(level));
    float out[kCount];
    EXPECT_TRUE(std::isfinite(kernels_of(level).rms_norm(values, nullptr, out, kCount, 1e-5f)));
    for (std::size_t i = 0; i < kCount; ++i) {
      EXPECT_NEAR(static_cast<double>(out[i]), static_cast<double>(values[i]) / std::sqrt(squares / kCount), 1e-6);
    }
    const float bad[] = {1.0f, std::numeric_limits<float>::infinity(), 2.0f};
    EXPECT_FALSE(std::isfinite(kernels_of(level).rms_norm(bad, nullptr, out, 3, 1e-5f)));
  }
}

}  // namespace
}  // namespace quarrel::test
