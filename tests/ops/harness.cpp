#include "ops/harness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

#include "backend/sampling.h"
#include "quant/decode.h"
#include "quant/encode.h"

namespace quarrel::test {

constexpr std::int32_t kMaxRows = 160;
constexpr std::string_view kName = "a test's weight";

Floats random_matrix(std::size_t rows, std::size_t columns, std::uint64_t seed, double scale, double centre) {
  Floats matrix(rows, columns);
  for (std::size_t i = 0; i < matrix.values.size(); ++i) {
    matrix.values[i] = static_cast<float>(centre + scale * (2.0 * uniform(seed, i) - 1.0));
  }
  return matrix;
}

Row widen(const std::vector<float>& row) { return {row.begin(), row.end()}; }

double euclidean(const Row& row) {
  double sum = 0.0;
  for (const double value : row) sum += value * value;
  return std::sqrt(sum);
}

double largest_row(const Floats& matrix) {
  double largest = 0.0;
  for (std::size_t r = 0; r < matrix.rows; ++r) largest = std::max(largest, euclidean(widen(matrix.row(r))));
  return largest;
}

void expect_close(const Row& actual, const Row& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_LE(std::abs(actual[i] - expected[i]), tolerance)
        << "value " << i << " is " << actual[i] << ", not " << expected[i];
  }
}

void expect_close(const Floats& actual, const Doubles& expected, double tolerance) {
  ASSERT_EQ(actual.rows, expected.rows);
  ASSERT_GE(actual.columns, expected.columns);
  for (std::size_t r = 0; r < actual.rows; ++r) {
    SCOPED_TRACE(testing::Message() << "row " << r);
    Row row = widen(actual.row(r));
    row.resize(expected.columns);  // an activation may be wider than what the op at hand puts there
    expect_close(row, expected.row(r), tolerance);
    if (testing::Test::HasFatalFailure()) return;
  }
}

Row matvec(const Floats& weight, const Row& x, const std::vector<float>& bias, std::size_t first_row,
           std::size_t rows) {
  Row y(rows == 0 ? weight.rows : rows, 0.0);
  for (std::size_t o = 0; o < y.size(); ++o) {
    for (std::size_t i = 0; i < x.size(); ++i) y[o] += static_cast<double>(weight.at(first_row + o, i)) * x[i];
    if (!bias.empty()) y[o] += static_cast<double>(bias[first_row + o]);
  }
  return y;
}

Row rms_norm(const Row& x, const std::vector<float>& weight, double epsilon) {
  double squares = 0.0;
  for (const double value : x) squares += value * value;
  Row y = x;
  for (std::size_t i = 0; i < x.size(); ++i) {
    y[i] = x[i] / std::sqrt(squares / static_cast<double>(x.size()) + epsilon) * static_cast<double>(weight[i]);
  }
  return y;
}

Row layer_norm(const Row& x, const std::vector<float>& weight, const std::vector<float>& bias, double epsilon) {
  double mean = 0.0;
  for (const double value : x) mean += value / static_cast<double>(x.size());
  double variance = 0.0;
  for (const double value : x) variance += (value - mean) * (value - mean) / static_cast<double>(x.size());
  Row y = x;
  for (std::size_t i = 0; i < x.size(); ++i) {
    y[i] =
        (x[i] - mean) / std::sqrt(variance + epsilon) * static_cast<double>(weight[i]) + static_cast<double>(bias[i]);
  }
  return y;
}

std::vector<std::byte> encoded(const Floats& values, QuantType type) {
  const std::size_t bytes = row_bytes(type_info(type), values.columns);
  std::vector<std::byte> memory(values.rows * bytes);
  for (std::size_t r = 0; r < values.rows; ++r) {
    encode_row(type, values.values.data() + r * values.columns, memory.data() + r * bytes, values.columns);
  }
  return memory;
}

Floats rounded(const Floats& values, QuantType type) {
  const std::size_t bytes = row_bytes(type_info(type), values.columns);
  const std::vector<std::byte> memory = encoded(values, type);
  Floats decoded(values.rows, values.columns);
  for (std::size_t r = 0; r < values.rows; ++r) {
    decode_row(type, memory.data() + r * bytes, &decoded.at(r, 0), values.columns);
  }
  return decoded;
}

StepPlan& StepPlan::add(std::int32_t position, std::int32_t count, const PlannedSequence& sequence,
                        std::int32_t first_token) {
  const auto index = static_cast<std::int32_t>(sequences.size());
  sequences.push_back(sequence);
  if (sequences.back().length == 0) sequences.back().length = position + count;
  for (std::int32_t i = 0; i < count; ++i) {
    rows.push_back({.sequence = index, .position = position + i, .token = position + i + first_token});
  }
  return *this;
}

OpFixture::OpFixture(const DeviceUnderTest& device, BackendOptions options) : epsilon_(device.epsilon) {
  options.deterministic = options.deterministic || device.deterministic;
  backend_ = device.device.make_backend(options);
}

Weight OpFixture::prepare(const Floats& values, WeightSource source) {
  const std::vector<std::byte>& memory = memory_.emplace_back(encoded(values, source.type));
  source.rows = static_cast<std::int64_t>(values.rows) / source.experts;
  source.columns = static_cast<std::int64_t>(values.columns);
  source.data = memory.data();
  return backend_->prepare_weight(source);
}

Weight OpFixture::matrix(const Floats& values, WeightRole role, QuantType type) {
  return prepare(values, {.name = kName, .role = role, .type = type});
}

Weight OpFixture::experts(const Floats& values, std::int32_t count, WeightRole role, std::int32_t used, QuantType type,
                          std::int32_t layer) {
  return prepare(values,
                 {.name = kName, .role = role, .type = type, .experts = count, .layer = layer, .experts_used = used});
}

Weight OpFixture::vector(const std::vector<float>& values) {
  Floats matrix(1, values.size());
  matrix.values = values;
  return prepare(matrix, {.name = kName, .role = WeightRole::vector});
}

Rope OpFixture::rope(RopeKind kind, const std::vector<double>& frequencies, double magnitude) {
  return backend_->prepare_rope({.kind = kind, .frequencies = frequencies, .magnitude = magnitude});
}

Activation OpFixture::activation(std::int32_t width, RowSet rows) {
  const Activation made = backend_->make_activation(width, rows);
  if (rows == RowSet::all) readable_[made.id] = backend_->make_activation(width, RowSet::outputs);
  return made;
}

Activation OpFixture::input(const Floats& values) {
  const Activation made = activation(static_cast<std::int32_t>(values.columns));
  // Bytes as they are: infinities and NaNs are inputs, too, and an encoder would refuse them.
  std::vector<std::byte>& memory = memory_.emplace_back(values.values.size() * sizeof(float));
  std::ranges::copy(std::as_bytes(std::span(values.values)), memory.begin());
  const Weight table = backend_->prepare_weight({.name = "a test's input",
                                                 .role = WeightRole::embedding,
                                                 .type = QuantType::f32,
                                                 .rows = static_cast<std::int64_t>(values.rows),
                                                 .columns = static_cast<std::int64_t>(values.columns),
                                                 .experts = 1,
                                                 .data = memory.data()});
  inputs_.push_back({.activation = made, .table = table});
  vocabulary_ = std::max(vocabulary_, static_cast<std::int32_t>(values.rows));
  return made;
}

void OpFixture::cache(const CacheConfig& config) { backend_->allocate_cache(config); }

void OpFixture::reserve() {
  if (reserved_) return;
  backend_->reserve({.rows = kMaxRows, .outputs = kMaxRows, .sequences = kMaxRows, .lanes = 8, .context = 1 << 20},
                    vocabulary_);
  reserved_ = true;
}

Floats OpFixture::run(const StepPlan& plan, const Activation& wanted, const Ops& ops) {
  Floats values(plan.rows.size(), static_cast<std::size_t>(wanted.width));
  StepPlan reading = plan;
  reading.outputs.clear();
  for (std::size_t r = 0; r < plan.rows.size(); ++r) {
    reading.outputs.push_back({.row = static_cast<std::int32_t>(r), .kind = OutputKind::vector});
  }
  const Activation selected = readable_.at(wanted.id);
  const ShapedOps all = [&](Backend& backend, const StepShape& shape) {
    ops(backend);
    backend.select_rows({.in = wanted, .out = selected});
    for (std::int32_t slice = 0; slice * backend.logit_rows() < shape.outputs(); ++slice) {
      backend.head({.slice = slice, .in = selected});
    }
  };
  results_ = backend_->wait(submit(reading, all));
  EXPECT_EQ(results_.vectors.size(), values.values.size());
  std::ranges::copy(results_.vectors, values.values.begin());
  return values;
}

StepResults OpFixture::run(const StepPlan& plan, const Ops& ops) {
  results_ = backend_->wait(submit(plan, [&](Backend& backend, const StepShape&) { ops(backend); }));
  return results_;
}

Ticket OpFixture::submit(const StepPlan& plan, const ShapedOps& ops) {
  reserve();
  std::vector<std::vector<BlockTable>> tables;
  std::vector<StepSequence> sequences;
  for (const PlannedSequence& sequence : plan.sequences) {
    std::vector<BlockTable>& of_sequence = tables.emplace_back();
    for (const auto& blocks : sequence.tables) {
      const auto live = std::ranges::find_if(blocks, [](std::int32_t block) { return block >= 0; });
      of_sequence.push_back(
          {.blocks = blocks,
           .first_live = backend_->block_tokens() * static_cast<std::int32_t>(live - blocks.begin())});
    }
    sequences.push_back({.tables = of_sequence,
                         .length = sequence.length,
                         .state_in = sequence.state_in,
                         .state_out = sequence.state_out,
                         .lane = sequence.lane});
  }
  const Step step{.rows = plan.rows,
                  .generated_rows = plan.generated_rows,
                  .sequences = sequences,
                  .outputs = plan.outputs,
                  .snapshots = plan.snapshots,
                  .block_copies = plan.block_copies,
                  .slot_copies = plan.slot_copies,
                  .lane_starts = plan.lane_starts,
                  .fill_masks = plan.fill_masks};
  return backend_->submit(step, [this, ops](Backend& backend, const StepShape& shape) {
    for (const Input& input : inputs_) backend.embed({.out = input.activation, .table = input.table});
    ops(backend, shape);
  });
}

}  // namespace quarrel::test
