#include "backend/cuda/rowwise.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "backend/cuda/row_ops.h"
#include "base/as_size.h"
#include "cuda/fixture.h"
#include "quant/half.h"

namespace quarrel::cuda {
namespace {

void test_rope(Fixture& fixture, int heads, int kv_heads, int dim, int pairs, bool interleaved, bool norms) {
  constexpr int kRows = 5;
  constexpr int kBlocks = 7;
  constexpr int kStride = 600;
  const std::vector<std::int32_t> positions{0, 63, 64, 31999, 5};
  const std::vector<std::int32_t> sequences{0, 1, 2, 3, -1};
  std::vector<std::int32_t> tables(4 * kStride, -1);
  for (std::size_t i = 0; i < 4; ++i)
    tables[i * kStride + as_size(positions[i] / kKvBlockTokens)] = static_cast<int>(i) + 2;
  std::vector<double> frequencies;
  for (int i = 0; i < pairs; ++i) frequencies.push_back(std::pow(10000.0, -static_cast<double>(i) / pairs));
  auto q = random_values(as_size(kRows * heads * dim), 2.0f, fixture.random());
  auto k = random_values(as_size(kRows * kv_heads * dim), 2.0f, fixture.random());
  auto v = random_values(as_size(kRows * kv_heads * dim), 2.0f, fixture.random());
  v[3] = 1e6f;  // cannot be held
  const auto weight = random_values(as_size(dim), 1.0f, fixture.random());
  const DeviceBuffer device_positions = to_device(positions);
  const DeviceBuffer device_sequences = to_device(sequences);
  const DeviceBuffer device_tables = to_device(tables);
  const DeviceBuffer device_frequencies = to_device(frequencies);
  const DeviceBuffer device_q = to_device(q);
  const DeviceBuffer device_k = to_device(k);
  const DeviceBuffer device_v = to_device(v);
  const DeviceBuffer device_weight = to_device(weight);
  const DeviceBuffer angles = poisoned(as_size(kRows * pairs) * 8);
  const std::size_t block = as_size(kv_heads * kKvBlockTokens * dim);
  const DeviceBuffer keys = poisoned(kBlocks * block * 2);
  const DeviceBuffer values = poisoned(kBlocks * block * 2);
  const DeviceBuffer saturated = to_device(std::vector<unsigned long long>{0});
  RopeStoreOp op{.rows = {.positions = device_positions.as<std::int32_t>(),
                          .sequences = device_sequences.as<std::int32_t>(),
                          .tables = device_tables.as<std::int32_t>(),
                          .table_stride = kStride,
                          .count = kRows},
                 .kv = {.keys = keys.as<std::uint16_t>(),
                        .values = values.as<std::uint16_t>(),
                        .key_block_stride = static_cast<std::int64_t>(block),
                        .value_block_stride = static_cast<std::int64_t>(block),
                        .heads = kv_heads,
                        .dim = dim},
                 .q = device_q.as<float>(),
                 .k = device_k.as<float>(),
                 .v = device_v.as<float>(),
                 .heads = heads,
                 .angles = angles.as<float>(),
                 .pairs = pairs,
                 .interleaved = interleaved,
                 .q_norm = norms ? device_weight.as<float>() : nullptr,
                 .k_norm = norms ? device_weight.as<float>() : nullptr,
                 .epsilon = 1e-5f,
                 .saturated = saturated.as<unsigned long long>()};
  rope_angles(fixture.context(), op.rows, device_frequencies.as<double>(), pairs, 1.25f, angles.as<float>());
  rope_store(fixture.context(), op);

  const auto rotated = [&](const float* head, int position) {
    std::vector<double> out(head, head + dim);
    if (norms) {
      double squares = 0.0;
      for (const double x : out) squares += x * x;
      const double scale = 1.0 / std::sqrt(squares / dim + static_cast<double>(op.epsilon));
      for (std::size_t i = 0; i < out.size(); ++i) out[i] *= scale * static_cast<double>(weight[i]);
    }
    for (int pair = 0; pair < pairs; ++pair) {
      double& first = out[as_size(interleaved ? 2 * pair : pair)];
      double& second = out[as_size(interleaved ? 2 * pair + 1 : pair + pairs)];
      const double angle = position * frequencies[as_size(pair)];
      const double a = first;
      const double b = second;
      first = 1.25 * (a * std::cos(angle) - b * std::sin(angle));
      second = 1.25 * (a * std::sin(angle) + b * std::cos(angle));
    }
    return out;
  };
  const auto q_out = to_host(device_q.as<float>(), q.size());
  const auto key_out = to_host(keys.as<std::uint16_t>(), kBlocks * block);
  const auto value_out = to_host(values.as<std::uint16_t>(), kBlocks * block);
  std::vector<float> results;
  std::vector<double> exact;
  std::vector<float> cached;
  std::vector<double> exact_cached;
  bool padding_kept = true;
  bool values_right = true;
  std::size_t written = 0;
  for (int r = 0; r < kRows; ++r) {
    for (int head = 0; head < heads; ++head) {
      const std::size_t at = as_size((r * heads + head) * dim);
      if (sequences[as_size(r)] < 0) {
        padding_kept = padding_kept && std::equal(q.begin() + static_cast<std::ptrdiff_t>(at),
                                                  q.begin() + static_cast<std::ptrdiff_t>(at) + dim,
                                                  q_out.begin() + static_cast<std::ptrdiff_t>(at));
        continue;
      }
      const auto head_exact = rotated(q.data() + at, positions[as_size(r)]);
      exact.insert(exact.end(), head_exact.begin(), head_exact.end());
      results.insert(results.end(), q_out.begin() + static_cast<std::ptrdiff_t>(at),
                     q_out.begin() + static_cast<std::ptrdiff_t>(at) + dim);
    }
    if (sequences[as_size(r)] < 0) continue;
    for (int head = 0; head < kv_heads; ++head) {
      const std::size_t at = as_size((r * kv_heads + head) * dim);
      const std::size_t place =
          as_size(r + 2) * block + as_size((head * kKvBlockTokens + positions[as_size(r)] % kKvBlockTokens) * dim);
      const auto key_exact = rotated(k.data() + at, positions[as_size(r)]);
      for (std::size_t i = 0; i < as_size(dim); ++i) {
        cached.push_back(f16_to_f32(key_out[place + i]));
        exact_cached.push_back(key_exact[i]);
        values_right = values_right && value_out[place + i] == f32_to_f16_saturating(v[at + i]);
      }
      written += 2 * as_size(dim);
    }
  }
  const auto is_poison = [](std::uint16_t bits) { return bits == 0xffff; };
  const std::size_t kept = static_cast<std::size_t>(std::ranges::count_if(key_out, is_poison)) +
                           static_cast<std::size_t>(std::ranges::count_if(value_out, is_poison));
  const std::string name =
      fmt::format("dim {} {} pairs{}{}", dim, pairs, interleaved ? " interleaved" : "", norms ? " normed" : "");
  fixture.check("rope q " + name, difference(results, exact), 1e-12);
  fixture.check("store v " + name, values_right, "rounded once");
  fixture.check("rope and store k " + name, difference(cached, exact_cached), 1e-7);
  fixture.check("padding rows " + name, padding_kept && kept + written == 2 * kBlocks * block, "untouched");
  fixture.check("saturation " + name, to_host(saturated.as<unsigned long long>(), 1)[0] == 1, "counted once");
}

// Gates of halves: infinite ones, which a GEMM leaves where a sum is too large, count as the largest half.
void test_glu(Fixture& fixture, bool has_gate, bool biases) {
  constexpr int kRows = 3;
  constexpr int kWidth = 1032;
  constexpr int kStride = 2 * kWidth;
  std::vector<std::uint16_t> in(kRows * kStride);
  for (std::uint16_t& half : in) half = f32_to_f16(random_values(1, 2.0f, fixture.random()).front());
  in[5] = 0x7c00;
  in[kWidth + 6] = 0xfc00;
  const auto gate_bias = random_values(kWidth, 1.0f, fixture.random());
  const auto up_bias = random_values(kWidth, 1.0f, fixture.random());
  const DeviceBuffer device_in = to_device(in);
  const DeviceBuffer device_gate_bias = to_device(gate_bias);
  const DeviceBuffer device_up_bias = to_device(up_bias);
  const DeviceBuffer out = poisoned(kRows * kWidth * 4);
  const DeviceBuffer halves = poisoned(kRows * kWidth * 2);
  glu_halves(fixture.context(), {.gate = has_gate ? device_in.as<std::uint16_t>() : nullptr,
                                 .gate_bias = biases ? device_gate_bias.as<float>() : nullptr,
                                 .up = device_in.as<std::uint16_t>() + kWidth,
                                 .up_bias = biases ? device_up_bias.as<float>() : nullptr,
                                 .stride = kStride,
                                 .width = kWidth,
                                 .count = kRows,
                                 .function = {.kind = ActivationKind::silu},
                                 .out = out.as<float>(),
                                 .out_stride = kWidth,
                                 .halves = halves.as<std::uint16_t>()});
  const auto results = to_host(out.as<float>(), kRows * kWidth);
  const auto result_halves = to_host(halves.as<std::uint16_t>(), kRows * kWidth);
  std::vector<double> exact;
  bool same = true;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const std::size_t column = i % kWidth;
    const auto number = [&](std::size_t place, const std::vector<float>& bias) {
      const double value = std::clamp(static_cast<double>(f16_to_f32(in[place])), -65504.0, 65504.0);
      return value + (biases ? static_cast<double>(bias[column]) : 0.0);
    };
    const std::size_t place = i / kWidth * kStride + column;
    const double up = number(place + kWidth, up_bias);
    const double gate = has_gate ? number(place, gate_bias) : up;
    exact.push_back(gate / (1.0 + std::exp(-gate)) * (has_gate ? up : 1.0));
    same = same && result_halves[i] == f32_to_f16_saturating(results[i]);
  }
  const std::string name =
      fmt::format("glu of halves{}{}", has_gate ? "" : " without a gate", biases ? " with biases" : "");
  fixture.check(name, difference(results, exact), 1e-12);
  fixture.check(name + ", in F16", same, "the same");
}

void test_argmax(Fixture& fixture) {
  constexpr int kRows = 3;
  constexpr int kCount = 32001;
  auto logits = random_values(as_size(kRows * kCount), 3.0f, fixture.random());
  logits[7] = 100.0f;
  logits[31000] = 100.0f;
  logits[kCount + 32000] = 90.0f;
  logits[2 * kCount + 1] = std::nanf("");
  logits[2 * kCount + 1025] = 80.0f;
  const DeviceBuffer device = to_device(logits);
  const DeviceBuffer ids = poisoned(kRows * 4);
  argmax(fixture.context(), device.as<float>(), kRows, kCount, ids.as<std::int32_t>());
  const auto found = to_host(ids.as<std::int32_t>(), kRows);
  fixture.check("argmax", found == std::vector<std::int32_t>{7, 32000, 1025}, "the first of the largest");
}

}  // namespace

void test_rowwise(Fixture& fixture) {
  test_glu(fixture, true, false);
  test_glu(fixture, true, true);
  test_glu(fixture, false, true);
  test_rope(fixture, 8, 2, 128, 64, true, false);
  test_rope(fixture, 4, 4, 64, 32, false, true);
  test_rope(fixture, 4, 1, 256, 32, false, false);
  test_argmax(fixture);
}

}  // namespace quarrel::cuda
