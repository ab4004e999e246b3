// Texts that become vectors are requests like all others: beside answers, in chunks, cancelled, late; their bits depend
// on the text alone.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "engine/served.h"
#include "support/temp_dir.h"
#include "support/toy_model.h"

namespace quarrel::test {
namespace {

EngineRequest pooled(std::vector<TokenId> tokens, Pooling pooling) {
  EngineRequest request = text_request(std::move(tokens), 0);
  request.pooled = true;
  request.pooling = pooling;
  return request;
}

EngineRequest each_row(std::vector<TokenId> tokens) {
  EngineRequest request = text_request(std::move(tokens), 0);
  request.prompt_outputs = PromptOutputs::vectors;
  return request;
}

class Vectors : public testing::Test {
 protected:
  std::filesystem::path model(const char* name) const { return write_toy(name, folder_.path(), {.context = 256}); }
  TempDir folder_;
};

// A decoder generates and embeds, at the same time and with the same bits as each alone.
TEST_F(Vectors, OneDecoderDoesBoth) {
  for (const Setting& setting : {Setting{.sequences = 8}, Setting{.sequences = 8, .chunk = 16},
                                 Setting{.sequences = 8, .steps_in_flight = 2, .late = true}}) {
    Served served(model("llama"), 256, 64, setting);
    Served alone(model("llama"), 256, 256, {.sequences = 1});
    std::vector<EngineRequest> requests;
    for (std::uint32_t i = 0; i < 12; ++i) {
      std::vector<TokenId> tokens = random_tokens(5 + 17 * i, served.vocabulary(), i);
      const Pooling pooling = std::array{Pooling::mean, Pooling::last, Pooling::cls}[i % 3];
      requests.push_back(i % 4 == 3 ? text_request(tokens, 20) : pooled(tokens, pooling));
    }
    const std::vector<Answer> together = ask_together(served.engine(), requests);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const Answer expected = ask(alone.engine(), requests[i]);
      EXPECT_EQ(together[i].reason, FinishReason::length) << i;
      EXPECT_EQ(together[i].values.size(), requests[i].pooled ? 1u : 0u);
      EXPECT_EQ(together[i], expected) << i;
    }
  }
}

TEST_F(Vectors, PoolingIsWhatItSays) {
  Served served(model("llama"), 256, 64, {.sequences = 4});
  const std::vector<TokenId> tokens = random_tokens(100, served.vocabulary(), 3);
  const std::vector<std::vector<float>> rows = ask(served.engine(), each_row(tokens)).values;
  ASSERT_EQ(rows.size(), 100u);
  EXPECT_EQ(ask(served.engine(), pooled(tokens, Pooling::cls)).values.at(0), rows.front());
  EXPECT_EQ(ask(served.engine(), pooled(tokens, Pooling::last)).values.at(0), rows.back());
  const std::vector<float> mean = ask(served.engine(), pooled(tokens, Pooling::mean)).values.at(0);
  for (std::size_t i = 0; i < mean.size(); ++i) {
    double sum = 0.0;
    for (const std::vector<float>& row : rows) sum += static_cast<double>(row[i]);
    EXPECT_FLOAT_EQ(mean[i], static_cast<float>(sum / 100.0));
  }
}

// Straight from the step to where the request says: no event carries the values, and no more are written than fit.
TEST_F(Vectors, AVectorGoesWhereTheRequestSays) {
  for (const Setting& setting :
       {Setting{.sequences = 4}, Setting{.sequences = 4, .steps_in_flight = 2, .late = true}}) {
    Served served(model("llama"), 256, 64, setting);
    const std::vector<TokenId> tokens = random_tokens(100, served.vocabulary(), 3);
    const std::vector<float> expected = ask(served.engine(), pooled(tokens, Pooling::mean)).values.at(0);
    std::vector<float> memory(expected.size() + 1, -1.0f);
    for (const std::size_t size : {expected.size(), expected.size() / 2}) {
      std::ranges::fill(memory, -1.0f);
      EngineRequest request = pooled(tokens, Pooling::mean);
      request.vector_into = std::span(memory).first(size);
      const Answer answer = ask(served.engine(), request);
      EXPECT_TRUE(answer.values.empty());
      EXPECT_EQ(answer.reason, FinishReason::length);
      EXPECT_TRUE(std::ranges::equal(std::span(memory).first(size), std::span(expected).first(size)));
      EXPECT_EQ(memory[size], -1.0f);
    }
  }
}

// An encoder's text goes into one step, whole; several share it.
TEST_F(Vectors, AnEncoderTakesTextsWhole) {
  Served served(model("bert"), 256, 64, {.sequences = 16});
  std::vector<EngineRequest> requests;
  for (std::uint32_t i = 0; i < 16; ++i) {
    requests.push_back(pooled(random_tokens(1 + 13 * i, served.vocabulary(), i), Pooling::mean));
  }
  std::vector<Answer> alone;
  for (const EngineRequest& request : requests) alone.push_back(ask(served.engine(), request));
  const std::uint64_t before = served.engine().counters().scheduler.steps;
  const std::vector<Answer> together = ask_together(served.engine(), requests);
  EXPECT_LT(served.engine().counters().scheduler.steps - before, 16u);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    ASSERT_EQ(together[i].values.size(), 1u);
    EXPECT_EQ(together[i], alone[i]) << i;
  }
}

TEST_F(Vectors, WhatAModelCannotDoIsRefused) {
  Served encoder(model("bert"), 256, 64, {.sequences = 2});
  EXPECT_THROW(encoder.engine().submit(text_request({1, 2, 3}, 5)), Error);
  EXPECT_THROW(encoder.engine().submit(pooled({1, 2, 3}, Pooling::rank)), Error);
  EXPECT_THROW(encoder.engine().submit(pooled({1, 2, 3}, Pooling::none)), Error);
  EXPECT_EQ(encoder.engine().submit(pooled(random_tokens(257, encoder.vocabulary(), 1), Pooling::mean)).result.status,
            SubmitStatus::too_long);
}

TEST_F(Vectors, TheyMayBeCancelledAndLate) {
  Served served(model("llama"), 256, 64, {.sequences = 2});
  served.engine().pause();
  EngineRequest late = pooled(random_tokens(50, served.vocabulary(), 1), Pooling::mean);
  late.timeout = std::chrono::milliseconds(5);
  const Engine::Submission first = served.engine().submit(late);
  const Engine::Submission second =
      served.engine().submit(pooled(random_tokens(50, served.vocabulary(), 2), Pooling::mean));
  EXPECT_TRUE(served.engine().cancel(second.result.id));
  EXPECT_EQ(read_answers(*first.stream).front().reason, FinishReason::timeout);
  EXPECT_EQ(read_answers(*second.stream).front().reason, FinishReason::cancelled);
}

// All logits of a text, row by row: those of one step, of chunks, and of rows of class generated.
TEST_F(Vectors, LogitsOfEachRow) {
  Served served(model("llama"), 256, 64, {.sequences = 2, .chunk = 16});
  const std::vector<TokenId> tokens = random_tokens(40, served.vocabulary(), 8);
  EngineRequest scored = text_request(tokens, 1);
  scored.prompt_outputs = PromptOutputs::scores;
  scored.prompt_logits = true;
  for (const bool generated : {false, true}) {
    scored.generated = generated;
    const Answer answer = ask(served.engine(), scored);
    ASSERT_EQ(answer.values.size(), 40u);
    for (std::size_t row = 0; row + 1 < 40; ++row) {
      const std::vector<float>& logits = answer.values[row];
      ASSERT_EQ(std::ssize(logits), served.vocabulary());
      double sum = 0.0;
      for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
      const double logprob = static_cast<double>(logits[static_cast<std::size_t>(tokens[row + 1])]) - std::log(sum);
      EXPECT_NEAR(answer.prompt_logprobs[row], logprob, 1e-4);
    }
  }
}

// Of the prompt and of the first token, however many steps are in flight.
TEST_F(Vectors, LogitsEndWithTheFirstToken) {
  for (const std::int32_t steps : {1, 2}) {
    Served served(model("llama"), 256, 64, {.sequences = 2, .steps_in_flight = steps, .late = steps == 2});
    EngineRequest scored = text_request(random_tokens(20, served.vocabulary(), 8), 6);
    scored.prompt_outputs = PromptOutputs::scores;
    scored.prompt_logits = true;
    const Answer answer = ask(served.engine(), scored);
    EXPECT_EQ(answer.tokens.size(), 6u);
    EXPECT_EQ(answer.values.size(), 20u);
  }
}

}  // namespace
}  // namespace quarrel::test
