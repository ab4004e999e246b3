// `ssm`, both versions, against a plain loop over time; state across steps, snapshots, several sequences.
#include <gtest/gtest.h>

#include <cstring>

#include "ops/harness.h"

namespace quarrel::test {
namespace {

constexpr std::int32_t kTokens = 23;
constexpr std::int32_t kState = 5;
constexpr std::int32_t kTaps = 4;

struct SsmCase {
  std::int32_t version = 2;
  std::int32_t inner = 24;
  std::int32_t heads = 6;   // version 2
  std::int32_t groups = 2;  // version 2
  std::int32_t rank = 3;    // version 1

  std::int32_t channels() const { return version == 1 ? inner : inner + 2 * groups * kState; }
  std::int32_t in_width() const { return version == 1 ? 2 * inner : inner + channels() + heads; }
};

struct SsmData {
  Floats in, conv, a, x_proj, dt_proj;
  std::vector<float> conv_bias, d, dt_bias, norm;
  explicit SsmData(const SsmCase& c)
      : in(random_grid(2 * kTokens, as_size(c.in_width()), 70)),
        conv(random_grid(as_size(c.channels()), kTaps, 71)),
        a(random_grid(c.version == 1 ? as_size(c.inner) : 1, c.version == 1 ? kState : as_size(c.heads), 72, 0.5,
                      -1.0)),
        x_proj(random_grid(as_size(c.rank + 2 * kState), as_size(c.inner), 73, 0.5)),
        dt_proj(random_grid(as_size(c.inner), as_size(c.rank), 74)),
        conv_bias(random_grid(1, as_size(c.channels()), 75).values),
        d(random_grid(1, as_size(c.version == 1 ? c.inner : c.heads), 76).values),
        dt_bias(random_grid(1, as_size(c.version == 1 ? c.inner : c.heads), 77).values),
        norm(random_grid(1, as_size(c.inner), 78, 0.5, 1.0).values) {}
};

double silu_of(double z) { return z / (1.0 + std::exp(-z)); }
Row cut(const Row& row, std::size_t first, std::size_t count) {
  const auto begin = row.begin() + static_cast<std::ptrdiff_t>(first);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

// What the scan of one time step takes.
struct ScanInput {
  Row x = {}, b = {}, c = {}, dt = {};  // b and c: [groups][state]
};

ScanInput scan_input(const SsmCase& c, const SsmData& data, const Row& in, const Row& mixed) {
  const auto inner = as_size(c.inner);
  ScanInput scan{.x = cut(mixed, 0, inner)};
  if (c.version == 2) {
    const auto shared = as_size(c.groups * kState);
    scan.b = cut(mixed, inner, shared);
    scan.c = cut(mixed, inner + shared, shared);
    scan.dt = cut(in, inner + as_size(c.channels()), as_size(c.heads));
    for (std::size_t h = 0; h < scan.dt.size(); ++h) scan.dt[h] += static_cast<double>(data.dt_bias[h]);
  } else {
    const Row projected = matvec(data.x_proj, scan.x);
    scan.b = cut(projected, as_size(c.rank), kState);
    scan.c = cut(projected, as_size(c.rank) + kState, kState);
    scan.dt = matvec(data.dt_proj, cut(projected, 0, as_size(c.rank)), data.dt_bias);
  }
  for (double& dt : scan.dt) dt = std::log1p(std::exp(dt));
  return scan;
}

// Rows [first, first + kTokens) of the input as one text from the beginning.
Doubles ssm_of(const SsmCase& c, const SsmData& data, std::size_t first) {
  const auto inner = as_size(c.inner);
  const auto channels = as_size(c.channels());
  const std::size_t x_at = c.version == 1 ? 0 : inner;
  const std::size_t z_at = c.version == 1 ? inner : 0;
  const std::size_t heads = c.version == 1 ? inner : as_size(c.heads);
  const std::size_t dim = inner / heads;
  Doubles out(kTokens, inner);
  std::vector<double> state(inner * kState, 0.0);
  for (std::size_t t = 0; t < kTokens; ++t) {
    Row mixed = widen(data.conv_bias);
    for (std::size_t channel = 0; channel < channels; ++channel) {
      for (std::size_t tap = 0; tap < kTaps && tap <= t; ++tap) {  // `tap` steps back
        mixed[channel] += static_cast<double>(data.conv.at(channel, kTaps - 1 - tap)) *
                          static_cast<double>(data.in.at(first + t - tap, x_at + channel));
      }
      mixed[channel] = silu_of(mixed[channel]);
    }
    const ScanInput scan = scan_input(c, data, widen(data.in.row(first + t)), mixed);
    Row y(inner);
    for (std::size_t i = 0; i < inner; ++i) {
      const std::size_t head = i / dim;
      const std::size_t group = c.version == 1 ? 0 : head / (heads / as_size(c.groups));
      y[i] = static_cast<double>(data.d[head]) * scan.x[i];
      for (std::size_t s = 0; s < kState; ++s) {
        const double a = static_cast<double>(c.version == 1 ? data.a.at(i, s) : data.a.at(0, head));
        double& value = state[i * kState + s];
        value = value * std::exp(scan.dt[head] * a) + scan.dt[head] * scan.x[i] * scan.b[group * kState + s];
        y[i] += value * scan.c[group * kState + s];
      }
      y[i] *= silu_of(static_cast<double>(data.in.at(first + t, z_at + i)));
    }
    if (c.version == 2) {
      const std::size_t size = inner / as_size(c.groups);
      for (std::size_t at = 0; at < inner; at += size) {
        const std::vector<float> weight(data.norm.begin() + static_cast<std::ptrdiff_t>(at),
                                        data.norm.begin() + static_cast<std::ptrdiff_t>(at + size));
        std::ranges::copy(rms_norm(cut(y, at, size), weight, 1e-5), &y[at]);
      }
    }
    std::ranges::copy(y, &out.at(t, 0));
  }
  return out;
}

struct SsmBench {
  OpBench bench;
  SsmOp op;
  std::vector<StateLayer> layers;

  SsmBench(const DeviceUnderTest& device, const SsmCase& c, const SsmData& data) : bench(device) {
    op = {.layer = 3,
          .state_layer = 1,
          .version = c.version,
          .in = bench.input(data.in),
          .out = bench.activation(c.inner),
          .conv = vector_of(data.conv),
          .conv_bias = bench.vector(data.conv_bias),
          .a = vector_of(data.a),
          .d = bench.vector(data.d),
          .dt_bias = bench.vector(data.dt_bias),
          .inner = c.inner,
          .state = kState,
          .heads = c.version == 1 ? c.inner : c.heads,
          .groups = c.version == 1 ? 1 : c.groups,
          .conv_width = kTaps,
          .dt_rank = c.rank};
    if (c.version == 1) {
      op.x_proj = bench.matrix(data.x_proj);
      op.dt_proj = bench.matrix(data.dt_proj);
    } else {
      op.norm = {.kind = NormKind::rms, .epsilon = 1e-5f, .weight = bench.vector(data.norm)};
    }
    const StateLayer layer{.conv_values = std::int64_t{kTaps - 1} * c.channels(),
                           .scan_values = std::int64_t{c.inner} * kState};
    layers = {{.conv_values = 3, .scan_values = 5}, layer};  // another layer's state comes first in a slot
    bench.cache({.groups = {}, .state_layers = layers, .kv_type = KvType::f32, .blocks = {}, .state_slots = 6});
  }

  Weight vector_of(const Floats& values) { return bench.matrix(values, WeightRole::vector); }

  Floats run(const StepPlan& plan) {
    return bench.run(plan, op.out, [&](Backend& b) { b.ssm(op); });
  }
  std::vector<std::byte> slot(std::int32_t index) {
    std::vector<std::byte> bytes(bench.backend().state_bytes(layers));
    bench.backend().export_slot(index, bytes);
    return bytes;
  }
};

class Ssm : public testing::TestWithParam<SsmCase> {
 protected:
  const SsmCase c_ = GetParam();
  const SsmData data_{c_};
};

TEST_P(Ssm, MatchesTheLoop) {
  const Doubles expected = ssm_of(c_, data_, 0);
  for_each_complete_device([&](const DeviceUnderTest& device) {
    SsmBench bench(device, c_, data_);
    const double tolerance = bench.bench.epsilon() * 10.0 * largest_row(data_.in);
    expect_close(bench.run(StepPlan().add(0, kTokens, {.state_out = 0})), expected, tolerance);
  });
}

TEST_P(Ssm, ChunksAndSingleTokensGiveTheSameBits) {
  for_each_complete_device([&](const DeviceUnderTest& device) {
    SsmBench bench(device, c_, data_);
    const Floats at_once = bench.run(StepPlan().add(0, kTokens, {.state_out = 0}));
    for (const std::int32_t chunk : {7, 2, 1}) {
      for (std::int32_t first = 0; first < kTokens; first += chunk) {
        const std::int32_t count = std::min(chunk, kTokens - first);
        // Back and forth between two slots, or in place.
        const std::int32_t from = chunk == 7 ? 1 + first / chunk % 2 : 1;
        const std::int32_t to = chunk == 7 ? 2 - first / chunk % 2 : 1;
        const Floats part =
            bench.run(StepPlan().add(first, count, {.state_in = first == 0 ? -1 : from, .state_out = to}));
        for (std::int32_t r = 0; r < count; ++r) {
          ASSERT_EQ(part.row(as_size(r)), at_once.row(as_size(first + r))) << "chunk " << chunk;
        }
        if (first + count == kTokens) {
          EXPECT_EQ(bench.slot(to), bench.slot(0));
        }
      }
    }
  });
}

TEST_P(Ssm, SnapshotsAreTheStateAfterTheirRow) {
  for_each_complete_device([&](const DeviceUnderTest& device) {
    SsmBench bench(device, c_, data_);
    bench.run(StepPlan().add(0, 9, {.state_out = 0}));
    StepPlan plan = StepPlan().add(0, kTokens, {.state_out = 1});
    plan.snapshots = {{.row = 8, .slot = 2}, {.row = 0, .slot = 3}, {.row = 8, .slot = 4}, {.row = 22, .slot = 5}};
    const Floats all = bench.run(plan);
    EXPECT_EQ(bench.slot(2), bench.slot(0));
    EXPECT_EQ(bench.slot(4), bench.slot(0));
    EXPECT_EQ(bench.slot(5), bench.slot(1));
    EXPECT_NE(bench.slot(3), bench.slot(0));
    // Going on from one gives what came then.
    const Floats rest = bench.run(StepPlan().add(9, 5, {.state_in = 2, .state_out = 2}));
    for (std::size_t r = 0; r < 5; ++r) EXPECT_EQ(rest.row(r), all.row(9 + r));
  });
}

TEST_P(Ssm, SequencesKeepTheirOwnState) {
  const Doubles first = ssm_of(c_, data_, 0);
  const Doubles second = ssm_of(c_, data_, kTokens);
  for_each_complete_device([&](const DeviceUnderTest& device) {
    SsmBench bench(device, c_, data_);
    const double tolerance = bench.bench.epsilon() * 10.0 * largest_row(data_.in);
    for (std::int32_t t = 0; t < kTokens; t += 4) {
      const std::int32_t count = std::min(4, kTokens - t);
      const Floats out = bench.run(StepPlan()
                                       .add(t, count, {.state_in = t == 0 ? -1 : 3, .state_out = 3})
                                       .add(t, count, {.state_in = t == 0 ? -1 : 4, .state_out = 4}, kTokens));
      for (std::int32_t r = 0; r < count; ++r) {
        expect_close(widen(out.row(as_size(r))), first.row(as_size(t + r)), tolerance);
        expect_close(widen(out.row(as_size(count + r))), second.row(as_size(t + r)), tolerance);
      }
    }
  });
}

TEST_P(Ssm, GeneratedRowsOfASequenceMayFollowItsPromptRows) {
  // Both classes in one step: the generated rows come first in it, whatever their positions.
  for_each_complete_device([&](const DeviceUnderTest& device) {
    SsmBench bench(device, c_, data_);
    const Floats ordered = bench.run(StepPlan().add(0, 6, {.state_out = 0}));
    StepPlan plan;
    plan.sequences.push_back({.length = 6, .state_out = 1});
    for (const std::int32_t position : {4, 5, 0, 1, 2, 3}) {
      plan.rows.push_back({.sequence = 0, .position = position, .token = position});
    }
    plan.generated_rows = 2;
    const Floats mixed = bench.run(plan);
    const double tolerance = bench.bench.epsilon() * 10.0 * largest_row(data_.in);
    for (std::size_t r = 0; r < 6; ++r) {
      expect_close(widen(mixed.row(r)), widen(ordered.row(as_size(plan.rows[r].position))), tolerance);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Versions, Ssm,
                         testing::Values(SsmCase{.version = 1}, SsmCase{.version = 2},
                                         SsmCase{.version = 2, .heads = 4, .groups = 1},
                                         SsmCase{.version = 2, .heads = 24, .groups = 3}),
                         [](const auto& tested) {
                           return "v" + std::to_string(tested.param.version) + "h" +
                                  std::to_string(tested.param.heads) + "g" + std::to_string(tested.param.groups);
                         });

}  // namespace
}  // namespace quarrel::test
