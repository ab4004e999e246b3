// What an op case is made of: numbers, one backend with its weights and activations, steps, and comparisons.
//
// Nobody but the backend touches activations, so rows come in through `embed` (a table with one row a token) and leave
// through `select_rows` and a `head` without a weight.
#pragma once

#include <cmath>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "ops/devices.h"

namespace quarrel::test {

inline std::size_t as_size(std::int64_t value) { return static_cast<std::size_t>(value); }

template <typename Number>
struct Matrix {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::vector<Number> values = {};

  Matrix() = default;
  Matrix(std::size_t r, std::size_t c) : rows(r), columns(c), values(r * c) {}
  Number& at(std::size_t r, std::size_t c) { return values[r * columns + c]; }
  const Number& at(std::size_t r, std::size_t c) const { return values[r * columns + c]; }
  std::vector<Number> row(std::size_t r) const {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(r * columns);
    return {begin, begin + static_cast<std::ptrdiff_t>(columns)};
  }
};
using Floats = Matrix<float>;
using Doubles = Matrix<double>;
using Row = std::vector<double>;

// Numbers between -scale and scale around `centre`, the same in every run.
Floats random_matrix(std::size_t rows, std::size_t columns, std::uint64_t seed, double scale = 1.0,
                     double centre = 0.0);

Row widen(const std::vector<float>& row);
double euclidean(const Row& row);
// The largest norm of a row: what bounds a product with it.
double largest_row(const Floats& matrix);

void expect_close(const Row& actual, const Row& expected, double tolerance);
void expect_close(const Floats& actual, const Doubles& expected, double tolerance);

// ---- The plain computations that several cases share ----

Row matvec(const Floats& weight, const Row& x, const std::vector<float>& bias = {}, std::size_t first_row = 0,
           std::size_t rows = 0);
Row rms_norm(const Row& x, const std::vector<float>& weight, double epsilon);
Row layer_norm(const Row& x, const std::vector<float>& weight, const std::vector<float>& bias, double epsilon);

// ---- Weights as a file has them ----

std::vector<std::byte> encoded(const Floats& values, QuantType type);
Floats rounded(const Floats& values, QuantType type);  // what is left of them

// ---- A step, with everything it points to ----

struct PlannedSequence {
  std::vector<std::vector<std::int32_t>> tables = {};  // [group][entry]
  std::int32_t length = 0;
  std::int32_t state_in = -1;
  std::int32_t state_out = -1;
  std::int32_t lane = -1;
};

struct StepPlan {
  std::vector<StepRow> rows = {};
  std::int32_t generated_rows = 0;
  std::vector<PlannedSequence> sequences = {};
  std::vector<StateSnapshot> snapshots = {};
  std::vector<StepOutput> outputs = {};  // empty: every row, when an activation is read
  std::vector<BlockCopy> block_copies = {};
  std::vector<SlotCopy> slot_copies = {};
  std::vector<LaneStart> lane_starts = {};
  std::function<void()> fill_masks = {};

  // `count` rows of one sequence from `position`; the token of a row is its position plus `first_token`.
  StepPlan& add(std::int32_t position, std::int32_t count, const PlannedSequence& sequence,
                std::int32_t first_token = 0);
};

class OpFixture {
 public:
  // Prompt rows are split into two int8 everywhere, so that the bounds are tight; other options are for the cases that
  // are about them.
  explicit OpFixture(const DeviceUnderTest& device,
                     BackendOptions options = {.activations = ActivationPrecision::int8_split});

  Backend& backend() { return *backend_; }
  double epsilon() const { return epsilon_; }

  Weight matrix(const Floats& values, WeightRole role = WeightRole::column_parallel, QuantType type = QuantType::f32);
  Weight vector(const std::vector<float>& values);
  // Rows of all experts, one after the other; `used` of them by each row.
  Weight experts(const Floats& values, std::int32_t count, WeightRole role, std::int32_t used,
                 QuantType type = QuantType::f32, std::int32_t layer = 0);
  Rope rope(RopeKind kind, const std::vector<double>& frequencies, double magnitude = 1.0);
  Activation activation(std::int32_t width, RowSet rows = RowSet::all);
  // An activation that holds row `token` of `values` for each row of a step when the ops begin.
  Activation input(const Floats& values);
  void cache(const CacheConfig& config);

  using Ops = std::function<void(Backend&)>;
  using ShapedOps = std::function<void(Backend&, const StepShape&)>;
  // Runs a step and gives back the rows of `wanted` (of all rows) as they are in the end.
  Floats run(const StepPlan& plan, const Activation& wanted, const Ops& ops);
  // Runs a step for its results alone.
  StepResults run(const StepPlan& plan, const Ops& ops);
  const StepResults& results() const { return results_; }
  // The same in two halves: submits the step, and gives its ticket to be awaited. The ops must stay good till then.
  Ticket submit(const StepPlan& plan, const ShapedOps& ops);

 private:
  Weight prepare(const Floats& values, WeightSource source);
  void reserve();

  double epsilon_;
  std::deque<std::vector<std::byte>> memory_;  // weights are read in place
  std::unique_ptr<Backend> backend_;
  struct Input {
    Activation activation;
    Weight table;
  };
  std::vector<Input> inputs_;
  std::map<std::int32_t, Activation> readable_;  // of outputs, by the id of the one of all rows
  std::int32_t vocabulary_ = 1;
  bool reserved_ = false;
  StepResults results_;
};

}  // namespace quarrel::test
