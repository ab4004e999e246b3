// Rows with the experts they chose: one by one and sorted by expert, against sums in double; and their times at the
// shapes of real models.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "backend/cuda/expert_gemv.h"
#include "backend/cuda/fused_experts.h"
#include "backend/cuda/grouped_gemm.h"
#include "backend/cuda/mixed_gemm.h"
#include "backend/cuda/moe_routing.h"
#include "backend/cuda/repack.h"
#include "base/as_size.h"
#include "cuda/fixture.h"
#include "cuda/random_weights.h"
#include "quant/half.h"

namespace quarrel::cuda {
namespace {

constexpr double kGemvBound = 1e-7;
constexpr double kGemmBound = 1e-6;  // the inner row is rounded to F16

// Experts one below the other, as one matrix is packed: their rows are a multiple of 16.
struct Experts {
  RandomMatrix matrix;
  std::vector<float> bias;
  DeviceBuffer device_bias;
  int rows;

  Experts(Fixture& fixture, WeightFormat format, int count, int one_rows, int columns, bool has_bias = true)
      : matrix(format, count * one_rows, columns, fixture.random()),
        bias(has_bias ? random_values(as_size(count * one_rows), 0.5f, fixture.random())
                      : std::vector<float>(as_size(count * one_rows), 0.0f)),
        device_bias(to_device(bias)),
        rows(one_rows) {}
  ExpertMatrix on_device() const {
    PackedMatrix one = matrix.packed;
    one.rows = rows;
    return {.packed = one, .expert_bytes = one.bytes(), .bias = device_bias.as<float>()};
  }
  double value(int expert, int row, std::span<const double> in) const {
    const auto weights = matrix.row(expert * rows + row);
    double sum = static_cast<double>(bias[as_size(expert * rows + row)]);
    for (std::size_t i = 0; i < weights.size(); ++i) sum += static_cast<double>(weights[i]) * in[i];
    return sum;
  }
};

struct Case {
  WeightFormat format;
  int experts;
  int used;
  int rows;
  int width;
  int hidden;
};

// Pairs of a case; every eleventh row is padding.
std::vector<std::int32_t> choices(Fixture& fixture, const Case& c) {
  std::vector<std::int32_t> chosen;
  std::vector<std::int32_t> order(as_size(c.experts));
  std::iota(order.begin(), order.end(), 0);
  for (int row = 0; row < c.rows; ++row) {
    std::ranges::shuffle(order, fixture.random());
    for (int i = 0; i < c.used; ++i) chosen.push_back(row % 11 == 10 ? -1 : order[as_size(i)]);
  }
  return chosen;
}

double silu(double value) { return value / (1.0 + std::exp(-value)); }

// [pairs][hidden] or [pairs][width]; what padding gives is 0 and is not looked at.
struct Exact {
  std::vector<double> hidden;
  std::vector<double> value;

  Exact(const Case& c, const Experts& gate, const Experts& up, const Experts& down,
        const std::vector<std::int32_t>& chosen, std::span<const float> in)
      : hidden(chosen.size() * as_size(c.hidden)), value(chosen.size() * as_size(c.width)) {
    parallel_for(static_cast<int>(chosen.size()), [&](int pair) {
      const int expert = chosen[as_size(pair)];
      if (expert < 0) return;
      const auto row = in.subspan(as_size(pair / c.used * c.width), as_size(c.width));
      const std::vector<double> wide(row.begin(), row.end());
      const std::span inner = std::span(hidden).subspan(as_size(pair * c.hidden), as_size(c.hidden));
      for (int i = 0; i < c.hidden; ++i) {
        inner[as_size(i)] = silu(gate.value(expert, i, wide)) * up.value(expert, i, wide);
      }
      for (int i = 0; i < c.width; ++i) value[as_size(pair * c.width + i)] = down.value(expert, i, inner);
    });
  }
};

// Results of pairs that have an expert, in the order of pairs.
void compare(Fixture& fixture, const std::string& name, const std::vector<std::int32_t>& chosen,
             const std::vector<std::int32_t>& places, const std::vector<float>& results,
             const std::vector<double>& exact, int width, double bound) {
  std::vector<float> found;
  std::vector<double> expected;
  for (std::size_t pair = 0; pair < chosen.size(); ++pair) {
    if (chosen[pair] < 0) continue;
    const std::size_t place = as_size(places[pair]) * as_size(width);
    found.insert(found.end(), results.begin() + static_cast<std::ptrdiff_t>(place),
                 results.begin() + static_cast<std::ptrdiff_t>(place) + width);
    const auto from = exact.begin() + static_cast<std::ptrdiff_t>(pair * as_size(width));
    expected.insert(expected.end(), from, from + width);
  }
  fixture.check(name, difference(found, expected), bound);
}

// Logits that lead to the given choices; the chosen ones' are far enough apart.
std::vector<float> logits_for(Fixture& fixture, const Case& c, const std::vector<std::int32_t>& chosen) {
  auto logits = random_values(as_size(c.rows * c.experts), 1.0f, fixture.random());
  for (float& logit : logits) logit -= 5.0f;
  for (std::size_t pair = 0; pair < chosen.size(); ++pair) {
    if (chosen[pair] < 0) continue;
    const std::size_t row = pair / as_size(c.used);
    logits[row * as_size(c.experts) + as_size(chosen[pair])] =
        2.0f - 0.25f * static_cast<float>(pair % as_size(c.used));
  }
  return logits;
}

// What the fused kernels are given beside a case's experts, and what they should make of it.
struct FusedCase {
  static constexpr float kWeightScale = 1.5f;
  static constexpr float kScale = 0.5f;
  std::vector<float> logits;
  std::vector<std::int32_t> sequences;
  std::vector<float> residual;
  std::vector<double> expected;

  FusedCase(Fixture& fixture, const Case& c, const std::vector<std::int32_t>& chosen, const Exact& exact,
            const std::vector<double>& shared)
      : logits(logits_for(fixture, c, chosen)),
        residual(random_values(as_size(c.rows * c.width), 1.0f, fixture.random())) {
    for (int row = 0; row < c.rows; ++row) {
      const auto pair = [&](int i) { return as_size(row * c.used + i); };
      sequences.push_back(chosen[pair(0)] < 0 ? -1 : 0);
      double sum = 0.0;
      for (int i = 0; i < c.used; ++i) sum += std::exp(-0.25 * i);
      for (int i = 0; i < c.width; ++i) {
        double value = shared.empty() ? 0.0 : shared[as_size(row * c.width + i)];
        for (int k = 0; k < c.used && sequences.back() >= 0; ++k) {
          value += static_cast<double>(kWeightScale) * std::exp(-0.25 * k) / sum *
                   exact.value[pair(k) * as_size(c.width) + as_size(i)];
        }
        expected.push_back(static_cast<double>(residual[as_size(row * c.width + i)]) +
                           static_cast<double>(kScale) * value);
      }
    }
  }
};

// A shared expert of twice the width, without biases: [rows][width].
std::vector<double> exact_shared(const Case& c, const Experts (&in)[2], const Experts& down,
                                 std::span<const float> rows) {
  std::vector<double> result(as_size(c.rows * c.width));
  parallel_for(c.rows, [&](int row) {
    const auto values = rows.subspan(as_size(row * c.width), as_size(c.width));
    const std::vector<double> wide(values.begin(), values.end());
    std::vector<double> hidden(as_size(down.matrix.packed.columns));
    for (std::size_t i = 0; i < hidden.size(); ++i) {
      const int number = static_cast<int>(i);
      hidden[i] = silu(in[0].value(0, number, wide)) * in[1].value(0, number, wide);
    }
    for (int i = 0; i < c.width; ++i) result[as_size(row * c.width + i)] = down.value(0, i, hidden);
  });
  return result;
}

// Router's logits to the residual: by themselves, and beside a shared expert.
void test_fused(Fixture& fixture, const Case& c, const std::string& name, const Experts& gate, const Experts& up,
                const Experts& down, const std::vector<std::int32_t>& chosen, const Exact& exact,
                std::span<const float> in) {
  const int shared_hidden = 2 * c.hidden;
  const Experts shared_in[2] = {Experts(fixture, c.format, 1, shared_hidden, c.width, false),
                                Experts(fixture, c.format, 1, shared_hidden, c.width, false)};
  const Experts shared_down(fixture, c.format, 1, c.width, shared_hidden, false);
  const DeviceBuffer device_in = to_device(in, "test data");
  for (const bool with_shared : {false, true}) {
    const FusedCase fused(fixture, c, chosen, exact,
                          with_shared ? exact_shared(c, shared_in, shared_down, in) : std::vector<double>{});
    const DeviceBuffer logits = to_device(fused.logits);
    const DeviceBuffer sequences = to_device(fused.sequences);
    const DeviceBuffer out = to_device(fused.residual);
    const DeviceBuffer hidden = poisoned(fused_hidden_bytes(c.used, shared_hidden));
    const DeviceBuffer counts = to_device(std::vector<unsigned long long>(as_size(c.experts), 0ull));
    FusedExpertsOp op{
        .route = {.logits = {.data = logits.as<float>(), .stride = c.experts, .width = c.experts, .count = c.rows},
                  .used = c.used,
                  .weight_scale = FusedCase::kWeightScale,
                  .sequences = sequences.as<std::int32_t>(),
                  .counts = counts.as<unsigned long long>()},
        .input = {.rows = device_in.as<float>(), .stride = c.width, .columns = c.width, .count = c.rows},
        .in = {gate.on_device(), up.on_device()},
        .in_count = 2,
        .down = down.on_device(),
        .hidden = hidden.data(),
        .out = {.data = out.as<float>(), .stride = c.width, .width = c.width, .count = c.rows},
        .is_added = true,
        .scale = FusedCase::kScale};
    if (with_shared) {
      for (int i = 0; i < 2; ++i) op.shared_in[i] = shared_in[i].on_device();
      op.shared_down = shared_down.on_device();
    }
    const std::string title = fmt::format("fused experts{}, {}", with_shared ? " and shared" : "", name);
    const bool can_run = can_run_fused_experts(fixture.context(), op);
    if (!can_run && fixture.is_limited()) continue;
    fixture.check(title, can_run, "the kernels take this shape");
    fused_experts_in(fixture.context(), op);
    fused_experts_down(fixture.context(), op);
    const auto results = to_host(out.as<float>(), fused.expected.size());
    fixture.check(title, difference(results, fused.expected), kGemvBound);
    std::vector<unsigned long long> expected_counts(as_size(c.experts), 0ull);
    for (const std::int32_t expert : chosen) {
      if (expert >= 0) ++expected_counts[as_size(expert)];
    }
    fixture.check(title, to_host(counts.as<unsigned long long>(), expected_counts.size()) == expected_counts,
                  "every choice is counted once");
    copy_to_device(out.data(), fused.residual.data(), fused.residual.size() * 4);
    op.input.count = op.route.logits.count = op.out.count = 1;
    fused_experts_in(fixture.context(), op);
    fused_experts_down(fixture.context(), op);
    const auto alone = to_host(out.as<float>(), as_size(c.width));
    fixture.check(title, std::equal(alone.begin(), alone.end(), results.begin()), "a row alone has the same bits");
  }
}

void test_router(Fixture& fixture) {
  constexpr int kExperts = 40;
  constexpr int kWidth = 1000;
  constexpr int kRows = 3;
  const auto in = random_values(as_size(kRows * kWidth), 2.0f, fixture.random());
  const auto router = random_values(as_size(kExperts * kWidth), 0.1f, fixture.random());
  const auto weight = random_values(as_size(kWidth), 1.0f, fixture.random());
  const auto bias = random_values(as_size(kExperts), 1.0f, fixture.random());
  const DeviceBuffer device_in = to_device(in);
  const DeviceBuffer device_router = to_device(router);
  const DeviceBuffer device_weight = to_device(weight);
  const DeviceBuffer device_bias = to_device(bias);
  for (const NormKind kind : {NormKind::none, NormKind::rms, NormKind::layer}) {
    std::vector<double> expected;
    for (int row = 0; row < kRows; ++row) {
      const std::span values = std::span(in).subspan(as_size(row * kWidth), as_size(kWidth));
      double mean = 0.0;
      double squares = 0.0;
      if (kind == NormKind::layer) mean = std::accumulate(values.begin(), values.end(), 0.0) / kWidth;
      for (const float value : values)
        squares += (static_cast<double>(value) - mean) * (static_cast<double>(value) - mean);
      const double scale = kind == NormKind::none ? 1.0 : 1.0 / std::sqrt(squares / kWidth + 1e-5);
      for (int expert = 0; expert < kExperts; ++expert) {
        double sum = static_cast<double>(bias[as_size(expert)]);
        for (int i = 0; i < kWidth; ++i) {
          const double by = kind == NormKind::none ? 1.0 : scale * static_cast<double>(weight[as_size(i)]);
          sum += (static_cast<double>(values[as_size(i)]) - mean) * by *
                 static_cast<double>(router[as_size(expert * kWidth + i)]);
        }
        expected.push_back(sum);
      }
    }
    const DeviceBuffer logits = poisoned(expected.size() * 4);
    router_logits(fixture.context(),
                  {.in = {.data = device_in.as<float>(), .stride = kWidth, .width = kWidth, .count = kRows},
                   .norm = {.kind = kind,
                            .epsilon = 1e-5f,
                            .weight = kind == NormKind::none ? nullptr : device_weight.as<float>()},
                   .router = {.data = device_router.data(), .is_f16 = false, .rows = kExperts, .columns = kWidth},
                   .router_bias = device_bias.as<float>(),
                   .out = {.data = logits.as<float>(), .stride = kExperts, .width = kExperts, .count = kRows}});
    fixture.check(fmt::format("router's logits, norm {}", static_cast<int>(kind)),
                  difference(to_host(logits.as<float>(), expected.size()), expected), 1e-11);
  }
}

void test_case(Fixture& fixture, const Case& c) {
  const Experts gate(fixture, c.format, c.experts, c.hidden, c.width);
  const Experts up(fixture, c.format, c.experts, c.hidden, c.width);
  const Experts down(fixture, c.format, c.experts, c.width, c.hidden);
  const auto chosen = choices(fixture, c);
  const int pairs = static_cast<int>(chosen.size());
  auto in = random_values(as_size(c.rows * c.width), 1.0f, fixture.random());
  std::vector<std::uint16_t> halves;
  for (float& value : in) {
    halves.push_back(f32_to_f16(value));
    value = f16_to_f32(halves.back());
  }
  const Exact exact(c, gate, up, down, chosen, in);
  const DeviceBuffer device_in = to_device(in);
  const DeviceBuffer device_halves = to_device(halves);
  const DeviceBuffer device_chosen = to_device(chosen);
  const DeviceBuffer hidden = poisoned(as_size(pairs) * as_size(c.hidden) * 4);
  const DeviceBuffer value = poisoned(as_size(pairs) * as_size(c.width) * 4);
  const std::string name = fmt::format("{} {} of {} experts, {} rows, {}x{}", type_info(quant_type(c.format)).name,
                                       c.used, c.experts, c.rows, c.hidden, c.width);
  std::vector<std::int32_t> places(chosen.size());
  std::iota(places.begin(), places.end(), 0);
  if (pairs <= fixture.context().multiprocessors) {
    ExpertGemvOp op{.input = {.rows = device_in.as<float>(), .stride = c.width, .columns = c.width, .count = c.rows},
                    .pairs_a_row = c.used,
                    .chosen = device_chosen.as<std::int32_t>(),
                    .pairs = pairs,
                    .matrices = {gate.on_device(), up.on_device()},
                    .end = ExpertEnd::glu,
                    .out = hidden.as<float>(),
                    .stride = c.hidden};
    expert_gemv(fixture.context(), op);
    ExpertGemvOp last{.input = {.rows = hidden.as<float>(), .stride = c.hidden, .columns = c.hidden, .count = pairs},
                      .chosen = op.chosen,
                      .pairs = pairs,
                      .matrices = {down.on_device()},
                      .out = value.as<float>(),
                      .stride = c.width};
    expert_gemv(fixture.context(), last);
    compare(fixture, "expert gemv, glu, " + name, chosen, places, to_host(hidden.as<float>(), exact.hidden.size()),
            exact.hidden, c.hidden, kGemvBound);
    compare(fixture, "expert gemv, down, " + name, chosen, places, to_host(value.as<float>(), exact.value.size()),
            exact.value, c.width, kGemvBound);
  }
  if (c.rows <= kMaxFusedExpertRows && c.hidden % 32 == 0) {
    test_fused(fixture, c, name, gate, up, down, chosen, exact, in);
  }
  const DeviceBuffer starts = poisoned(as_size(c.experts + 1) * 4);
  const DeviceBuffer order = poisoned(as_size(pairs) * 4);
  const DeviceBuffer device_places = poisoned(as_size(pairs) * 4);
  group_pairs(fixture.context(), {.chosen = device_chosen.as<std::int32_t>(),
                                  .pairs = pairs,
                                  .experts = c.experts,
                                  .starts = starts.as<std::int32_t>(),
                                  .order = order.as<std::int32_t>(),
                                  .places = device_places.as<std::int32_t>()});
  GroupedGemmOp op{.in = device_halves.as<std::uint16_t>(),
                   .in_stride = c.width,
                   .starts = starts.as<std::int32_t>(),
                   .order = order.as<std::int32_t>(),
                   .pairs_a_row = c.used,
                   .experts = c.experts,
                   .pairs = pairs,
                   .matrices = {gate.on_device(), up.on_device()},
                   .end = ExpertEnd::glu,
                   .halves = hidden.as<std::uint16_t>(),
                   .stride = c.hidden};
  GroupedGemmOp last{.in = hidden.as<std::uint16_t>(),
                     .in_stride = c.hidden,
                     .starts = op.starts,
                     .experts = c.experts,
                     .pairs = pairs,
                     .matrices = {down.on_device()},
                     .out = value.as<float>(),
                     .stride = c.width};
  const bool can_run = can_run_grouped_gemm(fixture.context(), op.matrices[0].packed) &&
                       can_run_grouped_gemm(fixture.context(), last.matrices[0].packed);
  if (!can_run && fixture.is_limited()) return;
  grouped_gemm(fixture.context(), op);
  grouped_gemm(fixture.context(), last);
  places = to_host(device_places.as<std::int32_t>(), chosen.size());
  const auto inner = to_host(hidden.as<std::uint16_t>(), exact.hidden.size());
  std::vector<float> wide(inner.size());
  std::ranges::transform(inner, wide.begin(), [](std::uint16_t half) { return f16_to_f32(half); });
  compare(fixture, "grouped gemm, glu, " + name, chosen, places, wide, exact.hidden, c.hidden, kGemmBound);
  compare(fixture, "grouped gemm, down, " + name, chosen, places, to_host(value.as<float>(), exact.value.size()),
          exact.value, c.width, kGemmBound);
  if (!fixture.context().has_wgmma) return;
  poison(hidden);
  poison(value);
  const DeviceBuffer image = poisoned(image_numbers(pairs, c.width) * 2);
  mixed_experts(fixture.context(), op, last, image.as<std::uint16_t>());
  compare(fixture, "mixed gemm, " + name, chosen, places, to_host(value.as<float>(), exact.value.size()), exact.value,
          c.width, kGemmBound);
}

// ---- Times ----

struct TimedShape {
  const char* name;
  WeightFormat format;
  int experts;
  int used;
  int width;
  int hidden;
  bool gated;
  int shared_hidden;  // 0: there is no shared expert
};

void report(Fixture& fixture, const TimedShape& s, int rows, double in_time, double down_time) {
  const int pairs = rows * s.used;
  const int read = std::min(pairs, s.experts);  // at most
  const auto bytes = [&](int out_rows, int columns) {
    const PackedMatrix one{.format = s.format, .rows = out_rows, .columns = columns};
    return static_cast<double>(read) * static_cast<double>(one.bytes());
  };
  const double operations = 2.0 * pairs * s.width * s.hidden;
  const std::string name = fmt::format("experts of {}, {} rows", s.name, rows);
  const int in_matrices = s.gated ? 2 : 1;
  if (rows <= 64) {
    fixture.report_bytes(name + ", in", in_time, bytes(s.hidden, s.width) * in_matrices);
    fixture.report_bytes(name + ", down", down_time, bytes(s.width, s.hidden));
  } else {
    fixture.report_operations(name + ", in", in_time, operations * in_matrices);
    fixture.report_operations(name + ", down", down_time, operations);
  }
}

// A layer's three kernels for one row, from the router to the residual: the time of all, and of `in` and `down` alone.
void time_layer(Fixture& fixture, const TimedShape& s) {
  const PackedMatrix one{.format = s.format, .rows = s.hidden, .columns = s.width};
  const int copies = std::max(2, static_cast<int>(std::size_t{400'000'000} / (as_size(s.experts) * one.bytes())));
  const int in_count = s.gated ? 2 : 1;
  struct Layer {
    std::vector<std::unique_ptr<Experts>> in;
    std::vector<std::unique_ptr<Experts>> shared_in;
    std::unique_ptr<Experts> down;
    std::unique_ptr<Experts> shared_down;
    DeviceBuffer router;
  };
  std::vector<Layer> layers(as_size(copies));
  const auto make = [&](int experts, int rows, int columns) {
    return std::make_unique<Experts>(fixture, s.format, experts, rows, columns);
  };
  for (Layer& layer : layers) {
    for (int i = 0; i < in_count; ++i) layer.in.push_back(make(s.experts, s.hidden, s.width));
    layer.down = make(s.experts, s.width, s.hidden);
    layer.router = to_device(random_values(as_size(s.experts * s.width), 0.1f, fixture.random()));
    if (s.shared_hidden == 0) continue;
    for (int i = 0; i < in_count; ++i) layer.shared_in.push_back(make(1, s.shared_hidden, s.width));
    layer.shared_down = make(1, s.width, s.shared_hidden);
  }
  // The row is not changed from layer to layer, but its experts are others.
  const DeviceBuffer x = to_device(random_values(as_size(s.width), 1.0f, fixture.random()));
  const DeviceBuffer weight = to_device(random_values(as_size(s.width), 1.0f, fixture.random()));
  const DeviceBuffer logits = poisoned(as_size(s.experts) * 4);
  const DeviceBuffer sequences = to_device(std::vector<std::int32_t>{0});
  const DeviceBuffer hidden = poisoned(fused_hidden_bytes(s.used, std::max(s.hidden, s.shared_hidden)));
  const auto op_of = [&](int i) {
    const Layer& layer = layers[as_size(i % copies)];
    FusedExpertsOp op{
        .route = {.logits = {.data = logits.as<float>(), .stride = s.experts, .width = s.experts, .count = 1},
                  .used = s.used,
                  .sequences = sequences.as<std::int32_t>()},
        .input = {.rows = x.as<float>(),
                  .stride = s.width,
                  .columns = s.width,
                  .count = 1,
                  .norm = NormKind::rms,
                  .epsilon = 1e-5f,
                  .norm_weight = weight.as<float>()},
        .in_count = in_count,
        .down = layer.down->on_device(),
        .hidden = hidden.data(),
        .out = {.data = x.as<float>(), .stride = s.width, .width = s.width, .count = 1},
        .is_added = true,
        .scale = 0.0f};
    for (int m = 0; m < in_count; ++m) op.in[m] = layer.in[as_size(m)]->on_device();
    if (s.shared_hidden == 0) return op;
    for (int m = 0; m < in_count; ++m) op.shared_in[m] = layer.shared_in[as_size(m)]->on_device();
    op.shared_down = layer.shared_down->on_device();
    return op;
  };
  const auto route = [&](int i, const LaunchContext& context) {
    router_logits(context,
                  {.in = {.data = x.as<float>(), .stride = s.width, .width = s.width, .count = 1},
                   .norm = {.kind = NormKind::rms, .epsilon = 1e-5f, .weight = weight.as<float>()},
                   .router = {.data = layers[as_size(i % copies)].router.data(), .rows = s.experts, .columns = s.width},
                   .out = {.data = logits.as<float>(), .stride = s.experts, .width = s.experts, .count = 1}});
  };
  const auto bytes = [&](int matrices, int in_rows, int columns) {
    return static_cast<double>(matrices) *
           static_cast<double>(PackedMatrix{.format = s.format, .rows = in_rows, .columns = columns}.bytes());
  };
  const double in_bytes = in_count * (bytes(s.used, s.hidden, s.width) + bytes(1, s.shared_hidden, s.width));
  const double down_bytes =
      bytes(s.used, s.width, s.hidden) + (s.shared_hidden == 0 ? 0.0 : bytes(1, s.width, s.shared_hidden));
  constexpr int kCalls = 12;
  const std::string name = fmt::format("layer of {}, 1 row", s.name);
  const auto in = [&](int i, const LaunchContext& context) { fused_experts_in(context, op_of(i)); };
  const auto down = [&](int i, const LaunchContext& context) { fused_experts_down(context, op_of(i)); };
  const auto all = [&](int i, const LaunchContext& context) {
    route(i, context);
    in(i, context);
    down(i, context);
  };
  fixture.report_bytes(name, fixture.microseconds(kCalls, fixture.context(), all), in_bytes + down_bytes);
  fixture.report_bytes(name + ", without overlap", fixture.microseconds(kCalls, fixture.context_without_overlap(), all),
                       in_bytes + down_bytes);
  fixture.report_bytes(name + ", router", fixture.microseconds(kCalls, fixture.context(), route), 0.0);
  fixture.report_bytes(name + ", in", fixture.microseconds(kCalls, fixture.context(), in), in_bytes);
  fixture.report_bytes(name + ", down", fixture.microseconds(kCalls, fixture.context(), down), down_bytes);
}

void time_shape(Fixture& fixture, const TimedShape& s, int rows) {
  // So many, and other experts each time, that the L2 holds little of it.
  const PackedMatrix one{.format = s.format, .rows = s.hidden, .columns = s.width};
  const int copies = std::max(1, static_cast<int>(std::size_t{400'000'000} / (as_size(s.experts) * one.bytes())));
  std::vector<std::unique_ptr<Experts>> in;
  std::vector<std::unique_ptr<Experts>> out;
  for (int i = 0; i < copies; ++i) {
    for (int m = 0; m < (s.gated ? 2 : 1); ++m) {
      in.push_back(std::make_unique<Experts>(fixture, s.format, s.experts, s.hidden, s.width));
    }
    out.push_back(std::make_unique<Experts>(fixture, s.format, s.experts, s.width, s.hidden));
  }
  const int pairs = rows * s.used;
  const int calls = rows == 1 ? 12 : 2;
  std::vector<DeviceBuffer> chosen;
  for (int i = 0; i < calls; ++i) {
    chosen.push_back(to_device(choices(fixture, {.format = s.format,
                                                 .experts = s.experts,
                                                 .used = s.used,
                                                 .rows = rows,
                                                 .width = s.width,
                                                 .hidden = s.hidden})));
  }
  const DeviceBuffer rows_in = to_device(random_values(as_size(rows * s.width), 1.0f, fixture.random()));
  const DeviceBuffer hidden = to_device(random_values(as_size(pairs) * as_size(s.hidden), 1.0f, fixture.random()));
  const DeviceBuffer value = poisoned(as_size(pairs) * as_size(s.width) * 4);
  const DeviceBuffer starts = poisoned(as_size(s.experts + 1) * 4);
  const DeviceBuffer order = poisoned(as_size(pairs) * 4);
  const DeviceBuffer places = poisoned(as_size(pairs) * 4);
  group_pairs(fixture.context(), {.chosen = chosen[0].as<std::int32_t>(),
                                  .pairs = pairs,
                                  .experts = s.experts,
                                  .starts = starts.as<std::int32_t>(),
                                  .order = order.as<std::int32_t>(),
                                  .places = places.as<std::int32_t>()});
  const auto matrices = [&](int copy, ExpertMatrix(&to)[2]) {
    const std::size_t each = s.gated ? 2 : 1;
    for (std::size_t m = 0; m < each; ++m) to[m] = in[as_size(copy) * each + m]->on_device();
  };
  const ExpertEnd end = s.gated ? ExpertEnd::glu : ExpertEnd::activate;
  const auto grouped_in = [&](int i) {
    GroupedGemmOp op{.in = rows_in.as<std::uint16_t>(),
                     .in_stride = s.width,
                     .starts = starts.as<std::int32_t>(),
                     .order = order.as<std::int32_t>(),
                     .pairs_a_row = s.used,
                     .experts = s.experts,
                     .pairs = pairs,
                     .end = end,
                     .halves = hidden.as<std::uint16_t>(),
                     .stride = s.hidden};
    matrices(i % copies, op.matrices);
    return op;
  };
  const auto grouped_down = [&](int i) {
    return GroupedGemmOp{.in = hidden.as<std::uint16_t>(),
                         .in_stride = s.hidden,
                         .starts = starts.as<std::int32_t>(),
                         .experts = s.experts,
                         .pairs = pairs,
                         .matrices = {out[as_size(i % copies)]->on_device()},
                         .out = value.as<float>(),
                         .stride = s.width};
  };
  const auto run_in = [&](int i, const LaunchContext& context) {
    if (rows == 1) {
      ExpertGemvOp op{.input = {.rows = rows_in.as<float>(), .stride = s.width, .columns = s.width, .count = 1},
                      .pairs_a_row = s.used,
                      .chosen = chosen[as_size(i)].as<std::int32_t>(),
                      .pairs = pairs,
                      .end = end,
                      .out = hidden.as<float>(),
                      .stride = s.hidden};
      matrices(i % copies, op.matrices);
      return expert_gemv(context, op);
    }
    grouped_gemm(context, grouped_in(i));
  };
  const auto run_down = [&](int i, const LaunchContext& context) {
    if (rows == 1) {
      return expert_gemv(
          context, {.input = {.rows = hidden.as<float>(), .stride = s.hidden, .columns = s.hidden, .count = pairs},
                    .chosen = chosen[as_size(i)].as<std::int32_t>(),
                    .pairs = pairs,
                    .matrices = {out[as_size(i % copies)]->on_device()},
                    .out = value.as<float>(),
                    .stride = s.width});
    }
    grouped_gemm(context, grouped_down(i));
  };
  report(fixture, s, rows, fixture.microseconds(calls, fixture.context(), run_in),
         fixture.microseconds(calls, fixture.context(), run_down));
  if (rows == 1 || !fixture.context().has_wgmma) return;
  const DeviceBuffer image = poisoned(image_numbers(pairs, s.width) * 2);
  const double both = fixture.microseconds(calls, fixture.context(), [&](int i, const LaunchContext& context) {
    mixed_experts(context, grouped_in(i), grouped_down(i), image.as<std::uint16_t>());
  });
  fixture.report_operations(fmt::format("mixed gemm, experts of {}, {} rows, in and down", s.name, rows), both,
                            2.0 * pairs * s.width * s.hidden * (s.gated ? 3 : 2));
}

}  // namespace

void test_experts(Fixture& fixture) {
  prepare_expert_gemv(fixture.context());
  prepare_fused_experts(fixture.context());
  test_router(fixture);
  prepare_grouped_gemm(fixture.context());
  prepare_mixed_gemm(fixture.context());
  for (int format = 0; format <= static_cast<int>(WeightFormat::mxfp4); ++format) {
    const auto f = static_cast<WeightFormat>(format);
    test_case(fixture, {.format = f, .experts = 6, .used = 2, .rows = 3, .width = 512, .hidden = 256});
    test_case(fixture, {.format = f, .experts = 4, .used = 3, .rows = 150, .width = 512, .hidden = 768});
  }
  // Experts of more rows than a thread block has, and as many of each share.
  for (const int rows : {24, 60, 90, 190, 500}) {
    test_case(fixture,
              {.format = WeightFormat::q4_k, .experts = 2, .used = 1, .rows = rows, .width = 256, .hidden = 512});
  }
  test_case(fixture,
            {.format = WeightFormat::mxfp4, .experts = 40, .used = 4, .rows = 12, .width = 352, .hidden = 416});
  if (!fixture.times()) return;
  for (const TimedShape& shape : {
           TimedShape{"mixtral Q4_K", WeightFormat::q4_k, 8, 2, 4096, 14336, true, 0},
           TimedShape{"gpt-oss MXFP4", WeightFormat::mxfp4, 32, 4, 2880, 2880, true, 0},
           TimedShape{"nemotron-3-nano Q5_0", WeightFormat::q5_0, 128, 6, 2688, 1856, false, 3712},
           TimedShape{"granite4-tiny-h Q4_K", WeightFormat::q4_k, 64, 6, 1536, 512, true, 1024},
       }) {
    time_layer(fixture, shape);
    for (const int rows : {1, 32, 256, 2048}) time_shape(fixture, shape, rows);
  }
}

}  // namespace quarrel::cuda
