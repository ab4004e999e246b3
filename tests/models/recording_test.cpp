// Replaying a captured graph needs no patching only if a step's calls depend on its shape alone. A backend that records
// every call instead of computing runs the forward with different plans of one shape and compares what was issued.
#include <gtest/gtest.h>

#include <algorithm>
#include <variant>

#include "model/architectures.h"
#include "model/model.h"
#include "support/temp_dir.h"
#include "support/toy_model.h"

namespace quarrel::test {
namespace {

using Call = std::variant<EmbedOp, NormOp, QkvOp, AttendOp, LinearOp, GluOp, MoeOp, SsmOp, SelectRowsOp, HeadOp,
                          SampleOp, PoolOp>;

class RecordingBackend final : public Backend {
 public:
  std::vector<Call> calls;

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
  void copy_block(std::int32_t, std::int32_t, std::int32_t) override {}
  void copy_slot(std::int32_t, std::int32_t) override {}
  void export_block(std::int32_t, std::int32_t, std::span<std::byte>) const override {}
  void import_block(std::int32_t, std::int32_t, std::span<const std::byte>) override {}
  void export_slot(std::int32_t, std::span<std::byte>) const override {}
  void import_slot(std::int32_t, std::span<const std::byte>) override {}

  StepShape shape_of(const Step& step) const noexcept override { return exact_shape(step); }
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

// Rows that differ in everything but their number: tokens, positions, sequences.
Step plan(std::vector<StepRow>& rows, std::vector<StepOutput>& outputs, std::int32_t salt) {
  rows.clear();
  outputs.clear();
  for (std::int32_t i = 0; i < 9; ++i)
    rows.push_back({.sequence = i % 3, .position = i + salt, .token = (i * 7 + salt) % 300});
  for (const std::int32_t row : {0, 1, 8}) outputs.push_back({.row = row});
  return {.rows = rows, .generated_rows = 2, .outputs = outputs};
}

class Recording : public testing::TestWithParam<std::string_view> {};

TEST_P(Recording, CallsDependOnTheShapeAlone) {
  const TempDir folder;
  const GgufFile file = GgufFile::open(write_toy(GetParam(), folder.path()));
  RecordingBackend backend;
  const Model model(file, read_spec(file), backend);
  const Backend::Forward forward = [&](Backend& to, const StepShape& shape) { model.forward(to, shape); };
  std::vector<StepRow> rows;
  std::vector<StepOutput> outputs;
  backend.submit(plan(rows, outputs, 0), forward);
  const std::vector<Call> first = backend.calls;
  ASSERT_GE(first.size(), 2 + model.spec().layers.size());
  backend.submit(plan(rows, outputs, 101), forward);
  EXPECT_TRUE(first == backend.calls);
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
  std::vector<StepRow> rows;
  std::vector<StepOutput> outputs;
  std::int32_t position = 0;
  const Backend::Forward leaky = [&](Backend& to, const StepShape&) {
    to.sample({.slice = position, .vocabulary = 1});
  };
  backend.submit(plan(rows, outputs, 0), leaky);
  const std::vector<Call> first = backend.calls;
  position = 1;
  backend.submit(plan(rows, outputs, 101), leaky);
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
