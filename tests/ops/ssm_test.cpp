// `ssm`, both versions, against a plain loop over time; state across steps, snapshots, several sequences.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <sstream>

#include "backend/create.h"
#include "base/error.h"
#include "ops/ssm_fixture.h"

namespace quarrel::test {
namespace {

class Ssm : public testing::TestWithParam<SsmCase> {
 protected:
  const SsmCase c_ = GetParam();
  const SsmData data_{c_};

  double tolerance(const DeviceUnderTest& device) const {
    const double epsilon = c_.projections == QuantType::f32 ? device.epsilon : device.quantised_epsilon;
    return epsilon * 10.0 * largest_row(data_.in);
  }
};

TEST_P(Ssm, MatchesTheLoop) {
  const Doubles expected = ssm_of(c_, data_, 0);
  for_each_device([&](const DeviceUnderTest& device) {
    SsmFixture fixture(device, c_, data_);
    expect_close(fixture.run(StepPlan().add(0, kTokens, {.state_out = 0})), expected, tolerance(device));
  });
}

TEST_P(Ssm, ChunksAndSingleTokensGiveTheSameBits) {
  for_each_device([&](const DeviceUnderTest& device) {
    if (!device.same_bits) return;
    SsmFixture fixture(device, c_, data_);
    const Floats at_once = fixture.run(StepPlan().add(0, kTokens, {.state_out = 0}));
    for (const std::int32_t chunk : {7, 2, 1}) {
      for (std::int32_t first = 0; first < kTokens; first += chunk) {
        const std::int32_t count = std::min(chunk, kTokens - first);
        // Back and forth between two slots, or in place.
        const std::int32_t from = chunk == 7 ? 1 + first / chunk % 2 : 1;
        const std::int32_t to = chunk == 7 ? 2 - first / chunk % 2 : 1;
        const Floats part =
            fixture.run(StepPlan().add(first, count, {.state_in = first == 0 ? -1 : from, .state_out = to}));
        for (std::int32_t r = 0; r < count; ++r) {
          ASSERT_EQ(part.row(as_size(r)), at_once.row(as_size(first + r))) << "chunk " << chunk;
        }
        if (first + count == kTokens) {
          EXPECT_EQ(fixture.slot(to), fixture.slot(0));
        }
      }
    }
  });
}

TEST_P(Ssm, SnapshotsAreTheStateAfterTheirRow) {
  for_each_device([&](const DeviceUnderTest& device) {
    if (!device.same_bits) return;
    SsmFixture fixture(device, c_, data_);
    fixture.run(StepPlan().add(0, 9, {.state_out = 0}));
    StepPlan plan = StepPlan().add(0, kTokens, {.state_out = 1});
    plan.snapshots = {{.row = 8, .slot = 2}, {.row = 0, .slot = 3}, {.row = 8, .slot = 4}, {.row = 22, .slot = 5}};
    const Floats all = fixture.run(plan);
    EXPECT_EQ(fixture.slot(2), fixture.slot(0));
    EXPECT_EQ(fixture.slot(4), fixture.slot(0));
    EXPECT_EQ(fixture.slot(5), fixture.slot(1));
    EXPECT_NE(fixture.slot(3), fixture.slot(0));
    // Going on from one gives what came then.
    const Floats rest = fixture.run(StepPlan().add(9, 5, {.state_in = 2, .state_out = 2}));
    for (std::size_t r = 0; r < 5; ++r) EXPECT_EQ(rest.row(r), all.row(9 + r));
  });
}

TEST_P(Ssm, SequencesKeepTheirOwnState) {
  const Doubles first = ssm_of(c_, data_, 0);
  const Doubles second = ssm_of(c_, data_, kTokens);
  for_each_device([&](const DeviceUnderTest& device) {
    SsmFixture fixture(device, c_, data_);
    for (std::int32_t t = 0; t < kTokens; t += 4) {
      const std::int32_t count = std::min(4, kTokens - t);
      const Floats out = fixture.run(StepPlan()
                                         .add(t, count, {.state_in = t == 0 ? -1 : 3, .state_out = 3})
                                         .add(t, count, {.state_in = t == 0 ? -1 : 4, .state_out = 4}, kTokens));
      for (std::int32_t r = 0; r < count; ++r) {
        expect_close(widen(out.row(as_size(r))), first.row(as_size(t + r)), tolerance(device));
        expect_close(widen(out.row(as_size(count + r))), second.row(as_size(t + r)), tolerance(device));
      }
    }
  });
}

TEST_P(Ssm, CopiedAndImportedSlotsGoOnWithTheSameBits) {
  for_each_device([&](const DeviceUnderTest& device) {
    SsmFixture fixture(device, c_, data_);
    Backend& backend = fixture.fixture.backend();
    fixture.run(StepPlan().add(0, 9, {.state_out = 0}));
    const std::vector<std::byte> saved = fixture.slot(0);
    backend.start_import_slot(2, saved);  // ordered with the step behind it
    StepPlan first = StepPlan().add(9, 5, {.state_in = 0, .state_out = 0});
    first.slot_copies = {{.from = 0, .to = 1}};
    const Floats original = fixture.run(first);
    for (const std::int32_t slot : {1, 2}) {
      const Floats again = fixture.run(StepPlan().add(9, 5, {.state_in = slot, .state_out = slot}));
      EXPECT_EQ(again.values, original.values);
      EXPECT_EQ(fixture.slot(slot), fixture.slot(0));
    }
    // A sequence whose state nobody keeps computes the same, and leaves the slot it started from alone.
    fixture.run(StepPlan().add(0, 9, {.state_out = 3}));
    const std::vector<std::byte> before = fixture.slot(3);
    EXPECT_EQ(fixture.run(StepPlan().add(9, 5, {.state_in = 3})).values, original.values);
    EXPECT_EQ(fixture.slot(3), before);
  });
}

TEST_P(Ssm, ThreadsDoNotMatter) {
  std::istringstream levels(available_isa_levels());
  for (std::string level; levels >> level;) {
    Floats first;
    std::vector<std::byte> first_slot;
    for (int threads = 1; threads <= 4; ++threads) {
      SCOPED_TRACE(testing::Message() << level << ", " << threads << " threads");
      const auto device = make_device({.backend = "cpu", .threads = threads, .isa = level});
      SsmFixture fixture({.device = *device, .epsilon = 0.0, .quantised_epsilon = 0.0}, c_, data_);
      const Floats out = fixture.run(StepPlan().add(0, kTokens, {.state_out = 0}).add(0, 5, {.state_out = 1}, kTokens));
      if (threads == 1) {
        first = out;
        first_slot = fixture.slot(0);
      }
      EXPECT_EQ(out.values, first.values);
      EXPECT_EQ(fixture.slot(0), first_slot);
    }
  }
}

// A sequence may read and write its slots in any combination: what it starts from is read before anything is written.
TEST_P(Ssm, ASnapshotMayReplaceTheSlotASequenceStartsFrom) {
  for_each_device([&](const DeviceUnderTest& device) {
    SsmFixture fixture(device, c_, data_);
    fixture.run(StepPlan().add(0, 9, {.state_out = 0}));
    fixture.run(StepPlan().add(0, 9, {.state_out = 1}));
    const Floats expected = fixture.run(StepPlan().add(9, 3, {.state_in = 0, .state_out = 2}));
    StepPlan plan = StepPlan().add(9, 3, {.state_in = 1, .state_out = 3});
    plan.snapshots = {{.row = 0, .slot = 1}};
    EXPECT_EQ(fixture.run(plan).values, expected.values);
    EXPECT_EQ(fixture.slot(3), fixture.slot(2));
  });
}

INSTANTIATE_TEST_SUITE_P(
    Versions, Ssm,
    testing::Values(SsmCase{.version = 1}, SsmCase{.version = 1, .inner = 37, .taps = 1, .part_norms = true},
                    SsmCase{.version = 1, .inner = 70, .state = 16, .taps = 2, .rank = 5, .bare = true},
                    SsmCase{.version = 1, .inner = 131, .state = 19, .taps = 7, .part_norms = true},
                    SsmCase{.version = 1, .inner = 64, .rank = 32, .projections = QuantType::q8_0}, SsmCase{},
                    SsmCase{.heads = 4, .groups = 1}, SsmCase{.heads = 24, .groups = 3},
                    SsmCase{.inner = 27, .taps = 7, .heads = 3, .groups = 1},
                    SsmCase{.inner = 27, .taps = 2, .heads = 3, .groups = 3},
                    SsmCase{.inner = 75, .state = 33, .taps = 1, .heads = 3, .groups = 1},
                    SsmCase{.inner = 48, .state = 16, .heads = 3, .groups = 3, .bare = true}),
    [](const auto& tested) { return tested.param.name(); });

TEST(SsmRefusals, WhatDoesNotFitIsAnError) {
  const SsmCase c{.version = 1, .part_norms = true};
  const SsmData data(c);
  for_each_device([&](const DeviceUnderTest& device) {
    SsmFixture fixture(device, c, data);
    const SsmOp good = fixture.op;
    const std::vector<void (*)(SsmOp&)> breaches = {
        [](SsmOp& op) { op.version = 3; },
        [](SsmOp& op) { op.conv_width = 0; },
        [](SsmOp& op) { op.state_layer = 2; },
        [](SsmOp& op) { op.state_layer = 0; },
        [](SsmOp& op) { op.state = 6; },
        [](SsmOp& op) { op.conv_width = 3; },
        [](SsmOp& op) { op.dt_rank = 2; },
        [](SsmOp& op) { op.a = {}; },
        [](SsmOp& op) { op.conv = op.a; },
        [](SsmOp& op) { op.conv_bias = op.a; },
        [](SsmOp& op) { op.d = op.a; },
        [](SsmOp& op) { op.dt_bias = op.a; },
        [](SsmOp& op) { op.norm.weight = op.a; },
        [](SsmOp& op) { op.dt_norm.weight = op.d; },
        [](SsmOp& op) { op.x_proj = op.dt_proj; },
    };
    for (std::size_t i = 0; i < breaches.size(); ++i) {
      fixture.op = good;
      breaches[i](fixture.op);
      EXPECT_THROW(fixture.run(StepPlan().add(0, 2, {.state_out = 0})), Error) << "breach " << i;
    }
  });
}

TEST(SsmBadNumbers, AreReportedWithTheirRowAndLayer) {
  for (const SsmCase& c : {SsmCase{.version = 1, .taps = 1, .part_norms = true}, SsmCase{.taps = 1}}) {
    SsmData data(c);
    data.in.at(2, c.version == 1 ? 1 : as_size(c.inner) + 1) = std::numeric_limits<float>::quiet_NaN();
    for_each_device([&](const DeviceUnderTest& device) {
      SsmFixture fixture(device, c, data);
      // Each row a text of its own.
      StepPlan plan;
      for (std::int32_t i = 0; i < 4; ++i) plan.add(0, 1, {.state_out = i}, i);
      fixture.run(plan);
      EXPECT_EQ(fixture.fixture.results().first_bad_layer, (std::vector<std::int32_t>{-1, -1, 3, -1}));
    });
  }
}

}  // namespace
}  // namespace quarrel::test
