// `qkv` and `attend` together, as a layer uses them: projections, head norms, rotation, paged cache, and what a row
// sees.
#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "ops/attention_case.h"
#include "quant/half.h"

namespace quarrel::test {
namespace {

constexpr std::int32_t kPositions = 40;
const std::vector<std::int32_t> kShuffled = {4, 0, 2};  // blocks of one sequence, out of order

Row rotated(Row head, const AttentionCase& c, double position) {
  const std::size_t pairs = c.frequencies.size();
  const Row in = head;
  for (std::size_t i = 0; c.rope && i < pairs; ++i) {
    const std::size_t a = c.kind == RopeKind::interleaved ? 2 * i : i;
    const std::size_t b = c.kind == RopeKind::interleaved ? 2 * i + 1 : i + pairs;
    head[a] =
        c.magnitude * (in[a] * std::cos(position * c.frequencies[i]) - in[b] * std::sin(position * c.frequencies[i]));
    head[b] =
        c.magnitude * (in[a] * std::sin(position * c.frequencies[i]) + in[b] * std::cos(position * c.frequencies[i]));
  }
  return head;
}

Row part(const Row& row, std::int32_t index, std::int32_t size) {
  return {row.begin() + index * size, row.begin() + (index + 1) * size};
}

double as_stored(double value, KvType type) {
  const auto rounded = static_cast<float>(value);
  return static_cast<double>(type == KvType::f32 ? rounded : f16_to_f32(f32_to_f16_saturating(rounded)));
}

// The projections of every position.
struct Projected {
  std::vector<Row> q, k, v;
};

Projected project(const AttentionCase& c, const AttentionData& data) {
  Projected all;
  for (std::size_t position = 0; position < kPositions; ++position) {
    const Row h = rms_norm(widen(data.x.row(position)), data.before, 1e-5);
    const auto with = [&](const std::vector<float>& bias) { return c.biases ? bias : std::vector<float>{}; };
    const Row q = matvec(data.q, h, with(data.q_bias));
    const Row k = matvec(data.k, h, with(data.k_bias));
    Row v = matvec(data.v, h, with(data.v_bias));
    const auto finish = [&](const Row& row, std::int32_t heads, const std::vector<float>& norm) {
      Row done;
      for (std::int32_t head = 0; head < heads; ++head) {
        Row one = part(row, head, c.key_dim);
        if (c.head_norms) one = rms_norm(one, norm, 1e-5);
        one = rotated(one, c, static_cast<double>(position));
        done.insert(done.end(), one.begin(), one.end());
      }
      return done;
    };
    all.q.push_back(finish(q, c.heads, data.q_norm));
    all.k.push_back(finish(k, c.kv_heads, data.k_norm));
    for (double& value : all.k.back()) value = as_stored(value, c.kv_type);
    for (double& value : v) value = as_stored(value, c.kv_type);
    all.v.push_back(v);
  }
  return all;
}

Doubles attention_of(const AttentionCase& c, const AttentionData& data) {
  const Projected all = project(c, data);
  Doubles out(kPositions, as_size(c.heads * c.value_dim));
  for (std::int32_t i = 0; i < kPositions; ++i) {
    for (std::int32_t head = 0; head < c.heads; ++head) {
      const std::int32_t kv_head = head / (c.heads / c.kv_heads);
      const Row query = part(all.q[as_size(i)], head, c.key_dim);
      double total = c.sinks ? std::exp(static_cast<double>(data.sinks[as_size(head)])) : 0.0;
      for (std::int32_t j = 0; j < (c.causal ? i + 1 : kPositions); ++j) {
        if (c.window > 0 && i - j >= c.window) continue;
        const Row key = part(all.k[as_size(j)], kv_head, c.key_dim);
        double score = 0.0;
        for (std::size_t d = 0; d < key.size(); ++d) score += query[d] * key[d];
        score *= kAttentionScale;
        if (c.soft_cap > 0.0) score = c.soft_cap * std::tanh(score / c.soft_cap);
        const double weight = std::exp(score);
        total += weight;
        const Row value = part(all.v[as_size(j)], kv_head, c.value_dim);
        for (std::size_t d = 0; d < value.size(); ++d) {
          out.at(as_size(i), as_size(head * c.value_dim) + d) += weight * value[d];
        }
      }
      for (std::int32_t d = 0; d < c.value_dim; ++d) out.at(as_size(i), as_size(head * c.value_dim + d)) /= total;
    }
  }
  return out;
}

void run_case(const AttentionCase& c) {
  const AttentionData data(c);
  const Doubles expected = attention_of(c, data);
  for_each_device([&](const DeviceUnderTest& device) {
    if (c.key_dim > device.largest_head) return;
    AttentionBench at_once(device, c, data);
    const PlannedSequence sequence{.tables = {kShuffled}, .length = kPositions};
    const Floats together = at_once.run(StepPlan().add(0, kPositions, sequence));
    expect_close(together, expected, attention_tolerance(c, data, device.epsilon));
    if (!c.causal || !device.same_bits) return;
    // In chunks, over what the steps before left in the cache: the same bits.
    AttentionBench chunked(device, c, data);
    for (std::int32_t first = 0; first < kPositions; first += 7) {
      const std::int32_t count = std::min(7, kPositions - first);
      const Floats chunk = chunked.run(StepPlan().add(first, count, {.tables = {kShuffled}}));
      for (std::int32_t r = 0; r < count; ++r) {
        ASSERT_EQ(chunk.row(as_size(r)), together.row(as_size(first + r))) << "position " << first + r;
      }
    }
  });
}

TEST(Attention, EqualHeads) { run_case({.heads = 3, .kv_heads = 3}); }
TEST(Attention, GroupedHeads) { run_case({.heads = 8, .kv_heads = 2}); }
TEST(Attention, OneHeadOfKeys) { run_case({.heads = 4, .kv_heads = 1}); }
TEST(Attention, RotationOfHalves) { run_case({.kind = RopeKind::half}); }
TEST(Attention, RotationWithMagnitude) { run_case({.kind = RopeKind::half, .magnitude = 1.3}); }
TEST(Attention, NoRotation) { run_case({.rope = false}); }
TEST(Attention, BiasesAndHeadNorms) { run_case({.head_norms = true, .biases = true}); }
TEST(Attention, SoftCap) { run_case({.soft_cap = 1.5}); }
TEST(Attention, Window) { run_case({.window = 11}); }
TEST(Attention, WindowOfOne) { run_case({.window = 1}); }
TEST(Attention, Sinks) { run_case({.sinks = true}); }
TEST(Attention, WindowAndSinksInHalf) { run_case({.window = 20, .sinks = true, .kv_type = KvType::f16}); }
TEST(Attention, HalfCache) { run_case({.kv_type = KvType::f16}); }
TEST(Attention, NotCausal) { run_case({.rope = false, .causal = false}); }
TEST(Attention, HeadsLargerThanAWorkerHasRoomFor) {
  run_case({.heads = 4, .kv_heads = 1, .key_dim = 700, .value_dim = 700, .k_scale = 0.01});
}

TEST(Attention, PositionsWithoutABlockAreAnError) {
  const AttentionCase c{.causal = false};
  const AttentionData data(c);
  for_each_device([&](const DeviceUnderTest& device) {
    AttentionBench fixture(device, c, data);
    const std::int32_t whole = 2 * fixture.fixture.backend().block_tokens();
    EXPECT_NO_THROW(fixture.run(StepPlan().add(0, 20, {.tables = {{4, 0}}, .length = whole})));
    EXPECT_THROW(fixture.run(StepPlan().add(0, 20, {.tables = {{4, 0}}, .length = whole + 1})), Error);
  });
}

TEST(Attention, LargeScoresStaySane) {
  // Scores in the hundreds: exp would overflow without the usual shift.
  const AttentionCase c{.k_scale = 60.0};
  const AttentionData data(c);
  for_each_device([&](const DeviceUnderTest& device) {
    AttentionBench fixture(device, c, data);
    const Floats out = fixture.run(StepPlan().add(0, kPositions, {.tables = {kShuffled}}));
    for (const float value : out.values) ASSERT_TRUE(std::isfinite(value));
  });
}

TEST(Attention, SequencesDoNotSeeEachOther) {
  const AttentionCase c;
  const AttentionData data(c);
  for_each_device([&](const DeviceUnderTest& device) {
    if (!device.same_bits) return;
    AttentionBench alone(device, c, data);
    const Floats first = alone.run(StepPlan().add(0, 20, {.tables = {{1, 3}}}));
    const Floats second = alone.run(StepPlan().add(0, 18, {.tables = {{5, 8}}}, 20));
    AttentionBench both(device, c, data);
    const Floats together = both.run(StepPlan().add(0, 20, {.tables = {{8, 2}}}).add(0, 18, {.tables = {{0, 7}}}, 20));
    for (std::size_t r = 0; r < 20; ++r) EXPECT_EQ(together.row(r), first.row(r));
    for (std::size_t r = 0; r < 18; ++r) EXPECT_EQ(together.row(20 + r), second.row(r));
  });
}

TEST(Attention, FreedBlocksBehindTheWindowAreNotTouched) {
  AttentionCase c{.window = 8};
  for_each_device([&](const DeviceUnderTest& device) {
    if (!device.same_bits) return;
    // The last position sees the third block alone, the one before it the end of the second, too.
    const std::int32_t block = device.device.make_backend({})->block_tokens();
    c.positions = 2 * block + c.window;
    const std::int32_t last = c.positions - 1;
    const AttentionData data(c);
    AttentionBench whole(device, c, data);
    const Floats all = whole.run(StepPlan().add(0, c.positions, {.tables = {kShuffled}}));
    AttentionBench freed(device, c, data);
    freed.run(StepPlan().add(0, last, {.tables = {kShuffled}}));
    const Floats row = freed.run(StepPlan().add(last, 1, {.tables = {{-1, -1, kShuffled[2]}}}));
    EXPECT_EQ(row.row(0), all.row(as_size(last)));
    // An error, not somebody else's memory.
    EXPECT_THROW(freed.run(StepPlan().add(last - 1, 1, {.tables = {{-1, -1, kShuffled[2]}}})), Error);
  });
}

TEST(Attention, HalfCacheSaturatesAndCounts) {
  const AttentionCase c{.rope = false, .kv_type = KvType::f16};
  AttentionData data(c);
  // Every other value of a key is far beyond 65504, the rest are zero.
  for (float& weight : data.k.values) weight = 0.0f;
  for (std::size_t o = 0; o < data.k.rows; o += 2) data.k.at(o, 0) = 1e6f;
  for_each_device([&](const DeviceUnderTest& device) {
    AttentionBench fixture(device, c, data);
    EXPECT_EQ(fixture.fixture.backend().counters().kv_saturated, 0u);
    const Floats out = fixture.run(StepPlan().add(0, 4, {.tables = {kShuffled}}));
    for (const float value : out.values) ASSERT_TRUE(std::isfinite(value));
    std::uint64_t beyond = 0;
    for (std::size_t r = 0; r < 4; ++r) {
      const Row h = rms_norm(widen(data.x.row(r)), data.before, 1e-5);
      beyond += std::abs(h[0] * 1e6) > 65504.0 ? data.k.rows / 2 : 0;
    }
    ASSERT_GT(beyond, 0u);
    EXPECT_EQ(fixture.fixture.backend().counters().kv_saturated, beyond);
  });
}

TEST(Attention, NanStaysNanInAHalfCache) {
  const AttentionCase c{.rope = false, .kv_type = KvType::f16};
  AttentionData data(c);
  data.x.at(1, 3) = std::numeric_limits<float>::quiet_NaN();
  for_each_device([&](const DeviceUnderTest& device) {
    AttentionBench fixture(device, c, data);
    const Floats out = fixture.run(StepPlan().add(0, 3, {.tables = {kShuffled}}));
    EXPECT_TRUE(std::isfinite(out.at(0, 0)));
    EXPECT_TRUE(std::isnan(out.at(1, 0)));
    EXPECT_TRUE(std::isnan(out.at(2, 0))) << "a later row that sees it";
    EXPECT_EQ(fixture.fixture.results().first_bad_layer, (std::vector<std::int32_t>{-1, 5, -1}));
    EXPECT_EQ(fixture.fixture.backend().counters().kv_saturated, 0u);
  });
}

}  // namespace
}  // namespace quarrel::test
