// Every rule that a step has to keep to, broken alone.
#include "backend/step_check.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "ops/chain_fixture.h"

namespace quarrel::test {
namespace {

// A step that keeps all rules, for a cache of two groups, the second with a window, and six state slots.
struct GoodStep {
  SamplingParams sampling;
  std::vector<TokenId> text = {1, 2, 3};
  std::vector<std::uint64_t> mask = {1, 1};
  std::vector<std::int32_t> whole = {0, 1, 2};
  std::vector<std::int32_t> windowed = {-1, 3, 1};
  std::vector<std::vector<BlockTable>> tables = {{{whole, 0}, {windowed, 16}}, {{whole, 0}, {whole, 0}}};
  std::vector<StepRow> rows = {{0, 40, 5}, {1, 0, 6}, {1, 1, 7}, {1, 2, 8}};
  std::int32_t generated_rows = 1;
  std::vector<StepSequence> sequences = {{.tables = tables[0], .length = 41, .state_in = 0, .state_out = 1},
                                         {.tables = tables[1], .length = 3, .state_out = 2, .lane = 3}};
  std::vector<StepOutput> outputs = {
      {.row = 0, .kind = OutputKind::sample, .lane = 0, .top = 20, .mask = mask},
      {.row = 0, .kind = OutputKind::sample, .lane = 1},
      {.row = 1, .kind = OutputKind::score, .score = 99, .top = 2},
      {.row = 3, .kind = OutputKind::pooled, .logits = true, .lane = 3},
  };
  std::vector<StateSnapshot> snapshots = {{.row = 2, .slot = 4}};
  std::vector<BlockCopy> block_copies = {{.group = 1, .from = 3, .to = 0}};
  std::vector<SlotCopy> slot_copies = {{.from = 5, .to = 0}};
  std::vector<LaneStart> lane_starts = {{.lane = 0, .sampling = &sampling, .text = text, .prompt_tokens = 2},
                                        {.lane = 1, .sampling = &sampling},
                                        {.lane = 3, .pooling = Pooling::mean}};

  GoodStep() = default;
  GoodStep(const GoodStep&) = delete;
  Step step() const {
    return {.rows = rows,
            .generated_rows = generated_rows,
            .sequences = sequences,
            .outputs = outputs,
            .snapshots = snapshots,
            .block_copies = block_copies,
            .slot_copies = slot_copies,
            .lane_starts = lane_starts};
  }
};

StepCheck make_check() {
  StepCheck check;
  check.set_limits({.rows = 6, .outputs = 6, .sequences = 3, .lanes = 4, .context = 48}, 100);
  check.set_cache({.groups = {{.layers = 1}, {.layers = 1, .window = 20}}, .blocks = {4, 4}, .state_slots = 6}, 16);
  return check;
}

struct Rule {
  const char* name;
  std::function<void(GoodStep&)> break_it;
};

const Rule kRules[] = {
    {"TooManyRows",
     [](GoodStep& s) {
       s.rows = {{0, 36, 1}, {0, 37, 1}, {0, 38, 1}, {0, 39, 1}, {0, 40, 1}, {1, 0, 1}, {1, 1, 1}};
       s.generated_rows = 5;
       s.outputs.clear();
       s.snapshots.clear();
     }},
    {"TooManyOutputs", [](GoodStep& s) { s.outputs.assign(7, {.row = 0, .kind = OutputKind::vector}); }},
    {"TooManySequences",
     [](GoodStep& s) {
       s.sequences.push_back({.tables = s.tables[1]});
       s.sequences.push_back({.tables = s.tables[1]});
     }},
    {"MoreGeneratedRowsThanRows", [](GoodStep& s) { s.generated_rows = 5; }},
    {"NegativeGeneratedRows", [](GoodStep& s) { s.generated_rows = -1; }},
    {"UnknownSequence", [](GoodStep& s) { s.rows[3].sequence = 2; }},
    {"NegativeSequence", [](GoodStep& s) { s.rows[0].sequence = -1; }},
    {"NegativePosition", [](GoodStep& s) { s.rows[1].position = -1; }},
    {"PositionBeyondTheText", [](GoodStep& s) { s.rows[3].position = 3; }},
    {"PositionsDoNotAscend", [](GoodStep& s) { s.rows[2].position = 0; }},
    {"SequenceInTwoPlaces", [](GoodStep& s) { s.rows = {{1, 0, 6}, {0, 40, 5}, {1, 1, 7}, {1, 2, 8}}; }},
    {"SequenceOfBothClasses", [](GoodStep& s) { s.generated_rows = 2; }},
    {"TextBeyondTheContext", [](GoodStep& s) { s.sequences[0].length = 49; }},
    {"TokenBeyondTheVocabulary", [](GoodStep& s) { s.rows[2].token = 100; }},
    {"TokenThatNoOutputSampled", [](GoodStep& s) { s.rows[0].token = ~0; }},
    {"TableOfAGroupMissing", [](GoodStep& s) { s.sequences[0].tables = s.sequences[0].tables.first(1); }},
    {"TableShorterThanTheText", [](GoodStep& s) { s.tables[1][0].blocks = s.tables[1][0].blocks.first(0); }},
    {"BlockBeyondTheCache", [](GoodStep& s) { s.whole[1] = 4; }},
    {"FreedBlockAmongLiveOnes", [](GoodStep& s) { s.tables[0][1].first_live = 15; }},
    {"RowWithoutABlock",
     [](GoodStep& s) {
       s.windowed[2] = -1;
       s.tables[0][1].first_live = 48;
     }},
    {"RowSeesAFreedBlock",
     [](GoodStep& s) {
       s.windowed[1] = -1;
       s.tables[0][1].first_live = 32;
     }},
    {"StateReadBeyondTheSlots", [](GoodStep& s) { s.sequences[0].state_in = 6; }},
    {"StateWrittenBeyondTheSlots", [](GoodStep& s) { s.sequences[0].state_out = 6; }},
    {"StateOfAStrangeNumber", [](GoodStep& s) { s.sequences[0].state_in = -2; }},
    {"TwoSequencesWriteOneSlot", [](GoodStep& s) { s.sequences[1].state_out = 1; }},
    {"SlotReadThatAnotherWrites", [](GoodStep& s) { s.sequences[1].state_in = 1; }},
    {"SnapshotOfNoRow", [](GoodStep& s) { s.snapshots[0].row = 4; }},
    {"SnapshotBeyondTheSlots", [](GoodStep& s) { s.snapshots[0].slot = 6; }},
    {"SnapshotIntoAnothersSlot", [](GoodStep& s) { s.snapshots[0].slot = 1; }},
    {"CopyInNoGroup", [](GoodStep& s) { s.block_copies[0].group = 2; }},
    {"CopyFromBeyondTheCache", [](GoodStep& s) { s.block_copies[0].from = 4; }},
    {"CopyToBeyondTheCache", [](GoodStep& s) { s.block_copies[0].to = -1; }},
    {"CopyFromBeyondTheSlots", [](GoodStep& s) { s.slot_copies[0].from = 6; }},
    {"CopyToBeyondTheSlots", [](GoodStep& s) { s.slot_copies[0].to = -1; }},
    {"LaneBeyondThoseReserved", [](GoodStep& s) { s.lane_starts[0].lane = 4; }},
    {"LaneBeginsTwice", [](GoodStep& s) { s.lane_starts.push_back(s.lane_starts[1]); }},
    {"LaneThatDoesNothing", [](GoodStep& s) { s.lane_starts.push_back({.lane = 2}); }},
    {"LaneThatDoesBoth", [](GoodStep& s) { s.lane_starts[1].pooling = Pooling::mean; }},
    {"PromptLongerThanTheText", [](GoodStep& s) { s.lane_starts[0].prompt_tokens = 4; }},
    {"NegativePrompt", [](GoodStep& s) { s.lane_starts[0].prompt_tokens = -1; }},
    {"UnknownTokenInALanesText", [](GoodStep& s) { s.text[1] = 100; }},
    {"SequencePoolsIntoASamplingLane", [](GoodStep& s) { s.sequences[0].lane = 0; }},
    {"SequencePoolsIntoALaneNotBegun", [](GoodStep& s) { s.sequences[0].lane = 2; }},
    {"SequencePoolsBeyondTheLanes", [](GoodStep& s) { s.sequences[0].lane = 4; }},
    {"TwoSequencesPoolIntoOneLane", [](GoodStep& s) { s.sequences[0].lane = 3; }},
    {"OutputOfNoRow", [](GoodStep& s) { s.outputs.back().row = 4; }},
    {"NegativeOutput", [](GoodStep& s) { s.outputs[0].row = -1; }},
    {"OutputsOutOfOrder",
     [](GoodStep& s) {
       s.outputs[2].row = 3;
       s.outputs[3] = {.row = 2, .kind = OutputKind::vector};
     }},
    {"SampleWithALaneNotBegun", [](GoodStep& s) { s.outputs[0].lane = 2; }},
    {"SampleWithAPoolingLane", [](GoodStep& s) { s.outputs[0].lane = 3; }},
    {"SampleWithNoLane", [](GoodStep& s) { s.outputs[0].lane = -1; }},
    {"TwoSamplesWithOneLane", [](GoodStep& s) { s.outputs[1].lane = 0; }},
    {"MaskOfAnotherSize", [](GoodStep& s) { s.outputs[0].mask = s.outputs[0].mask.first(1); }},
    {"MaskOfAScore", [](GoodStep& s) { s.outputs[2].mask = s.mask; }},
    {"ScoreOfNoToken", [](GoodStep& s) { s.outputs[2].score = -1; }},
    {"ScoreOfAnUnknownToken", [](GoodStep& s) { s.outputs[2].score = 100; }},
    {"TooManyLikelyTokens", [](GoodStep& s) { s.outputs[0].top = kMaxTopTokens + 1; }},
    {"NegativeLikelyTokens", [](GoodStep& s) { s.outputs[0].top = -1; }},
    {"LikelyTokensOfAVector", [](GoodStep& s) { s.outputs[3].top = 1; }},
    {"PooledFromAnotherLane", [](GoodStep& s) { s.outputs[3].lane = 0; }},
    {"PooledWithoutALane",
     [](GoodStep& s) {
       s.sequences[1].lane = -1;
       s.outputs[3].lane = -1;
     }},
    {"PooledBeforeTheLastRow", [](GoodStep& s) { s.outputs[3].row = 2; }},
};

class StepRules : public testing::TestWithParam<Rule> {};

TEST_P(StepRules, IsChecked) {
  StepCheck check = make_check();
  GoodStep good;
  EXPECT_NO_THROW(check.check(good.step()));
  GoodStep bad;
  GetParam().break_it(bad);
  EXPECT_THROW(check.check(bad.step()), Error);
  EXPECT_NO_THROW(check.check(good.step())) << "what was refused leaves no trace";
}

INSTANTIATE_TEST_SUITE_P(All, StepRules, testing::ValuesIn(kRules), [](const auto& param) { return param.param.name; });

TEST(StepCheck, LanesAndSampledTokensAreRemembered) {
  StepCheck check = make_check();
  GoodStep first;
  check.check(first.step());
  check.lanes_started(first.step());
  check.taken(first.step());
  GoodStep second;
  second.lane_starts.clear();
  second.rows[0].token = ~1;
  EXPECT_NO_THROW(check.check(second.step()));
  second.rows[0].token = ~2;
  EXPECT_THROW(check.check(second.step()), Error) << "it was scored, not sampled";
  second.rows[0].token = ~4;
  EXPECT_THROW(check.check(second.step()), Error) << "there was no such output";
  second.rows[0].token = ~1;
  second.lane_starts = {{.lane = 0, .pooling = Pooling::last}};
  EXPECT_THROW(check.check(second.step()), Error) << "the lane begins anew, as another kind";
  second.lane_starts.clear();
  check.lost();
  EXPECT_THROW(check.check(second.step()), Error) << "the step before failed";
}

// Backends ask: one rule stands for all.
TEST(StepCheck, MalformedStepsAreErrorsOnEveryDevice) {
  for_each_device([](const DeviceUnderTest& device) {
    ChainFixture chain(device);
    const StepPlan good = StepPlan().add(0, 3, {});
    EXPECT_NO_THROW(chain.run(good));
    StepPlan bad = good;
    bad.rows[1].token = kVocabulary;
    EXPECT_THROW(chain.run(bad), Error);
    EXPECT_NO_THROW(chain.run(good)) << "an error leaves the backend usable";
  });
}

}  // namespace
}  // namespace quarrel::test
