// The ends of a model: embeddings, norms, bad numbers, the head, sampling, pooling.
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <span>

#include "base/error.h"
#include "ops/harness.h"

namespace quarrel::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(Norm, RmsAndLayer) {
  for_each_device([](const DeviceUnderTest& device) {
    OpFixture fixture(device);
    Floats x = random_matrix(4, 48, 1, 3.0, 1.0);
    for (std::size_t i = 0; i < 48; ++i) x.at(3, i) = i % 2 == 0 ? 1e-4f : -1e-4f;  // the epsilon matters
    const std::vector<float> weight = random_matrix(1, 48, 2, 0.5, 1.0).values;
    const std::vector<float> bias = random_matrix(1, 48, 3).values;
    const Activation in = fixture.input(x);
    const Activation rms_out = fixture.activation(48);
    const Activation layer_out = fixture.activation(48);
    const Weight w = fixture.vector(weight);
    const Weight b = fixture.vector(bias);
    const NormOp rms{.in = in, .out = rms_out, .norm = {.kind = NormKind::rms, .epsilon = 1e-6f, .weight = w}};
    const NormOp layer{
        .in = in, .out = layer_out, .norm = {.kind = NormKind::layer, .epsilon = 1e-6f, .weight = w, .bias = b}};
    Doubles rms_expected(4, 48);
    Doubles layer_expected(4, 48);
    for (std::size_t r = 0; r < 4; ++r) {
      std::ranges::copy(rms_norm(widen(x.row(r)), weight, 1e-6f), &rms_expected.at(r, 0));
      std::ranges::copy(layer_norm(widen(x.row(r)), weight, bias, 1e-6f), &layer_expected.at(r, 0));
    }
    const StepPlan plan = StepPlan().add(0, 4, {});
    expect_close(fixture.run(plan, rms_out, [&](Backend& be) { be.norm(rms); }), rms_expected,
                 fixture.epsilon() * 10.0);
    expect_close(fixture.run(plan, layer_out, [&](Backend& be) { be.norm(layer); }), layer_expected,
                 fixture.epsilon() * 10.0);
    EXPECT_EQ(fixture.results().first_bad_layer, std::vector<std::int32_t>(4, -1));
  });
}

TEST(Norm, FlagsRowsWithBadNumbersAndNoOthers) {
  for_each_device([](const DeviceUnderTest& device) {
    OpFixture fixture(device);
    Floats x = random_matrix(5, 32, 4);
    x.at(1, 7) = kNan;
    x.at(3, 31) = -kInf;
    const Activation in = fixture.input(x);
    const Activation good = fixture.input(random_matrix(5, 32, 5));
    const Activation out = fixture.activation(32);
    const Weight w = fixture.vector(random_matrix(1, 32, 6).values);
    const Norm norm{.kind = NormKind::rms, .epsilon = 1e-6f, .weight = w};
    const Weight matrix = fixture.matrix(random_matrix(32, 32, 7));
    const StepPlan plan = StepPlan().add(0, 5, {});
    const std::vector<std::int32_t> clean(5, -1);

    fixture.run(plan, [&](Backend& b) { b.norm({.layer = 3, .in = good, .out = out, .norm = norm}); });
    EXPECT_EQ(fixture.results().first_bad_layer, clean);
    // The first layer stays.
    fixture.run(plan, [&](Backend& b) {
      b.norm({.layer = 4, .in = in, .out = out, .norm = norm});
      b.norm({.layer = 5, .in = in, .out = out, .norm = norm});
    });
    EXPECT_EQ(fixture.results().first_bad_layer, (std::vector<std::int32_t>{-1, 4, -1, 4, -1}));
    // Norms inside other ops flag, too: before a product, on a branch, after the residual.
    fixture.run(plan,
                [&](Backend& b) { b.linear({.layer = 6, .in = in, .before = norm, .weight = matrix, .out = out}); });
    EXPECT_EQ(fixture.results().first_bad_layer, (std::vector<std::int32_t>{-1, 6, -1, 6, -1}));
    fixture.run(plan, [&](Backend& b) {
      b.linear({.layer = 7, .in = in, .weight = matrix, .end = {.x = good, .branch = norm}});
    });
    EXPECT_EQ(fixture.results().first_bad_layer, (std::vector<std::int32_t>{-1, 7, -1, 7, -1}));
    fixture.run(plan, [&](Backend& b) {
      b.linear({.layer = 8, .in = good, .weight = matrix, .end = {.x = in, .after = norm}});
    });
    EXPECT_EQ(fixture.results().first_bad_layer, (std::vector<std::int32_t>{-1, 8, -1, 8, -1}));
    fixture.run(plan, [&](Backend& b) {
      b.glu({.layer = 9, .x = in, .before = norm, .gate = matrix, .up = matrix, .out = out});
    });
    EXPECT_EQ(fixture.results().first_bad_layer, (std::vector<std::int32_t>{-1, 9, -1, 9, -1}));
    fixture.run(plan, [&](Backend& b) { b.norm({.layer = 3, .in = good, .out = out, .norm = norm}); });
    EXPECT_EQ(fixture.results().first_bad_layer, clean) << "flags are of their own step";
  });
}

// Rows that a device adds to fill a bucket are of token 0. Here its numbers are bad, and nobody asked for it.
TEST(Norm, PaddingFlagsNothing) {
  for_each_device([](const DeviceUnderTest& device) {
    OpFixture fixture(device);
    Floats x = random_matrix(6, 32, 25);
    for (std::size_t i = 0; i < 32; ++i) x.at(0, i) = kNan;
    const Activation in = fixture.input(x);
    const Activation out = fixture.activation(32);
    const Norm norm{.kind = NormKind::rms, .epsilon = 1e-6f, .weight = fixture.vector(random_matrix(1, 32, 26).values)};
    StepPlan plan = StepPlan().add(0, 1, {}, 1).add(0, 2, {}, 2).add(0, 2, {}, 4);
    plan.generated_rows = 3;  // and a bucket of 4; 2 prompt rows fill theirs
    const Floats normed =
        fixture.run(plan, out, [&](Backend& b) { b.norm({.layer = 3, .in = in, .out = out, .norm = norm}); });
    EXPECT_EQ(fixture.results().first_bad_layer, std::vector<std::int32_t>(5, -1));
    for (const float value : normed.values) EXPECT_TRUE(std::isfinite(value));
    plan.rows[3].token = 0;
    fixture.run(plan, out, [&](Backend& b) { b.norm({.layer = 3, .in = in, .out = out, .norm = norm}); });
    EXPECT_EQ(fixture.results().first_bad_layer, (std::vector<std::int32_t>{-1, -1, -1, 3, -1})) << "this one was";
  });
}

TEST(Embed, ScalePositionsTypesAndNorm) {
  for_each_device([](const DeviceUnderTest& device) {
    for (int parts = 0; parts < 8; ++parts) {
      SCOPED_TRACE(parts);
      OpFixture fixture(device);
      const Floats table = random_matrix(9, 32, 8);
      const Floats positions = random_matrix(12, 32, 9);
      const Floats types = random_matrix(2, 32, 10);
      const std::vector<float> weight = random_matrix(1, 32, 11, 0.5, 1.0).values;
      const std::vector<float> bias = random_matrix(1, 32, 12).values;
      fixture.input(table);  // makes room for nine tokens
      EmbedOp op{.out = fixture.activation(32), .table = fixture.matrix(table, WeightRole::embedding), .scale = 5.5f};
      if ((parts & 1) != 0) op.positions = fixture.matrix(positions, WeightRole::embedding);
      if ((parts & 2) != 0) op.types = fixture.matrix(types, WeightRole::embedding);
      if ((parts & 4) != 0) {
        op.norm = {
            .kind = NormKind::layer, .epsilon = 1e-5f, .weight = fixture.vector(weight), .bias = fixture.vector(bias)};
      }
      StepPlan plan;
      plan.sequences.push_back({.length = 12});
      plan.rows = {{.sequence = 0, .position = 3, .token = 8}, {.sequence = 0, .position = 11, .token = 0}};
      Doubles expected(2, 32);
      for (std::size_t r = 0; r < 2; ++r) {
        Row row = widen(table.row(as_size(plan.rows[r].token)));
        for (std::size_t i = 0; i < 32; ++i) {
          row[i] *= 5.5;
          if ((parts & 1) != 0) row[i] += static_cast<double>(positions.at(as_size(plan.rows[r].position), i));
          if ((parts & 2) != 0) row[i] += static_cast<double>(types.at(0, i));
        }
        if ((parts & 4) != 0) row = layer_norm(row, weight, bias, 1e-5);
        std::ranges::copy(row, &expected.at(r, 0));
      }
      expect_close(fixture.run(plan, op.out, [&](Backend& b) { b.embed(op); }), expected, fixture.epsilon() * 20.0);
    }
  });
}

constexpr std::int32_t kLanes = 8;

Row taken(std::span<const float> values, std::size_t width, std::size_t row) {
  const std::span<const float> part = values.subspan(row * width, width);
  return {part.begin(), part.end()};
}

// Enough outputs for three slices, among rows that want nothing.
struct HeadCase {
  Floats x = random_matrix(150, 32, 13);
  Floats weight = random_matrix(150, 32, 14);
  std::vector<float> bias = random_matrix(1, 150, 15).values;
  std::vector<float> norm = random_matrix(1, 32, 16, 0.5, 1.0).values;
  std::vector<std::int32_t> wanted;
  HeadCase() {
    for (std::int32_t r = 0; r < 150; ++r) {
      if (r % 10 != 3) wanted.push_back(r);
    }
  }
  Row normed(std::int32_t row) const { return rms_norm(widen(x.row(as_size(row))), norm, 1e-5); }
  Row logits(std::int32_t row) const {
    Row y = matvec(weight, normed(row), bias);
    for (double& value : y) value = 4.0 * std::tanh(1.5 * value / 4.0);
    return y;
  }
};

TEST(Head, LogitsEmbeddingsAndSamplesBySlices) {
  for_each_device([](const DeviceUnderTest& device) {
    const HeadCase c;
    OpFixture fixture(device);
    const Activation x = fixture.input(c.x);
    const Activation selected = fixture.activation(32, RowSet::outputs);
    HeadOp head{.layer = 9,
                .in = selected,
                .norm = {.kind = NormKind::rms, .epsilon = 1e-5f, .weight = fixture.vector(c.norm)},
                .weight = fixture.matrix(c.weight),
                .bias = fixture.vector(c.bias),
                .scale = 1.5f,
                .soft_cap = 4.0f};
    StepPlan plan = StepPlan().add(0, 150, {});
    constexpr std::array kKinds = {OutputKind::sample, OutputKind::score, OutputKind::vector, OutputKind::logits};
    const SamplingParams greedy;
    std::size_t sampled = 0;
    for (std::size_t o = 0; o < c.wanted.size(); ++o) {
      StepOutput output{.row = c.wanted[o], .kind = kKinds[o % 4], .logits = o % 3 == 0};
      if (output.kind == OutputKind::sample && sampled == kLanes) output.kind = OutputKind::score;
      if (output.kind == OutputKind::sample) output.lane = static_cast<std::int32_t>(sampled++);
      if (output.kind == OutputKind::score) output.score = 17;
      if (o % 2 == 0 && o % 4 != 2) output.top = 3;
      plan.outputs.push_back(output);
    }
    for (std::int32_t lane = 0; lane < kLanes; ++lane) plan.lane_starts.push_back({.lane = lane, .sampling = &greedy});
    const StepResults results = fixture.run(plan, [&](Backend& b) {
      b.select_rows({.in = x, .out = selected});
      for (head.slice = 0; head.slice < 3; ++head.slice) {
        b.head(head);
        b.sample({.slice = head.slice, .vocabulary = 150});
      }
    });
    const double tolerance = fixture.epsilon() * 10.0 * largest_row(c.weight);
    ASSERT_EQ(results.samples.size(), c.wanted.size());
    std::size_t logits_seen = 0;
    std::size_t vectors_seen = 0;
    for (std::size_t o = 0; o < c.wanted.size(); ++o) {
      const Row expected = c.logits(c.wanted[o]);
      const StepOutput& output = plan.outputs[o];
      if (output.logits) expect_close(taken(results.logits, 150, logits_seen++), expected, tolerance);
      if (output.kind == OutputKind::vector) {
        expect_close(taken(results.vectors, 32, vectors_seen++), c.normed(c.wanted[o]), fixture.epsilon() * 10.0);
      }
      const SampleResult& sample = results.samples[o];
      double sum = 0.0;
      for (const double value : expected) sum += std::exp(value);
      const auto best = std::max_element(expected.begin(), expected.end()) - expected.begin();
      if (output.kind == OutputKind::sample) {
        EXPECT_EQ(sample.outcome, SampleOutcome::token);
        EXPECT_EQ(sample.id, best);
        EXPECT_NEAR(sample.logprob, expected[as_size(best)] - std::log(sum), 2.0 * tolerance);
      } else if (output.kind == OutputKind::score) {
        EXPECT_EQ(sample.outcome, SampleOutcome::token);
        EXPECT_EQ(sample.id, 17);
        EXPECT_NEAR(sample.logprob, expected[17] - std::log(sum), 2.0 * tolerance);
      } else {
        EXPECT_EQ(sample.outcome, SampleOutcome::none);
        EXPECT_EQ(sample.id, -1);
      }
      ASSERT_EQ(sample.top.size(), as_size(output.top));
      if (output.top > 0) {
        EXPECT_EQ(sample.top[0].id, best);
      }
    }
    EXPECT_EQ(results.logits.size(), logits_seen * 150);
    EXPECT_EQ(results.vectors.size(), vectors_seen * 32);
    EXPECT_GE(results.micros, 0);
  });
}

TEST(Head, BadRowIsFlaggedWhereItCameFromAndGivesNoToken) {
  for_each_device([](const DeviceUnderTest& device) {
    OpFixture fixture(device);
    Floats x = random_matrix(3, 32, 17);
    x.at(2, 0) = kNan;
    const Activation in = fixture.input(x);
    const Activation selected = fixture.activation(32, RowSet::outputs);
    const Norm norm{.kind = NormKind::rms, .epsilon = 1e-5f, .weight = fixture.vector(random_matrix(1, 32, 18).values)};
    const Weight weight = fixture.matrix(random_matrix(3, 32, 19));
    StepPlan plan = StepPlan().add(0, 3, {});
    const SamplingParams greedy;
    plan.lane_starts = {{.lane = 4, .sampling = &greedy}, {.lane = 0, .sampling = &greedy}};
    plan.outputs = {{.row = 1, .lane = 0}, {.row = 2, .lane = 4}};
    const StepResults results = fixture.run(plan, [&](Backend& b) {
      b.select_rows({.in = in, .out = selected});
      b.head({.layer = 30, .in = selected, .norm = norm, .weight = weight});
      b.sample({.slice = 0, .vocabulary = 3});
    });
    EXPECT_EQ(results.first_bad_layer, (std::vector<std::int32_t>{-1, -1, 30}));
    EXPECT_GE(results.samples[0].id, 0);
    EXPECT_EQ(results.samples[0].outcome, SampleOutcome::token);
    EXPECT_EQ(results.samples[1].id, -1);
    EXPECT_EQ(results.samples[1].outcome, SampleOutcome::bad_logits);
  });
}

TEST(Pool, OneVectorASequence) {
  for_each_device([](const DeviceUnderTest& device) {
    const Floats x = random_matrix(7, 32, 20);
    for (const Pooling pooling : {Pooling::mean, Pooling::cls, Pooling::last}) {
      SCOPED_TRACE(static_cast<int>(pooling));
      OpFixture fixture(device);
      const Activation in = fixture.input(x);
      StepPlan plan = StepPlan().add(0, 3, {.lane = 2}).add(0, 4, {.lane = 1}, 3);
      plan.lane_starts = {{.lane = 1, .pooling = pooling}, {.lane = 2, .pooling = pooling}};
      plan.outputs = {{.row = 2, .kind = OutputKind::pooled, .lane = 2},
                      {.row = 6, .kind = OutputKind::pooled, .lane = 1}};
      const StepResults results = fixture.run(plan, [&](Backend& b) { b.pool({.in = in}); });
      ASSERT_EQ(results.vectors.size(), 2u * 32);
      for (std::size_t s = 0; s < 2; ++s) {
        const std::size_t first = s == 0 ? 0 : 3;
        const std::size_t last = s == 0 ? 2 : 6;
        Row expected(32, 0.0);
        for (std::size_t i = 0; i < 32; ++i) {
          if (pooling == Pooling::cls) expected[i] = static_cast<double>(x.at(first, i));
          if (pooling == Pooling::last) expected[i] = static_cast<double>(x.at(last, i));
          for (std::size_t r = first; pooling == Pooling::mean && r <= last; ++r) {
            expected[i] += static_cast<double>(x.at(r, i)) / static_cast<double>(last - first + 1);
          }
        }
        expect_close(taken(results.vectors, 32, s), expected, fixture.epsilon() * 2.0);
      }
    }
  });
}

// A text in pieces, among others, gives the bits that it gives whole.
TEST(Pool, ATextMayComeInSteps) {
  for_each_device([](const DeviceUnderTest& device) {
    const Floats x = random_matrix(40, 32, 21);
    const std::vector<float> weight = random_matrix(1, 32, 22, 0.5, 1.0).values;
    for (const Pooling pooling : {Pooling::mean, Pooling::cls, Pooling::last, Pooling::rank}) {
      SCOPED_TRACE(static_cast<int>(pooling));
      OpFixture fixture(device);
      PoolOp op{.in = fixture.input(x)};
      op.norm = {.kind = NormKind::rms, .epsilon = 1e-5f, .weight = fixture.vector(weight)};
      op.score = fixture.vector(random_matrix(1, 64, 23).values);
      op.score.rows = 2;
      op.score.columns = 32;
      const auto pool = [&](Backend& b) { b.pool(op); };
      StepPlan whole = StepPlan().add(0, 23, {.lane = 3});
      whole.lane_starts = {{.lane = 3, .pooling = pooling}};
      whole.outputs = {{.row = 22, .kind = OutputKind::pooled, .lane = 3}};
      const StepResults expected = fixture.run(whole, pool);
      const std::vector<float> at_once(expected.vectors.begin(), expected.vectors.end());
      for (const std::int32_t cut : {1, 7, 22}) {
        StepPlan first = StepPlan().add(0, cut, {.lane = 0});
        first.lane_starts = {{.lane = 0, .pooling = pooling}};
        EXPECT_TRUE(fixture.run(first, pool).vectors.empty());
        StepPlan second = StepPlan().add(0, 5, {.lane = 5}, 20).add(cut, 23 - cut, {.lane = 0});
        second.lane_starts = {{.lane = 5, .pooling = pooling}};
        second.outputs = {{.row = 5 + 22 - cut, .kind = OutputKind::pooled, .lane = 0}};
        const StepResults results = fixture.run(second, pool);
        EXPECT_EQ(std::vector(results.vectors.begin(), results.vectors.end()), at_once);
      }
    }
  });
}

TEST(Pool, RankingNeedsItsWeights) {
  for_each_device([](const DeviceUnderTest& device) {
    OpFixture fixture(device);
    const Activation in = fixture.input(random_matrix(3, 32, 24));
    StepPlan plan = StepPlan().add(0, 3, {.lane = 0});
    plan.lane_starts = {{.lane = 0, .pooling = Pooling::rank}};
    plan.outputs = {{.row = 2, .kind = OutputKind::pooled, .lane = 0}};
    EXPECT_THROW(fixture.run(plan, [&](Backend& b) { b.pool({.in = in}); }), Error);
  });
}

}  // namespace
}  // namespace quarrel::test
