#include "sched/row_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "sched/driver.h"

namespace quarrel {
namespace {

TEST(RowBudget, WithoutDecodeRowsPromptsHaveTheWholeStep) {
  const RowBudget budget(4, 0);
  EXPECT_EQ(budget.prefill_rows(0, 512), 512);
  EXPECT_EQ(budget.prefill_rows(0, 0), 0);
}

TEST(RowBudget, DecodingIsMeasuredBeforePromptsJoin) {
  RowBudget budget(4, 0);
  EXPECT_EQ(budget.prefill_rows(8, 500), 0);
  budget.note(8, 0, 10'000);
  EXPECT_EQ(budget.decode_nanos(8), 10'000'000);
  EXPECT_EQ(budget.decode_nanos(1), 0);
  EXPECT_EQ(budget.prefill_rows(8, 500), 2);  // nothing is known of a row: it is taken for a whole step
}

TEST(RowBudget, FollowsTheMicrosecondsOfSteps) {
  RowBudget budget(4, 0);
  budget.note(8, 0, 10'000);
  for (int i = 0; i < 60; ++i) {
    const std::int32_t rows = budget.prefill_rows(8, 500);
    budget.note(8, rows, 10'000 + 100 * rows);
  }
  // Three times ten milliseconds: 200 rows of a tenth beside the decode rows.
  EXPECT_NEAR(budget.prefill_rows(8, 500), 200, 30);
  for (int i = 0; i < 20; ++i) {
    const std::int32_t rows = std::max(1, budget.prefill_rows(8, 500));
    budget.note(8, rows, 10'000 + 1000 * rows);
  }
  EXPECT_LE(std::max(1, budget.prefill_rows(8, 500)), 20);
}

// What fits is not cut down to the power of two below it.
TEST(RowBudget, CheapRowsFillTheStep) {
  RowBudget budget(4, 0);
  budget.note(8, 0, 10'000);
  for (int i = 0; i < 60; ++i) {
    const std::int32_t rows = budget.prefill_rows(8, 500);
    budget.note(8, rows, 10'000 + 10 * rows);
  }
  EXPECT_EQ(budget.prefill_rows(8, 500), 500);
}

TEST(RowBudget, GrowsFromWhatHasGoneWell) {
  RowBudget budget(4, 0);
  budget.note(8, 0, 10'000);
  budget.note(0, 512, 512);  // a microsecond a row: so many more would fit, if it holds
  std::int32_t rows = budget.prefill_rows(8, 500);
  EXPECT_EQ(rows, 16);
  budget.note(8, rows, 10'016);
  EXPECT_EQ(budget.prefill_rows(8, 500), 32);
  budget.note(8, 32, 100'000);  // that was too much
  EXPECT_LE(budget.prefill_rows(8, 500), 32);
}

TEST(RowBudget, OneRowIsAlwaysAllowed) {
  RowBudget budget(4, 0);
  budget.note(1, 0, 1);
  budget.note(1, 1, 1'000'000);
  EXPECT_EQ(budget.prefill_rows(1, 100), 2);  // perhaps two cost no more
  budget.note(1, 2, 2'000'000);               // they do
  EXPECT_EQ(budget.prefill_rows(1, 100), 1);
}

// Where the first row costs as much as thirty, fewer rows are no way out: neither small steps for ever nor long ones.
TEST(RowBudget, APriceThatDoesNotDependOnTheRowsIsNotPaidForOneRow) {
  for (const std::int64_t fixed : {1'000, 6'000, 9'000, 12'000, 60'000}) {
    SCOPED_TRACE(fixed);
    const auto cost = [&](std::int32_t rows) { return rows == 0 ? 0 : fixed + 200 * rows; };
    RowBudget budget(4, 0);
    budget.note(0, 512, 3'000 + cost(512));
    budget.note(3, 0, 4'000);
    std::int64_t rows_sum = 0;
    std::int64_t longest = 0;
    for (int i = 0; i < 2000; ++i) {
      const std::int32_t rows = budget.prefill_rows(3, 512);
      budget.note(3, rows, 4'000 + cost(rows));
      if (i < 100) continue;
      rows_sum += rows;
      longest = std::max(longest, 4'000 + cost(rows));
    }
    EXPECT_GT(rows_sum, 1900 * 4);
    EXPECT_LE(longest, std::max<std::int64_t>(4 * 4'000, 4'000 + 2 * cost(1)));
  }
}

// Decoding of a small model is quick; a gap that nobody notices is long beside it, and prompts may use it.
TEST(RowBudget, AGapThatNobodyNoticesIsUsed) {
  RowBudget budget(4, 50'000);
  budget.note(1, 0, 3'000);
  std::int64_t longest = 0;
  for (int i = 0; i < 60; ++i) {
    const std::int32_t rows = budget.prefill_rows(1, 500);
    const std::int64_t micros = 3'000 + 10'000 + 300 * rows;
    budget.note(1, rows, micros);
    longest = std::max(longest, micros);
  }
  EXPECT_NEAR(budget.prefill_rows(1, 500), 80, 15);  // 37.5 milliseconds less three, less ten
  EXPECT_LE(longest, 50'000);
  // Where decoding is slow, its own time counts.
  RowBudget slow(4, 50'000);
  slow.note(1, 0, 100'000);
  for (int i = 0; i < 60; ++i) {
    const std::int32_t rows = slow.prefill_rows(1, 500);
    slow.note(1, rows, 100'000 + 1'000 * rows);
  }
  EXPECT_NEAR(slow.prefill_rows(1, 500), 200, 30);
}

// The first step of all reads the weights from the disk: what its few rows took is not what few rows cost.
TEST(RowBudget, TheFirstStepIsNotTakenForAPrice) {
  for (const std::int64_t unnoticed : {0, 50'000}) {
    SCOPED_TRACE(unnoticed);
    RowBudget budget(4, unnoticed);
    budget.note(0, 2, 55'000);
    budget.note(1, 0, 3'400);
    budget.note(0, 64, 29'000);
    std::int64_t rows_sum = 0;
    for (int i = 0; i < 200; ++i) {
      const std::int32_t rows = budget.prefill_rows(1, 448);
      budget.note(1, rows, 3'400 + (rows == 0 ? 0 : 10'000 + 300 * rows));
      rows_sum += rows;
    }
    EXPECT_GT(rows_sum, 200 * 10);
  }
}

// A single row that happened to take long says nothing of what many rows cost.
TEST(RowBudget, AHiccupIsNotTakenForAPrice) {
  RowBudget budget(4, 0);
  budget.note(8, 0, 10'000);
  const auto steps = [&](int count) {
    std::int64_t longest = 0;
    for (int i = 0; i < count; ++i) {
      const std::int32_t rows = budget.prefill_rows(8, 500);
      const std::int64_t micros = 10'000 + (rows == 0 ? 0 : 2'000 + 100 * rows);
      budget.note(8, rows, micros);
      longest = std::max(longest, micros);
    }
    return longest;
  };
  steps(100);
  for (int i = 0; i < 3; ++i) budget.note(8, 1, 300'000);
  EXPECT_LE(steps(300), 40'000);
  EXPECT_GE(budget.prefill_rows(8, 500), 100);
}

// A machine that is slow for a while is not taken for slow ever after.
TEST(RowBudget, RecoversFromASlowMoment) {
  RowBudget budget(4, 0);
  budget.note(8, 0, 10'000);
  const auto steps = [&](int count, std::int64_t row) {
    for (int i = 0; i < count; ++i) {
      const std::int32_t rows = budget.prefill_rows(8, 500);
      budget.note(8, rows, 10'000 + row * rows);
    }
  };
  steps(100, 100);
  steps(30, 5'000);
  EXPECT_LE(budget.prefill_rows(8, 500), 8);
  steps(1500, 100);
  EXPECT_GE(budget.prefill_rows(8, 500), 100);
}

// Others on the device have steps of ten milliseconds: three of them are the most, three quarters of that the aim.
TEST(RowBudget, APaceLimitsStepsWithoutDecodeRows) {
  for (const std::int64_t row : {10, 100, 1'000, 100'000}) {
    SCOPED_TRACE(row);
    RowBudget budget(4, 0);
    EXPECT_EQ(budget.paced_rows(10'000, 0, 500), 3);  // nothing is known of a row
    EXPECT_EQ(budget.paced_rows(10'000, 0, 2), 2);
    EXPECT_EQ(budget.paced_rows(10'000, 0, 0), 0);
    std::int64_t longest = 0;
    for (int i = 0; i < 200; ++i) {
      const std::int32_t rows = budget.paced_rows(10'000, 0, 500);
      ASSERT_GE(rows, 1);
      if (i > 0) longest = std::max(longest, row * rows);
      budget.note(0, rows, row * rows);
    }
    const std::int64_t rows = budget.paced_rows(10'000, 0, 500);
    const std::int64_t fit = std::clamp<std::int64_t>(22'500 / row, 1, 500);
    EXPECT_GE(rows, fit * 8 / 10);
    EXPECT_LE(longest, std::max<std::int64_t>(30'000, 2 * row));
  }
}

TEST(RowBudget, APaceCountsOnesOwnDecodeRows) {
  RowBudget budget(4, 0);
  budget.note(8, 0, 10'000);
  for (int i = 0; i < 100; ++i) {
    const std::int32_t rows = budget.paced_rows(10'000, 8, 500);
    budget.note(8, rows, 10'000 + 100 * rows);
  }
  EXPECT_NEAR(budget.paced_rows(10'000, 8, 500), 125, 15);  // 22.5 milliseconds less ten
  EXPECT_GE(budget.paced_rows(1, 8, 500), 1);               // there is nothing left: a row all the same
  EXPECT_LE(budget.paced_rows(1, 8, 500), 2);
  EXPECT_GE(budget.paced_rows(std::numeric_limits<std::int64_t>::max(), 8, 500), 200);
}

// A price that does not depend on the rows, and is more than others bear, is paid for more than one row.
TEST(RowBudget, APaceThatCannotBeKeptIsNotKeptForOneRow) {
  RowBudget budget(4, 0);
  std::int64_t sum = 0;
  std::int64_t longest = 0;
  for (int i = 0; i < 500; ++i) {
    const std::int32_t rows = budget.paced_rows(1'000, 0, 512);
    const std::int64_t micros = 10'000 + 100 * rows;
    budget.note(0, rows, micros);
    sum += rows;
    longest = std::max(longest, micros);
  }
  EXPECT_GT(sum, 500 * 10);
  EXPECT_LE(longest, 2 * 10'100);
}

TEST(RowBudget, DecodingIsMeasuredAgainNowAndThen) {
  RowBudget budget(4, 0);
  budget.note(4, 0, 1000);
  int alone = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::int32_t rows = budget.prefill_rows(4, 100);
    alone += rows == 0 ? 1 : 0;
    budget.note(4, rows, 1000 + 10 * rows);
  }
  EXPECT_GE(alone, 10);
  EXPECT_LE(alone, 20);
}

// One long prompt among eight answers, on machines whose prompt rows are dear, cheap, or dearer with every token.
TEST(RowBudget, ALongPromptNeverStretchesTheGapBeyondFourTimes) {
  for (const std::int64_t row : {5, 90, 900, 3000}) {
    for (const std::int64_t growth : {0, 1}) {
      SCOPED_TRACE(testing::Message() << row << " microseconds a row, growth " << growth);
      sim::Driver driver({.groups = {{.blocks = 4096}}, .context = 32768, .max_sequences = 16, .unnoticed_us = 0});
      driver.micros = [&](const StepPlan& plan) {
        std::int64_t micros = 10'000;
        for (const StepRow& each : plan.rows) {
          const bool prompt = plan.owners[static_cast<std::size_t>(each.sequence)].rows > 1;
          micros += prompt ? row + growth * row * each.position / 16000 : 50;
        }
        return micros;
      };
      for (TokenId i = 0; i < 8; ++i) driver.submit({.prompt = sim::tokens_from(1000 * i, 40), .max_tokens = 20000});
      for (int i = 0; i < 20; ++i) driver.step();
      const RequestId asked = driver.submit({.prompt = sim::tokens_from(50000, 16000), .max_tokens = 4});
      int steps = 0;
      for (; driver.tokens_of(asked) == 0 && steps < 30000; ++steps) {
        const std::int64_t before = driver.now_us;
        ASSERT_TRUE(driver.step());
        ASSERT_LE(driver.now_us - before, 4 * 10'400) << "step " << steps;
      }
      EXPECT_EQ(driver.tokens_of(asked), 1);
      // And it does use the time it may have.
      const std::int64_t rows_a_step = std::clamp<std::int64_t>(13'000 / row, 1, 504);
      if (growth == 0) {
        EXPECT_LE(steps, 100 + 16000 / rows_a_step);
      }
    }
  }
}

}  // namespace
}  // namespace quarrel
