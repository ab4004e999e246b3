// Replaying a captured graph needs no patching only if a step's calls depend on its shape alone. A backend that records
// every call instead of computing runs the forward with different plans of one shape and compares what was issued.
#include <gtest/gtest.h>

#include <algorithm>
#include <variant>

#include "base/error.h"
#include "model/architectures.h"
#include "model/model.h"
#include "support/late_device.h"
#include "support/temp_dir.h"
#include "support/toy_model.h"

namespace quarrel::test {
namespace {

using Call = std::variant<EmbedOp, NormOp, QkvOp, AttendOp, LinearOp, GluOp, MoeOp, SsmOp, SelectRowsOp, HeadOp,
                          SampleOp, PoolOp>;

class RecordingBackend final : public Backend {
 public:
  std::vector<Call> calls;
  bool buckets = false;

  std::string_view name() const noexcept override { return "recording"; }
  Weight prepare_weight(const WeightSource& source) override {
    return {.id = next_++,
            .rows = static_cast<std::int32_t>(source.rows),
            .columns = static_cast<std::int32_t>(source.columns),
            .experts = static_cast<std::int32_t>(source.experts)};
  }
  Rope prepare_rope(const RopeSource&) override { return {.id = next_++}; }
  Activation make_activation(std::int32_t width, RowSet rows) override {
    return {.id = next_++, .width = width, .rows = rows};
  }
  void reserve(const StepLimits&, std::int32_t) override {}
  std::size_t prepared_bytes() const noexcept override { return 0; }
  std::size_t released_bytes() const noexcept override { return 0; }
  std::size_t workspace_bytes(const StepLimits&, std::int32_t) const noexcept override { return 0; }
  std::int32_t block_tokens() const noexcept override { return 16; }
  std::size_t kv_bytes(const KvGroup&, KvType) const noexcept override { return 0; }
  std::size_t state_bytes(std::span<const StateLayer>) const noexcept override { return 0; }
  void allocate_cache(const CacheConfig&) override {}
  Ticket start_export_block(std::int32_t, std::int32_t, std::span<std::byte>) override { return 1; }
  Ticket start_import_block(std::int32_t, std::int32_t, std::span<const std::byte>) override { return 1; }
  Ticket start_export_slot(std::int32_t, std::span<std::byte>) override { return 1; }
  Ticket start_import_slot(std::int32_t, std::span<const std::byte>) override { return 1; }
  bool transfer_done(Ticket) override { return true; }
  void await_transfer(Ticket) override {}

  StepShape shape_of(const Step& step) const noexcept override {
    return buckets ? bucket_of(exact_shape(step)) : exact_shape(step);
  }
  std::int32_t logit_rows() const noexcept override { return 2; }
  std::int64_t pace() const override { return 0; }
  Ticket submit(const Step& step, const Forward& forward) override {
    calls.clear();
    forward(*this, shape_of(step));
    return 1;
  }
  StepResults wait(Ticket) override { return {}; }
  void set_profiling(bool) override {}
  std::vector<OpTime> profile() const override { return {}; }
  BackendCounters counters() const noexcept override { return {}; }
  std::vector<ExpertUse> expert_use() const override { return {}; }
  std::size_t expert_cache_bytes() const noexcept override { return 0; }
  std::size_t expert_workspace_bytes(const StepLimits&) const noexcept override { return 0; }

  void embed(const EmbedOp& op) override { calls.emplace_back(op); }
  void norm(const NormOp& op) override { calls.emplace_back(op); }
  void qkv(const QkvOp& op) override { calls.emplace_back(op); }
  void attend(const AttendOp& op) override { calls.emplace_back(op); }
  void linear(const LinearOp& op) override { calls.emplace_back(op); }
  void glu(const GluOp& op) override { calls.emplace_back(op); }
  void moe(const MoeOp& op) override { calls.emplace_back(op); }
  void ssm(const SsmOp& op) override { calls.emplace_back(op); }
  void select_rows(const SelectRowsOp& op) override { calls.emplace_back(op); }
  void head(const HeadOp& op) override { calls.emplace_back(op); }
  void sample(const SampleOp& op) override { calls.emplace_back(op); }
  void pool(const PoolOp& op) override { calls.emplace_back(op); }

 private:
  std::int32_t next_ = 0;
};

// What a step may ask for.
enum class Asked { tokens, vectors, pooled, both };

// Rows that differ in everything but their number: tokens, positions, sequences, lanes.
struct Plan {
  std::vector<StepRow> rows;
  std::vector<StepOutput> outputs;
  std::vector<StepSequence> sequences;
  std::int32_t generated_rows = 2;

  Plan(Asked asked, std::int32_t salt, std::int32_t prompt_rows = 7) {
    for (std::int32_t i = 0; i < 2 + prompt_rows; ++i) {
      rows.push_back({.sequence = i % 3, .position = i + salt, .token = (i * 7 + salt) % 300});
    }
    for (std::int32_t i = 0; i < 3; ++i) {
      sequences.push_back({.length = 300, .lane = asked == Asked::pooled || asked == Asked::both ? salt % 5 + i : -1});
    }
    const auto kind = [&](std::int32_t i) {
      if (asked == Asked::vectors) return OutputKind::vector;
      if (asked == Asked::pooled) return OutputKind::pooled;
      if (asked == Asked::both && i == 2) return OutputKind::pooled;
      return salt % 2 == 0 ? OutputKind::sample : OutputKind::score;
    };
    for (std::int32_t i = 0; i < 3; ++i) {
      outputs.push_back({.row = i == 2 ? prompt_rows + 1 : i, .kind = kind(i), .lane = i + salt % 5, .top = salt % 3});
    }
  }
  Step step() const {
    return {.rows = rows, .generated_rows = generated_rows, .sequences = sequences, .outputs = outputs};
  }
};

bool possible(const Model& model, Asked asked) {
  return model.spec().has_head || asked == Asked::vectors || asked == Asked::pooled;
}

class Recording : public testing::TestWithParam<std::string_view> {};

TEST_P(Recording, CallsDependOnTheShapeAlone) {
  const TempDir folder;
  const GgufFile file = GgufFile::open(write_toy(GetParam(), folder.path()));
  RecordingBackend backend;
  const Model model(file, read_spec(file), backend);
  const Backend::Forward forward = [&](Backend& to, const StepShape& shape) { model.forward(to, shape); };
  for (const Asked asked : {Asked::tokens, Asked::vectors, Asked::pooled, Asked::both}) {
    if (!possible(model, asked)) {
      EXPECT_THROW(backend.submit(Plan(asked, 0).step(), forward), Error) << "an encoder has no tokens";
      continue;
    }
    backend.submit(Plan(asked, 0).step(), forward);
    const std::vector<Call> first = backend.calls;
    ASSERT_GE(first.size(), 2 + model.spec().layers.size());
    backend.submit(Plan(asked, 101).step(), forward);
    EXPECT_TRUE(first == backend.calls);
  }
}

// Steps of different sizes in one bucket replay the same graph.
TEST_P(Recording, CallsOfABucketAreTheSame) {
  const TempDir folder;
  const GgufFile file = GgufFile::open(write_toy(GetParam(), folder.path()));
  RecordingBackend backend;
  backend.buckets = true;
  const Model model(file, read_spec(file), backend);
  const Backend::Forward forward = [&](Backend& to, const StepShape& shape) { model.forward(to, shape); };
  for (const Asked asked : {Asked::tokens, Asked::vectors, Asked::pooled, Asked::both}) {
    if (!possible(model, asked)) continue;
    std::vector<std::vector<Call>> calls;
    std::vector<StepShape> shapes;
    for (const std::int32_t prompt_rows : {5, 6, 8, 9}) {
      Plan plan(asked, prompt_rows * 11, prompt_rows);
      // The first bucket again, with another number of outputs in it.
      if (prompt_rows == 6) plan.outputs.insert(plan.outputs.begin() + 2, {.row = 2, .kind = plan.outputs[2].kind});
      if (prompt_rows == 6) plan.outputs.insert(plan.outputs.begin() + 2, {.row = 2, .kind = plan.outputs[3].kind});
      if (prompt_rows != 6) plan.outputs.insert(plan.outputs.begin() + 2, 3, plan.outputs[2]);
      backend.submit(plan.step(), forward);
      calls.push_back(backend.calls);
      shapes.push_back(backend.shape_of(plan.step()));
    }
    EXPECT_EQ(shapes[0], shapes[1]);
    EXPECT_EQ(shapes[0], shapes[2]);
    EXPECT_NE(shapes[0], shapes[3]);
    EXPECT_TRUE(calls[0] == calls[1]);
    EXPECT_TRUE(calls[0] == calls[2]);
  }
}

// Which ops end a step.
TEST_P(Recording, OnlyWhatIsAskedForIsComputed) {
  const TempDir folder;
  const GgufFile file = GgufFile::open(write_toy(GetParam(), folder.path()));
  RecordingBackend backend;
  const Model model(file, read_spec(file), backend);
  const Backend::Forward forward = [&](Backend& to, const StepShape& shape) { model.forward(to, shape); };
  const auto count = [&]<typename Op>(const Op*) {
    return std::ranges::count_if(backend.calls, [](const Call& call) { return std::holds_alternative<Op>(call); });
  };
  const auto heads_with_weights = [&] {
    return std::ranges::count_if(backend.calls, [](const Call& call) {
      const auto* head = std::get_if<HeadOp>(&call);
      return head != nullptr && head->weight.valid();
    });
  };
  const HeadOp* head = nullptr;
  const SampleOp* sample = nullptr;
  const PoolOp* pool = nullptr;
  for (const Asked asked : {Asked::tokens, Asked::vectors, Asked::pooled, Asked::both}) {
    if (!possible(model, asked)) continue;
    backend.submit(Plan(asked, 0).step(), forward);
    const bool tokens = asked == Asked::tokens || asked == Asked::both;
    EXPECT_EQ(count(head), asked == Asked::pooled ? 0 : 2) << "two slices of two outputs";
    EXPECT_EQ(count(sample), tokens ? 2 : 0);
    EXPECT_EQ(heads_with_weights(), tokens ? 2 : 0);
    EXPECT_EQ(count(pool), asked == Asked::pooled || asked == Asked::both ? 1 : 0);
  }
}

TEST_P(Recording, EveryTensorOfTheFileIsUsed) {
  const TempDir folder;
  const GgufFile file = GgufFile::open(write_toy(GetParam(), folder.path()));
  RecordingBackend backend;
  const Model model(file, read_spec(file), backend);
  EXPECT_EQ(model.unused_tensors(), std::vector<std::string>{});
}

// The comparison must be able to fail: a forward that looks at a plan is caught.
TEST(RecordingItself, NoticesAnArgumentThatChanges) {
  RecordingBackend backend;
  std::int32_t position = 0;
  const Backend::Forward leaky = [&](Backend& to, const StepShape&) {
    to.sample({.slice = position, .vocabulary = 1});
  };
  backend.submit(Plan(Asked::tokens, 0).step(), leaky);
  const std::vector<Call> first = backend.calls;
  position = 1;
  backend.submit(Plan(Asked::tokens, 101).step(), leaky);
  EXPECT_FALSE(first == backend.calls);
}

INSTANTIATE_TEST_SUITE_P(Toys, Recording, testing::ValuesIn(toy_names().begin(), toy_names().end()),
                         [](const auto& param) {
                           std::string name(param.param);
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace quarrel::test
