// State-space layers of small shapes with numbers from a table of extremes, on the reference and on every level of the
// CPU. The first byte holds flags (below), the next three choose the shape, the rest the numbers.
//
// Numbers come in three kinds. Wild ones may be anything, infinities and NaNs too: nothing may crash. Those within
// range
// (|x|, |B|, |C| up to F16's largest, dt before softplus in [-50, 1e4], A in [-1e4, -1e-6]) must not give a NaN. And
// where it is known how far roundings can carry, the CPU must agree with the reference: where all numbers are positive
// nothing cancels, and without norms the same layer of absolute values bounds every sum.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/create.h"
#include "base/error.h"
#include "fuzz/targets.h"

namespace quarrel::fuzz {
namespace {

constexpr float kHalfMost = 65504.0f;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kDenormal = std::numeric_limits<float>::denorm_min();
constexpr float kWild[] = {0.0f,
                           -0.0f,
                           kDenormal,
                           1e-38f,
                           -1e-8f,
                           1e-8f,
                           1e-3f,
                           1.0f,
                           -1.0f,
                           3.0f,
                           -50.0f,
                           88.0f,
                           -1e4f,
                           -kHalfMost,
                           kHalfMost,
                           3.4e38f,
                           -3.4e38f,
                           std::numeric_limits<float>::max(),
                           1e4f,
                           kInfinity,
                           -kInfinity,
                           -kDenormal,
                           std::numeric_limits<float>::quiet_NaN()};
constexpr float kValues[] = {0.0f, kDenormal, 1e-38f, 1e-8f, 1e-3f, 0.5f, 1.0f, 3.0f, 100.0f, 1e4f, kHalfMost};
constexpr float kSteps[] = {-50.0f, -18.4f, -5.0f, 0.0f, 1.0f, 20.0f, 88.0f, 1e4f};
constexpr float kDecays[] = {-1e4f, -100.0f, -1.0f, -0.1f, -1e-3f, -1e-6f};
constexpr float kWeights[] = {0.0f, 1.0f, 0.5f, 0.25f, 1e-8f, kDenormal};

enum Flag : std::uint8_t { kVersion1 = 1, kTame = 2, kPositive = 4, kNormed = 8, kPartNorms = 16, kBiases = 32 };

struct Source {
  Input bytes;
  std::size_t at = 0;
  bool wild = false;
  bool positive = false;

  std::uint8_t next() {
    const std::size_t round = at / bytes.size();
    const auto byte = std::to_integer<std::uint8_t>(bytes[at++ % bytes.size()]);
    return static_cast<std::uint8_t>(byte + 37 * round);
  }
  std::vector<float> draw(std::size_t count, std::span<const float> table, bool with_sign = true) {
    std::vector<float> values(count);
    for (float& value : values) {
      const std::uint8_t byte = next();
      value = wild ? kWild[byte % std::size(kWild)] : table[(byte & 127) % table.size()];
      if (!wild && !positive && with_sign && (byte & 128) != 0) value = -value;
    }
    return values;
  }
};

struct Layer {
  SsmOp op;
  std::size_t rows = 0, channels = 0, width = 0;
  std::vector<float> in, conv, conv_bias, a, d, dt_bias, x_proj, dt_proj, dt_norm, norm;
};

Layer read_layer(Source& source, std::uint8_t flags) {
  Layer layer;
  SsmOp& op = layer.op;
  const bool first = (flags & kVersion1) != 0;
  op.version = first ? 1 : 2;
  const std::uint8_t shape = source.next();
  op.groups = first ? 1 : 1 + shape % 2;
  op.heads = op.groups * (1 + shape / 2 % 3);
  op.inner = first ? 1 + shape / 8 : op.heads * (1 + shape / 8 % 10);
  const std::uint8_t more = source.next();
  op.state = 1 + more % 18;
  op.conv_width = 1 + more / 18 % 5;
  const std::uint8_t rest = source.next();
  op.dt_rank = 1 + rest % 4;
  layer.rows = 1 + rest / 4 % 8;
  const auto inner = static_cast<std::size_t>(op.inner);
  const auto state = static_cast<std::size_t>(op.state);
  const auto heads = first ? inner : static_cast<std::size_t>(op.heads);
  const auto rank = static_cast<std::size_t>(op.dt_rank);
  layer.channels = first ? inner : inner + 2 * static_cast<std::size_t>(op.groups) * state;
  layer.width = first ? 2 * inner : inner + layer.channels + heads;
  for (std::size_t r = 0; r < layer.rows; ++r) {
    const std::size_t plain = first ? layer.width : layer.width - heads;
    for (const float value : source.draw(plain, kValues)) layer.in.push_back(value);
    if (!first) {
      for (const float value : source.draw(heads, kSteps, false)) layer.in.push_back(value);
    }
  }
  layer.conv = source.draw(layer.channels * static_cast<std::size_t>(op.conv_width), kWeights);
  layer.a = source.draw(first ? inner * state : heads, kDecays, false);
  if (first) {
    layer.x_proj = source.draw((rank + 2 * state) * inner, kWeights);
    layer.dt_proj = source.draw(inner * rank, kWeights);
  }
  if ((flags & kBiases) != 0) {
    layer.conv_bias = source.draw(layer.channels, kWeights);
    layer.dt_bias = source.draw(heads, kWeights);
    layer.d = source.draw(heads, kWeights);
  }
  op.norm.kind = (flags & kNormed) != 0 ? NormKind::rms : NormKind::none;
  if ((flags & kNormed) != 0) layer.norm = source.draw(inner, kWeights);
  const bool part_norms = first && (flags & kPartNorms) != 0;
  op.dt_norm.kind = op.b_norm.kind = op.c_norm.kind = part_norms ? NormKind::rms : NormKind::none;
  if (part_norms) layer.dt_norm = source.draw(rank, kWeights);
  op.norm.epsilon = op.dt_norm.epsilon = op.b_norm.epsilon = op.c_norm.epsilon = 1e-5f;
  return layer;
}

// Rows [0, cut) in one step and the others in the next.
std::vector<float> run(Device& device, const Layer& layer, std::size_t cut) {
  const std::unique_ptr<Backend> backend = device.make_backend({});
  const auto weight = [&](const std::vector<float>& values, WeightRole role, std::size_t columns) {
    if (values.empty()) return Weight{};
    return backend->prepare_weight({.name = "a fuzzed weight",
                                    .role = role,
                                    .rows = static_cast<std::int64_t>(values.size() / columns),
                                    .columns = static_cast<std::int64_t>(columns),
                                    .data = reinterpret_cast<const std::byte*>(values.data())});
  };
  const auto vector = [&](const std::vector<float>& values) {
    return weight(values, WeightRole::vector, values.size());
  };
  SsmOp op = layer.op;
  const auto inner = static_cast<std::size_t>(op.inner);
  const Weight table = weight(layer.in, WeightRole::embedding, layer.width);
  op.in = backend->make_activation(static_cast<std::int32_t>(layer.width), RowSet::all);
  op.out = backend->make_activation(op.inner, RowSet::all);
  const Activation wanted = backend->make_activation(op.inner, RowSet::outputs);
  op.conv = vector(layer.conv);
  op.conv_bias = vector(layer.conv_bias);
  op.a = vector(layer.a);
  op.d = vector(layer.d);
  op.dt_bias = vector(layer.dt_bias);
  op.x_proj = weight(layer.x_proj, WeightRole::column_parallel, inner);
  op.dt_proj = weight(layer.dt_proj, WeightRole::column_parallel, static_cast<std::size_t>(op.dt_rank));
  op.norm.weight = vector(layer.norm);
  op.dt_norm.weight = vector(layer.dt_norm);
  const auto rows = static_cast<std::int32_t>(layer.rows);
  backend->reserve({.rows = rows, .outputs = rows}, rows);
  backend->allocate_cache(
      {.groups = {},
       .state_layers = {{.conv_values = (op.conv_width - 1) * static_cast<std::int64_t>(layer.channels),
                         .scan_values = std::int64_t{op.inner} * op.state}},
       .kv_type = KvType::f32,
       .blocks = {},
       .state_slots = 1});
  std::vector<float> out(layer.rows * inner);
  for (std::size_t begin = 0, end = cut; begin < layer.rows; begin = end, end = layer.rows) {
    const StepSequence sequence{
        .length = static_cast<std::int32_t>(end), .state_in = begin == 0 ? -1 : 0, .state_out = 0};
    std::vector<StepRow> step_rows;
    std::vector<StepOutput> outputs;
    step_rows.reserve(end - begin);
    outputs.reserve(end - begin);
    for (std::size_t r = begin; r < end; ++r) {
      const auto place = static_cast<std::int32_t>(r);
      step_rows.push_back({.sequence = 0, .position = place, .token = place});
      outputs.push_back({.row = static_cast<std::int32_t>(r - begin), .kind = OutputKind::vector});
    }
    const Step step{.rows = step_rows, .sequences = {&sequence, 1}, .outputs = outputs};
    const StepResults results = backend->wait(backend->submit(step, [&](Backend& b, const StepShape&) {
      b.embed({.out = op.in, .table = table});
      b.ssm(op);
      b.select_rows({.in = op.out, .out = wanted});
      for (std::int32_t slice = 0; slice * b.logit_rows() < static_cast<std::int32_t>(end - begin); ++slice) {
        b.head({.slice = slice, .in = wanted});
      }
    }));
    std::ranges::copy(results.vectors, out.begin() + static_cast<std::ptrdiff_t>(begin * inner));
  }
  return out;
}

struct Devices {
  std::unique_ptr<Device> reference = make_device({.backend = "reference", .threads = 1});
  std::vector<std::unique_ptr<Device>> levels;
  Devices() {
    std::istringstream names(available_isa_levels());
    for (std::string name; names >> name;) {
      levels.push_back(make_device({.backend = "cpu", .threads = 1, .isa = name}));
    }
  }
};

// The layer of absolute values: dt and A stay, because they do not enter sums.
Layer absolute(Layer layer) {
  const std::size_t plain = layer.width - static_cast<std::size_t>(layer.op.heads);
  for (std::size_t i = 0; i < layer.in.size(); ++i) {
    if (i % layer.width < plain) layer.in[i] = std::abs(layer.in[i]);
  }
  for (auto* values : {&layer.conv, &layer.conv_bias, &layer.d}) {
    for (float& value : *values) value = std::abs(value);
  }
  return layer;
}

// The layer as the CPU reads it: denormals are zero.
Layer without_denormals(Layer layer) {
  for (auto* values : {&layer.in, &layer.conv, &layer.conv_bias, &layer.a, &layer.d, &layer.dt_bias, &layer.x_proj,
                       &layer.dt_proj, &layer.dt_norm, &layer.norm}) {
    for (float& value : *values) {
      if (std::abs(value) < std::numeric_limits<float>::min()) value = 0.0f;
    }
  }
  return layer;
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return std::ranges::equal(a, b, [](float x, float y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

bool has_nan(const std::vector<float>& values) {
  return std::ranges::any_of(values, [](float value) { return std::isnan(value); });
}

void require_close(const std::vector<float>& actual, const std::vector<float>& expected,
                   const std::vector<float>& sizes) {
  for (std::size_t i = 0; i < actual.size(); ++i) {
    // A product of a tiny number with large ones loses what its factor lost below the smallest normal number.
    const double most = 1e-3 * std::abs(static_cast<double>(sizes[i])) + 1e-12;
    const double distance = std::abs(static_cast<double>(actual[i]) - static_cast<double>(expected[i]));
    require(distance <= most, "the CPU agrees with the reference");
  }
}

}  // namespace

void ssm(Input input) {
  if (input.size() < 5) return;
  const auto flags = std::to_integer<std::uint8_t>(input[0]);
  Source source{.bytes = input.subspan(1), .wild = (flags & kTame) == 0, .positive = (flags & kPositive) != 0};
  const Layer layer = read_layer(source, flags);
  static const Devices devices;
  const std::size_t cut = 1 + source.next() % layer.rows;
  const std::vector<float> reference = run(*devices.reference, layer, layer.rows);
  require(same(run(*devices.reference, layer, cut), reference), "a text in two parts gives the same bits");
  require(source.wild || !has_nan(reference), "numbers within range give no NaN");
  const bool bounded = !source.wild && !source.positive && layer.op.version == 2 && layer.norm.empty();
  const Layer read = without_denormals(layer);
  const std::vector<float> expected = run(*devices.reference, read, layer.rows);
  const std::vector<float> sizes = bounded ? run(*devices.reference, absolute(read), layer.rows) : expected;
  for (const std::unique_ptr<Device>& device : devices.levels) {
    const std::vector<float> out = run(*device, layer, layer.rows);
    require(same(run(*device, layer, cut), out), "a text in two parts gives the same bits");
    if (source.wild) continue;
    require(!has_nan(out), "numbers within range give no NaN");
    if (source.positive || bounded) require_close(out, expected, sizes);
  }
}

}  // namespace quarrel::fuzz
