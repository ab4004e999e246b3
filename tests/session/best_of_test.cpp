// The best of several answers: by how likely their tokens were, and never one that was cut short before one that ended.
#include "session/best_of.h"

#include <gtest/gtest.h>

#include <limits>

#include "engine/served.h"
#include "support/temp_dir.h"
#include "support/toy_model.h"

namespace quarrel::test {
namespace {

using Order = std::vector<std::int32_t>;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TokenEvent token(std::int32_t branch, float logprob) {
  TokenEvent event{{.kind = TokenEvent::Kind::token, .branch = branch}};
  event.sample.logprob = logprob;
  return event;
}

TokenEvent finished(std::int32_t branch, FinishReason reason) {
  return {{.kind = TokenEvent::Kind::finished, .reason = reason, .branch = branch}};
}

TEST(BestOf, TheMeanDecidesAndNotTheLength) {
  BestOf best(3);
  for (const float logprob : {-1.0f, -1.0f, -1.0f, -1.0f}) best.take(token(0, logprob));
  for (const float logprob : {-0.5f, -2.5f}) best.take(token(1, logprob));
  best.take(token(2, -0.9f));
  for (std::int32_t branch = 0; branch < 3; ++branch) {
    EXPECT_FALSE(best.done());
    EXPECT_TRUE(best.take(finished(branch, FinishReason::length)));
  }
  EXPECT_TRUE(best.done());
  EXPECT_EQ(best.best(3), (Order{2, 0, 1}));
  EXPECT_EQ(best.best(1), Order{2});
  EXPECT_DOUBLE_EQ(best.mean_logprob(1), -1.5);
}

TEST(BestOf, EqualOnesGoByTheirNumbers) {
  BestOf best(4);
  for (const std::int32_t branch : {3, 1, 2, 0}) {
    best.take(token(branch, branch == 2 ? -0.25f : -0.5f));
    best.take(finished(branch, FinishReason::stop));
  }
  EXPECT_EQ(best.best(4), (Order{2, 0, 1, 3}));
}

TEST(BestOf, WhatEndedGoesBeforeWhatWasCutShort) {
  BestOf best(6);
  const std::vector<FinishReason> reasons = {FinishReason::failed,  FinishReason::cancelled, FinishReason::stop,
                                             FinishReason::timeout, FinishReason::context,   FinishReason::length};
  for (std::int32_t branch = 0; branch < 6; ++branch) {
    // The later, the less likely.
    best.take(token(branch, -0.1f * static_cast<float>(branch + 1)));
    best.take(finished(branch, reasons[static_cast<std::size_t>(branch)]));
    EXPECT_EQ(best.reason(branch), reasons[static_cast<std::size_t>(branch)]);
  }
  EXPECT_EQ(best.best(6), (Order{2, 4, 5, 1, 3, 0}));
}

TEST(BestOf, AnEarlyEndIsTheEnd) {
  BestOf best(2);
  best.take(token(0, -0.5f));
  best.take(token(1, -1.0f));
  best.end(0, FinishReason::stop);
  EXPECT_FALSE(best.open(0));
  EXPECT_FALSE(best.take(token(0, -100.0f)));
  EXPECT_FALSE(best.take(finished(0, FinishReason::failed)));
  EXPECT_TRUE(best.take(finished(1, FinishReason::length)));
  best.end(1, FinishReason::failed);  // too late
  EXPECT_EQ(best.reason(0), FinishReason::stop);
  EXPECT_EQ(best.reason(1), FinishReason::length);
  EXPECT_EQ(best.best(2), (Order{0, 1}));
}

TEST(BestOf, NumbersThatAreNoneAndAnswersWithoutTokensComeLast) {
  BestOf best(5);
  best.take(token(1, std::numeric_limits<float>::quiet_NaN()));
  best.take(token(2, -kInfinity));
  best.take(token(3, -1000.0f));
  best.take(token(4, -1.0f));
  for (std::int32_t branch = 0; branch < 5; ++branch) best.take(finished(branch, FinishReason::stop));
  EXPECT_EQ(best.best(5), (Order{4, 3, 0, 1, 2}));
  EXPECT_THROW(best.take(token(5, 0.0f)), std::out_of_range);
}

// Of an engine's own events.
TEST(BestOf, ReadsARequest) {
  const TempDir folder;
  Served served(write_toy("llama", folder.path(), {.context = 96}), 96, 64, {.sequences = 4});
  EngineRequest request = text_request(random_tokens(9, served.vocabulary(), 2), 7, 4);
  request.sampling.temperature = 2.0f;
  const Engine::Submission submission = served.engine().submit(request);
  ASSERT_NE(submission.stream, nullptr);
  BestOf best(4);
  std::vector<double> sums(4);
  while (const auto event = submission.stream->next()) {
    EXPECT_TRUE(best.take(*event));
    if (event->kind == TokenEvent::Kind::token) {
      sums[static_cast<std::size_t>(event->branch)] += static_cast<double>(event->sample.logprob);
    }
  }
  EXPECT_TRUE(best.done());
  const Order order = best.best(4);
  for (std::size_t i = 0; i + 1 < order.size(); ++i) {
    EXPECT_GT(sums[static_cast<std::size_t>(order[i])], sums[static_cast<std::size_t>(order[i + 1])]);
  }
}

}  // namespace
}  // namespace quarrel::test
