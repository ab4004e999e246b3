#include "ops/ssm_fixture.h"

#include <fmt/format.h>

#include <algorithm>

#include "quant/decode.h"
#include "quant/encode.h"

namespace quarrel::test {
namespace {

Row cut(const Row& row, std::size_t first, std::size_t count) {
  const auto begin = row.begin() + static_cast<std::ptrdiff_t>(first);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

// What a weight of that type is when it was read back.
Floats rounded_to(QuantType type, Floats values) {
  std::vector<std::byte> blocks(row_bytes(type_info(type), values.columns));
  for (std::size_t r = 0; r < values.rows; ++r) {
    float* row = values.values.data() + r * values.columns;
    encode_row(type, row, blocks.data(), values.columns);
    decode_row(type, blocks.data(), row, values.columns);
  }
  return values;
}

std::vector<float> random_vector(bool wanted, std::int32_t count, std::uint64_t seed, double scale = 1.0,
                                 double centre = 0.0) {
  return wanted ? random_matrix(1, as_size(count), seed, scale, centre).values : std::vector<float>{};
}

// What the scan of one time step takes.
struct ScanInput {
  Row x = {}, b = {}, c = {}, dt = {};  // b and c: [groups][state]
};

ScanInput scan_input(const SsmCase& c, const SsmData& data, const Row& in, const Row& mixed) {
  const auto inner = as_size(c.inner);
  const auto state = as_size(c.state);
  ScanInput scan{.x = cut(mixed, 0, inner)};
  if (c.version == 2) {
    const auto shared = as_size(c.groups) * state;
    scan.b = cut(mixed, inner, shared);
    scan.c = cut(mixed, inner + shared, shared);
    scan.dt = cut(in, inner + as_size(c.channels()), as_size(c.heads));
    for (std::size_t h = 0; h < data.dt_bias.size(); ++h) scan.dt[h] += static_cast<double>(data.dt_bias[h]);
  } else {
    const Row projected = matvec(data.x_proj, scan.x);
    Row dt = cut(projected, 0, as_size(c.rank));
    scan.b = cut(projected, as_size(c.rank), state);
    scan.c = cut(projected, as_size(c.rank) + state, state);
    if (c.part_norms) {
      const std::vector<float> ones(state, 1.0f);
      dt = rms_norm(dt, data.dt_norm, 1e-5);
      scan.b = rms_norm(scan.b, ones, 1e-5);
      scan.c = rms_norm(scan.c, ones, 1e-5);
    }
    scan.dt = matvec(data.dt_proj, dt, data.dt_bias);
  }
  for (double& dt : scan.dt) dt = std::log1p(std::exp(dt));
  return scan;
}

}  // namespace

std::string SsmCase::name() const {
  return fmt::format("v{}i{}s{}w{}h{}g{}{}{}{}", version, inner, state, taps, heads, groups, part_norms ? "normed" : "",
                     bare ? "bare" : "", projections == QuantType::f32 ? "" : "quantised");
}

SsmData::SsmData(const SsmCase& c)
    : in(random_matrix(2 * kTokens, as_size(c.in_width()), 70)),
      conv(random_matrix(as_size(c.channels()), as_size(c.taps), 71)),
      a(random_matrix(c.version == 1 ? as_size(c.inner) : 1, as_size(c.version == 1 ? c.state : c.heads), 72, 0.5,
                      -1.0)),
      x_proj(rounded_to(c.projections, random_matrix(as_size(c.rank + 2 * c.state), as_size(c.inner), 73, 0.5))),
      dt_proj(rounded_to(c.projections, random_matrix(as_size(c.inner), as_size(c.rank), 74))),
      conv_bias(random_vector(!c.bare, c.channels(), 75)),
      d(random_vector(!c.bare, c.version == 1 ? c.inner : c.heads, 76)),
      dt_bias(random_vector(!c.bare, c.version == 1 ? c.inner : c.heads, 77)),
      norm(random_vector(!c.bare && c.version == 2, c.inner, 78, 0.5, 1.0)),
      dt_norm(random_vector(c.part_norms, c.rank, 79, 0.5, 1.0)) {}

double silu_of(double z) { return z / (1.0 + std::exp(-z)); }

Doubles ssm_of(const SsmCase& c, const SsmData& data, std::size_t first) {
  const auto inner = as_size(c.inner);
  const auto state_size = as_size(c.state);
  const auto taps = as_size(c.taps);
  const auto channels = as_size(c.channels());
  const std::size_t x_at = c.version == 1 ? 0 : inner;
  const std::size_t z_at = c.version == 1 ? inner : 0;
  const std::size_t heads = c.version == 1 ? inner : as_size(c.heads);
  const std::size_t dim = inner / heads;
  Doubles out(kTokens, inner);
  std::vector<double> state(inner * state_size, 0.0);
  for (std::size_t t = 0; t < kTokens; ++t) {
    Row mixed = c.bare ? Row(channels, 0.0) : widen(data.conv_bias);
    for (std::size_t channel = 0; channel < channels; ++channel) {
      for (std::size_t tap = 0; tap < taps && tap <= t; ++tap) {  // `tap` steps back
        mixed[channel] += static_cast<double>(data.conv.at(channel, taps - 1 - tap)) *
                          static_cast<double>(data.in.at(first + t - tap, x_at + channel));
      }
      mixed[channel] = silu_of(mixed[channel]);
    }
    const ScanInput scan = scan_input(c, data, widen(data.in.row(first + t)), mixed);
    Row y(inner);
    for (std::size_t i = 0; i < inner; ++i) {
      const std::size_t head = i / dim;
      const std::size_t group_at = c.version == 1 ? 0 : head / (heads / as_size(c.groups)) * state_size;
      y[i] = c.bare ? 0.0 : static_cast<double>(data.d[head]) * scan.x[i];
      for (std::size_t s = 0; s < state_size; ++s) {
        const double a = static_cast<double>(c.version == 1 ? data.a.at(i, s) : data.a.at(0, head));
        double& value = state[i * state_size + s];
        value = value * std::exp(scan.dt[head] * a) + scan.dt[head] * scan.x[i] * scan.b[group_at + s];
        y[i] += value * scan.c[group_at + s];
      }
      y[i] *= silu_of(static_cast<double>(data.in.at(first + t, z_at + i)));
    }
    if (!data.norm.empty()) {
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

SsmFixture::SsmFixture(const DeviceUnderTest& device, const SsmCase& c, const SsmData& data) : fixture(device) {
  op = {.layer = 3,
        .state_layer = 1,
        .version = c.version,
        .in = fixture.input(data.in),
        .out = fixture.activation(c.inner),
        .conv = vector_of(data.conv),
        .conv_bias = vector_or_none(data.conv_bias),
        .a = vector_of(data.a),
        .d = vector_or_none(data.d),
        .dt_bias = vector_or_none(data.dt_bias),
        .inner = c.inner,
        .state = c.state,
        .heads = c.version == 1 ? c.inner : c.heads,
        .groups = c.version == 1 ? 1 : c.groups,
        .conv_width = c.taps,
        .dt_rank = c.rank};
  if (c.version == 1) {
    op.x_proj = fixture.matrix(data.x_proj, WeightRole::column_parallel, c.projections);
    op.dt_proj = fixture.matrix(data.dt_proj, WeightRole::column_parallel, c.projections);
  }
  if (c.part_norms) {
    op.dt_norm = {.kind = NormKind::rms, .epsilon = 1e-5f, .weight = fixture.vector(data.dt_norm)};
    op.b_norm = op.c_norm = {.kind = NormKind::rms, .epsilon = 1e-5f};
  }
  if (!data.norm.empty()) op.norm = {.kind = NormKind::rms, .epsilon = 1e-5f, .weight = fixture.vector(data.norm)};
  const StateLayer layer{.conv_values = std::int64_t{c.taps - 1} * c.channels(),
                         .scan_values = std::int64_t{c.inner} * c.state};
  layers = {{.conv_values = 3, .scan_values = 5}, layer};  // another layer's state comes first in a slot
  fixture.cache({.groups = {}, .state_layers = layers, .kv_type = KvType::f32, .blocks = {}, .state_slots = 6});
}

Floats SsmFixture::run(const StepPlan& plan) {
  return fixture.run(plan, op.out, [&](Backend& b) { b.ssm(op); });
}

std::vector<std::byte> SsmFixture::slot(std::int32_t index) {
  std::vector<std::byte> bytes(fixture.backend().state_bytes(layers));
  fixture.backend().await_transfer(fixture.backend().start_export_slot(index, bytes));
  return bytes;
}

}  // namespace quarrel::test
