// Long contexts against `reference`, and what must not be seen in the bits: how a text was cut into steps, how many
// threads there are, whether they share one row's positions, what lies in a block beyond what was stored.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <sstream>
#include <string>

#include "backend/create.h"
#include "ops/attention_case.h"

namespace quarrel::test {
namespace {

constexpr std::int32_t kMostRows = 160;  // of a step

std::vector<std::string> levels() {
  std::istringstream names(available_isa_levels());
  std::vector<std::string> all;
  for (std::string level; names >> level;) all.push_back(level);
  return all;
}

std::unique_ptr<Device> cpu(const std::string& level, int threads) {
  return make_device({.backend = "cpu", .threads = threads, .isa = level});
}

// ---- The same bits ----

// Rows from `first` to the end of the case, by steps of `chunk`, over a cache that holds what comes before.
Floats rows_from(Device& device, const AttentionCase& c, const AttentionData& data, std::int32_t first,
                 std::int32_t chunk) {
  AttentionBench fixture({.device = device, .epsilon = 0.0, .quantised_epsilon = 0.0}, c, data);
  const std::vector<std::int32_t> blocks = scattered_blocks(c.positions);
  for (std::int32_t done = 0; done < first; done += kMostRows) {
    fixture.store(StepPlan().add(done, std::min(kMostRows, first - done), {.tables = {blocks}}));
  }
  Floats all(as_size(c.positions - first), as_size(fixture.attend.out.width));
  for (std::int32_t at = first; at < c.positions; at += chunk) {
    const Floats rows = fixture.run(StepPlan().add(at, std::min(chunk, c.positions - at), {.tables = {blocks}}));
    std::ranges::copy(rows.values, all.values.begin() + static_cast<std::ptrdiff_t>(as_size(at - first) * all.columns));
  }
  return all;
}

// Steps of many sizes on one, two and three threads. The rows lie around two borders of partitions.
void expect_same_bits(AttentionCase c) {
  c.positions = 530;
  const AttentionData data(c);
  for (const std::string& level : levels()) {
    SCOPED_TRACE(level);
    const Floats alone = rows_from(*cpu(level, 1), c, data, 430, 1);
    for (const int threads : {1, 2, 3}) {
      const std::unique_ptr<Device> device = cpu(level, threads);
      for (const std::int32_t chunk : {7, 64, 100}) {
        ASSERT_EQ(rows_from(*device, c, data, 430, chunk).values, alone.values)
            << threads << " threads, steps of " << chunk;
      }
    }
    ASSERT_EQ(rows_from(*cpu(level, 2), c, data, 430, 1).values, alone.values) << "2 threads, row by row";
  }
}

TEST(AttentionBits, GroupsOfThree) { expect_same_bits({.heads = 6, .kv_heads = 2, .key_dim = 16, .value_dim = 16}); }
TEST(AttentionBits, OneKeyHeadInHalf) {
  expect_same_bits({.heads = 5, .kv_heads = 1, .key_dim = 24, .value_dim = 48, .kv_type = KvType::f16});
}
TEST(AttentionBits, OddSizesInHalf) {
  expect_same_bits({.heads = 2, .kv_heads = 2, .key_dim = 10, .value_dim = 22, .kv_type = KvType::f16});
}
TEST(AttentionBits, ManyHeadsCapped) {
  expect_same_bits({.heads = 26, .kv_heads = 1, .key_dim = 8, .value_dim = 32, .soft_cap = 2.0});
}
TEST(AttentionBits, WindowAndSinks) {
  expect_same_bits({.heads = 6,
                    .kv_heads = 2,
                    .key_dim = 16,
                    .value_dim = 16,
                    .window = 270,
                    .sinks = true,
                    .kv_type = KvType::f16});
}
TEST(AttentionBits, NarrowWindow) {
  expect_same_bits({.heads = 4, .kv_heads = 1, .key_dim = 8, .value_dim = 16, .window = 5});
}

TEST(AttentionBits, AnEncodersRowsDependOnNoThread) {
  AttentionCase c{.heads = 4, .kv_heads = 2, .key_dim = 16, .value_dim = 16, .causal = false};
  c.positions = 150;
  const AttentionData data(c);
  const std::vector<std::int32_t> blocks = scattered_blocks(c.positions);
  for (const std::string& level : levels()) {
    SCOPED_TRACE(level);
    const auto at_once = [&](int threads) {
      const std::unique_ptr<Device> device = cpu(level, threads);
      AttentionBench fixture({.device = *device, .epsilon = 0.0, .quantised_epsilon = 0.0}, c, data);
      return fixture.run(StepPlan().add(0, c.positions, {.tables = {blocks}, .length = c.positions})).values;
    };
    const std::vector<float> expected = at_once(1);
    EXPECT_EQ(at_once(2), expected);
    EXPECT_EQ(at_once(3), expected);
  }
}

TEST(AttentionBits, WhatABlockHeldBeforeIsNotSeen) {
  // The block's last owner left a NaN in every value; a new one writes the first positions only.
  AttentionCase c{.heads = 4, .kv_heads = 2, .key_dim = 8, .value_dim = 16};
  AttentionData data(c);
  AttentionData spoilt(c);
  for (float& value : spoilt.x.values) value = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::int32_t> blocks = scattered_blocks(c.positions);
  for_each_device([&](const DeviceUnderTest& device) {
    for (const KvType type : {KvType::f32, KvType::f16}) {
      c.kv_type = type;
      AttentionBench clean(device, c, data);
      const Floats expected = clean.run(StepPlan().add(0, 19, {.tables = {blocks}}));
      // Two texts in one table of inputs: the spoilt one behind the other.
      AttentionData both = data;
      both.x = Floats(80, data.x.columns);
      std::ranges::copy(data.x.values, both.x.values.begin());
      std::ranges::copy(spoilt.x.values, both.x.values.begin() + static_cast<std::ptrdiff_t>(data.x.values.size()));
      AttentionBench dirty(device, c, both);
      dirty.store(StepPlan().add(0, 40, {.tables = {blocks}}, 40));
      const Floats rows = dirty.run(StepPlan().add(0, 19, {.tables = {blocks}}));
      EXPECT_EQ(rows.values, expected.values);
    }
  });
}

// ---- Long contexts ----

// The last rows of a long text, on every level with one thread and with three, against `reference`.
void expect_as_reference(const AttentionCase& c, std::int32_t rows) {
  const AttentionData data(c);
  const std::int32_t first = c.positions - rows;
  const std::unique_ptr<Device> reference = make_device({.backend = "reference"});
  const Floats exact = rows_from(*reference, c, data, first, rows);
  Doubles expected(exact.rows, exact.columns);
  std::ranges::copy(exact.values, expected.values.begin());
  for (const std::string& level : levels()) {
    SCOPED_TRACE(level);
    const Floats alone = rows_from(*cpu(level, 1), c, data, first, rows);
    expect_close(alone, expected, attention_tolerance(c, data, 4e-6));
    EXPECT_EQ(rows_from(*cpu(level, 3), c, data, first, rows).values, alone.values) << "3 threads";
  }
}

AttentionCase long_case(std::int32_t positions) {
  return {.heads = 4,
          .kv_heads = 1,
          .key_dim = 16,
          .value_dim = 16,
          .kind = RopeKind::half,
          .width = 8,
          .positions = positions,
          .frequencies = {1.0, 0.316, 0.1, 0.0316, 0.01, 0.00316, 0.001, 0.000316}};
}

TEST(AttentionLong, FourThousand) { expect_as_reference(long_case(4096), 5); }

TEST(AttentionLong, EightThousandInHalf) {
  AttentionCase c = long_case(8192 - 3);
  c.kv_type = KvType::f16;
  expect_as_reference(c, 20);
}

TEST(AttentionLong, WindowOfOneThousand) {
  AttentionCase c = long_case(8192);
  c.window = 1000;
  c.sinks = true;
  expect_as_reference(c, 20);
}

TEST(AttentionLong, ThirtyTwoThousand) {
  AttentionCase c = long_case(32768);
  c.kv_type = KvType::f16;
  // Many sums a partition: they are joined in several rounds.
  c.heads = 8;
  c.value_dim = 64;
  expect_as_reference(c, 6);
}

TEST(AttentionLong, ThirtyTwoThousandWithAWindow) {
  AttentionCase c = long_case(32768);
  c.kv_type = KvType::f16;
  c.window = 4096;
  expect_as_reference(c, 5);
}

TEST(AttentionLong, ThirtyTwoThousandStretched) {
  // As YaRN does it: slow pairs turn eight times slower, and a magnitude.
  AttentionCase c = long_case(32768);
  for (std::size_t pair = 3; pair < c.frequencies.size(); ++pair) c.frequencies[pair] /= pair < 5 ? 3.0 : 8.0;
  c.magnitude = 1.208;
  expect_as_reference(c, 5);
}

}  // namespace
}  // namespace quarrel::test
