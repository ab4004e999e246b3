// A few rows of recurrent layers in one kernel, against the kernels for many rows: the same bits, and with a norm
// nearly the same numbers. Those are tested as parts of whole models (backend_test.cpp).
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "backend/cuda/row_ops.h"
#include "backend/cuda/ssm.h"
#include "base/as_size.h"
#include "cuda/fixture.h"

namespace quarrel::cuda {
namespace {

struct Case {
  const char* name;
  int inner;
  int groups;
  int heads;
  int state;
  int taps;
  NormKind norm;

  int channels() const { return inner + 2 * groups * state; }
  int row() const { return inner + channels() + heads; }  // z, x, B, C, dt
  int slot() const { return (taps - 1) * channels() + inner * state; }
};

// Sequences of a step: one that goes on, one that begins, one of three rows with a snapshot, none at all.
const std::vector<StepRun> kRuns = {
    {.first = 0, .count = 1, .state_in = 0, .state_out = 0},
    {.first = 1, .count = 1, .state_in = -1, .state_out = 1},
    {.first = 2, .count = 3, .state_in = 2, .state_out = 3, .has_snapshots = 1},
    {},
};
const std::vector<std::int32_t> kRunOf = {0, 1, 2, 2, 2};
const std::vector<std::int32_t> kSnapshots = {-1, -1, -1, 4, -1};
constexpr int kRows = 5;
constexpr int kSlots = 5;

// A layer's weights and inputs on the device.
struct Layer {
  Case c;
  DeviceBuffer in, weight, bias, a, d, dt_bias, norm_weight, runs, run_of, snapshots, sequences, arrivals;
  std::vector<float> states;

  Layer(Fixture& fixture, const Case& wanted) : c(wanted) {
    const auto values = [&](int count, float size) {
      return to_device(random_values(as_size(count), size, fixture.random()));
    };
    in = values(kRows * c.row(), 1.0f);
    weight = values(c.channels() * c.taps, 0.5f);
    bias = values(c.channels(), 0.5f);
    std::vector<float> rates = random_values(as_size(c.heads), 1.0f, fixture.random());
    for (float& rate : rates) rate = -0.1f - rate * rate;
    a = to_device(rates);
    d = values(c.heads, 1.0f);
    dt_bias = values(c.heads, 1.0f);
    norm_weight = values(c.inner, 1.0f);
    runs = to_device(kRuns);
    run_of = to_device(kRunOf);
    snapshots = to_device(kSnapshots);
    sequences = to_device(std::vector<std::int32_t>(kRows, 0));
    arrivals = to_device(std::vector<int>(kRuns.size() * as_size(c.groups), 0));
    states = random_values(as_size(kSlots * c.slot()), 1.0f, fixture.random());
  }

  FewScanOp op(const DeviceBuffer& slots, const DeviceBuffer& y) const {
    float* first = in.as<float>();
    FewScanOp few{
        .scan = {.runs = {.runs = runs.as<StepRun>(),
                          .count = static_cast<int>(kRuns.size()),
                          .run_of = run_of.as<std::int32_t>(),
                          .snapshots = snapshots.as<std::int32_t>()},
                 .state = {.convolution = slots.as<float>(),
                           .scan = slots.as<float>() + (c.taps - 1) * c.channels(),
                           .slot_stride = c.slot()},
                 .convolved = {.data = first + c.inner, .stride = c.row(), .width = c.channels(), .count = kRows},
                 .taps = c.taps,
                 .dt = first + c.inner + c.channels(),
                 .dt_stride = c.row(),
                 .dt_bias = dt_bias.as<float>(),
                 .a = a.as<float>(),
                 .d = d.as<float>(),
                 .inner = c.inner,
                 .state_size = c.state,
                 .heads = c.heads,
                 .groups = c.groups,
                 .y = y.as<float>(),
                 .y_stride = c.inner},
        .weight = weight.as<float>(),
        .bias = bias.as<float>(),
        .gate = first,
        .gate_stride = c.row(),
        .arrivals = arrivals.as<int>()};
    if (c.norm != NormKind::none) few.norm = {.kind = c.norm, .epsilon = 1e-5f, .weight = norm_weight.as<float>()};
    return few;
  }

  // The same by the kernels for many rows.
  void run_parts(const LaunchContext& context, const FewScanOp& few, const DeviceBuffer& mixed) const {
    ScanOp scan_op = few.scan;
    convolve(context, {.runs = scan_op.runs,
                       .state = scan_op.state,
                       .in = scan_op.convolved,
                       .taps = c.taps,
                       .weight = few.weight,
                       .bias = few.bias,
                       .out = mixed.as<float>(),
                       .out_stride = c.channels()});
    scan_op.x = mixed.as<float>();
    scan_op.x_stride = scan_op.bc_stride = c.channels();
    scan_op.b = scan_op.x + c.inner;
    scan_op.c = scan_op.b + c.groups * c.state;
    scan(context, scan_op);
    gate_groups(context, {.rows = {.data = scan_op.y, .stride = c.inner, .width = c.inner, .count = kRows},
                          .gate = few.gate,
                          .gate_stride = few.gate_stride,
                          .groups = c.groups,
                          .norm = few.norm,
                          .sequences = sequences.as<std::int32_t>()});
  }
};

void test_case(Fixture& fixture, const Case& c) {
  const Layer layer(fixture, c);
  const DeviceBuffer mixed = poisoned(as_size(kRows * c.channels()) * 4);
  const std::size_t outputs = as_size(kRows * c.inner);
  const DeviceBuffer expected_states = to_device(layer.states);
  const DeviceBuffer expected = poisoned(outputs * 4);
  layer.run_parts(fixture.context(), layer.op(expected_states, expected), mixed);
  const DeviceBuffer states = to_device(layer.states);
  const DeviceBuffer y = poisoned(outputs * 4);
  const FewScanOp few = layer.op(states, y);
  if (few.norm.kind != NormKind::none && !can_norm_few(fixture.context(), few.scan)) {
    return fixture.report(fmt::format("scan of few rows, {}: no clusters here", c.name));
  }
  scan_few(fixture.context(), few);
  const auto results = to_host(y.as<float>(), outputs);
  const auto others = to_host(expected.as<float>(), outputs);
  const std::string name = fmt::format("scan of few rows, {}", c.name);
  fixture.check(name, difference(results, std::vector<double>(others.begin(), others.end())), 1e-12);
  if (c.norm == NormKind::none) fixture.check(name, results == others, "the bits of a scan of many rows");
  fixture.check(
      name,
      to_host(states.as<float>(), layer.states.size()) == to_host(expected_states.as<float>(), layer.states.size()),
      "the same states");
}

void time_case(Fixture& fixture, const Case& c) {
  const Layer layer(fixture, c);
  const DeviceBuffer mixed = poisoned(as_size(kRows * c.channels()) * 4);
  const DeviceBuffer y = poisoned(as_size(kRows * c.inner) * 4);
  const DeviceBuffer states = to_device(layer.states);
  FewScanOp few = layer.op(states, y);
  few.scan.runs.count = 1;
  const double bytes = 2.0 * c.inner * c.state * 4;
  const auto one = [&](int, const LaunchContext& context) { scan_few(context, few); };
  const auto parts = [&](int, const LaunchContext& context) { layer.run_parts(context, few, mixed); };
  fixture.report_bytes(fmt::format("scan, one row, {}", c.name), fixture.microseconds(12, fixture.context(), one),
                       bytes);
  fixture.report_bytes(fmt::format("scan, one row, {}, in parts (five rows' gates)", c.name),
                       fixture.microseconds(12, fixture.context(), parts), bytes);
}

}  // namespace

void test_scan(Fixture& fixture) {
  prepare_scan_few(fixture.context());
  const Case granite{"granite4-tiny-h", 3072, 1, 48, 128, 4, NormKind::none};
  const Case nemotron{"nemotron-3-nano", 4096, 8, 64, 128, 4, NormKind::rms};
  for (const Case& c : {granite, nemotron, Case{"a wide group", 512, 1, 8, 128, 4, NormKind::rms},
                        Case{"groups of 80", 160, 2, 4, 64, 3, NormKind::rms},
                        Case{"groups of 80, no norm", 160, 2, 4, 64, 3, NormKind::none}}) {
    test_case(fixture, c);
  }
  if (!fixture.times()) return;
  time_case(fixture, granite);
  time_case(fixture, nemotron);
}

}  // namespace quarrel::cuda
