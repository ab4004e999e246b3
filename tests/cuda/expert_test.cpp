// Rows with the experts they chose: one by one and sorted by expert, against sums in double; and their times at the
// shapes of real models.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "backend/cuda/expert_gemv.h"
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

  Experts(Fixture& fixture, WeightFormat format, int count, int one_rows, int columns)
      : matrix(format, count * one_rows, columns, fixture.random()),
        bias(random_values(as_size(count * one_rows), 0.5f, fixture.random())),
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
           TimedShape{"mixtral Q4_K", WeightFormat::q4_k, 8, 2, 4096, 14336, true},
           TimedShape{"gpt-oss MXFP4", WeightFormat::mxfp4, 32, 4, 2880, 2880, true},
           TimedShape{"nemotron-3-nano Q5_0", WeightFormat::q5_0, 128, 6, 2688, 1856, false},
           TimedShape{"granite4-tiny-h Q4_K", WeightFormat::q4_k, 64, 6, 1536, 512, true},
       }) {
    for (const int rows : {1, 32, 256, 2048}) time_shape(fixture, shape, rows);
  }
}

}  // namespace quarrel::cuda
