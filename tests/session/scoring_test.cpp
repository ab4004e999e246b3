// Log-probabilities and logits of given tokens.
#include "session/scoring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "session/session_support.h"
#include "unit/gguf_support.h"

namespace quarrel::test {
namespace {

class Score : public testing::Test {
 protected:
  Score() : model_(load_toy(write_toy("llama", folder_.path(), {.context = 256}), options())) {}
  static LoadOptions options() {
    LoadOptions made;
    made.executor.batch_rows = 32;
    return made;
  }
  std::vector<TokenId> tokens(std::size_t count) const {
    std::vector<TokenId> made;
    for (std::size_t i = 0; i < count; ++i) made.push_back(static_cast<TokenId>(i * 37 % 200 + 1));
    return made;
  }
  std::vector<std::vector<float>> logits(std::span<const TokenId> ids, const ScoreOptions& how = {}) const {
    LogitReader reader(model_, ids, how);
    std::vector<std::vector<float>> rows;
    for (auto row = reader.next(); !row.empty(); row = reader.next()) rows.emplace_back(row.begin(), row.end());
    EXPECT_EQ(reader.rows_read(), ids.size());
    return rows;
  }

  TempDir folder_;
  std::shared_ptr<LoadedModel> model_;
};

double log_probability(const std::vector<float>& row, TokenId token) {
  const double most = *std::ranges::max_element(row);
  double sum = 0.0;
  for (const float value : row) sum += std::exp(static_cast<double>(value) - most);
  return static_cast<double>(row[static_cast<std::size_t>(token)]) - most - std::log(sum);
}

TEST_F(Score, ScoresAreThoseOfTheLogits) {
  const std::vector<TokenId> ids = tokens(100);
  for (const RowClass row_class : {RowClass::prompt, RowClass::generated}) {
    const std::vector<float> scores = score_tokens(model_, ids, {.row_class = row_class});
    const auto rows = logits(ids, {.row_class = row_class});
    ASSERT_EQ(scores.size(), 99u);
    ASSERT_EQ(rows.size(), 100u);
    for (std::size_t i = 0; i < scores.size(); ++i) {
      EXPECT_NEAR(scores[i], log_probability(rows[i], ids[i + 1]), 1e-5) << i;
    }
  }
}

// Another row's logits must not be taken for them: what is likeliest after a text is what greedy decoding says.
TEST_F(Score, RowsStandInTheirPlaces) {
  const std::vector<TokenId> ids = tokens(70);
  const auto rows = logits(ids);
  for (const std::size_t length : {1u, 31u, 32u, 33u, 70u}) {
    Ask ask{.prompt = std::vector<TokenId>(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(length)),
            .max_tokens = 1};
    const TokenId expected = generate(model_, ask).answers[0].tokens.at(0);
    const auto& row = rows[length - 1];
    EXPECT_EQ(std::ranges::max_element(row) - row.begin(), expected) << length;
  }
}

TEST_F(Score, AReaderMayStopEarly) {
  {
    LogitReader reader(model_, tokens(200));
    EXPECT_EQ(std::ssize(reader.next()), model_->spec().vocabulary);
  }
  ASSERT_TRUE(eventually([&] { return model_->engine().counters().scheduler.running == 0; }));
  EXPECT_EQ(score_tokens(model_, tokens(5)).size(), 4u);
}

TEST_F(Score, ScoringLeavesTheCacheAlone) {
  const std::vector<TokenId> ids = tokens(100);
  score_tokens(model_, ids);
  Ask ask{.prompt = ids, .max_tokens = 1};
  EXPECT_EQ(generate(model_, ask).usage.cached_tokens, 0u);
}

TEST_F(Score, MistakesAreRefused) {
  expect_error(ErrorKind::bad_input, {"empty"}, [&] { score_tokens(model_, {}); });
  expect_error(ErrorKind::bad_input, {"300", "256"}, [&] { score_tokens(model_, tokens(300)); });
  EXPECT_EQ(score_tokens(model_, tokens(256)).size(), 255u);
  bool asked = false;
  expect_error(ErrorKind::cancelled, {}, [&] {
    score_tokens(model_, tokens(256), {.cancelled = [&] { return std::exchange(asked, true) || true; }});
  });
  EXPECT_TRUE(asked);
}

}  // namespace
}  // namespace quarrel::test
