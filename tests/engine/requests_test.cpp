// The life of a request: ends of every kind, limits, and that nothing stays behind.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <thread>

#include "backend/create.h"
#include "base/error.h"
#include "engine/answers.h"
#include "support/temp_dir.h"
#include "support/toy_model.h"

namespace quarrel::test {
namespace {

class EngineTest : public testing::Test {
 protected:
  explicit EngineTest(const EngineOptions& options = {.queue_limit = 8})
      : device_(make_device({.backend = "cpu", .threads = 2})),
        engine_(std::make_unique<Engine>(
            std::make_unique<Executor>(GgufFile::open(write_toy("llama", folder_.path(), {.context = 128})), *device_,
                                       ExecutorOptions{.context = 128, .sequences = 4, .batch_rows = 64}),
            options)),
        vocabulary_(engine_->executor().spec().vocabulary) {}

  EngineRequest request(std::size_t prompt, std::int32_t tokens, std::uint32_t seed = 1) const {
    return text_request(random_tokens(prompt, vocabulary_, seed), tokens);
  }
  void expect_nothing_left() {
    const SchedulerCounters counters = engine_->counters().scheduler;
    EXPECT_EQ(counters.running + counters.waiting + counters.returning, 0);
    for (const GroupCounters& group : counters.groups) EXPECT_EQ(group.used, 0);
  }

  TempDir folder_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Engine> engine_;
  const std::int32_t vocabulary_;
};

TEST_F(EngineTest, StopTokensEndAnAnswer) {
  const Answer whole = ask(*engine_, request(10, 20));
  ASSERT_EQ(whole.tokens.size(), 20u);
  EngineRequest stopped = request(10, 20);
  stopped.stop_tokens = {whole.tokens[5]};
  const Answer answer = ask(*engine_, stopped);
  EXPECT_EQ(answer.reason, FinishReason::stop);
  ASSERT_LE(answer.tokens.size(), 6u);
  EXPECT_EQ(answer.tokens.back(), whole.tokens[5]);
}

TEST_F(EngineTest, HowMuchOfThePromptIsReadIsToldToWhoAsks) {
  EngineRequest asking = request(100, 4);
  asking.tell_reading = true;
  asking.use_cache = false;
  const Answer told = ask(*engine_, asking);
  ASSERT_FALSE(told.reads.empty()) << "a step has 64 rows at most";
  EXPECT_TRUE(std::ranges::is_sorted(told.reads));
  EXPECT_LE(told.reads.back(), 99);
  asking.tell_reading = false;
  const Answer silent = ask(*engine_, asking);
  EXPECT_TRUE(silent.reads.empty());
  EXPECT_EQ(silent.tokens, told.tokens);
}

TEST_F(EngineTest, CancelledAtAnyMoment) {
  for (int after = 0; after < 12; ++after) {
    if (after == 0) engine_->pause();  // it still waits
    const Engine::Submission submission = engine_->submit(request(40, 80, static_cast<std::uint32_t>(after)));
    ASSERT_NE(submission.stream, nullptr);
    for (int i = 0; i < after; ++i) submission.stream->next();
    // It may have come to its own end by now.
    const bool found = engine_->cancel(submission.result.id);
    EXPECT_TRUE(found || after > 0);
    if (after == 0) engine_->resume();
    const Answer answer = read_answers(*submission.stream).front();
    EXPECT_EQ(answer.reason, found ? FinishReason::cancelled : FinishReason::length);
    EXPECT_EQ(answer.endings, 1);
  }
  EXPECT_FALSE(engine_->cancel(12345));
  // One more goes through the engine after them, so the last step has been committed.
  EXPECT_EQ(ask(*engine_, request(5, 2)).reason, FinishReason::length);
  expect_nothing_left();
}

TEST_F(EngineTest, DeadlinesCountTheQueue) {
  engine_->pause();
  EngineRequest late = request(5, 5);
  late.timeout = std::chrono::milliseconds(30);
  EXPECT_EQ(ask(*engine_, late).reason, FinishReason::timeout);
  engine_->resume();
  expect_nothing_left();
}

TEST_F(EngineTest, AFullQueueSaysWhenToComeBack) {
  engine_->pause();
  std::vector<Engine::Submission> taken;
  for (std::uint32_t i = 0; i < 8; ++i) taken.push_back(engine_->submit(request(5, 3, i)));
  const Engine::Submission refused = engine_->submit(request(5, 3));
  EXPECT_EQ(refused.result.status, SubmitStatus::queue_full);
  EXPECT_EQ(refused.stream, nullptr);
  EXPECT_GT(refused.result.retry_after_us, 0);
  engine_->resume();
  for (Engine::Submission& each : taken) EXPECT_EQ(read_answers(*each.stream).front().reason, FinishReason::length);
  EXPECT_EQ(engine_->counters().scheduler.refused, 1u);
}

TEST_F(EngineTest, TextsBeyondTheContext) {
  EngineRequest whole = request(100, 60);
  whole.overflow = Overflow::refuse;
  const Engine::Submission refused = engine_->submit(whole);
  EXPECT_EQ(refused.result.status, SubmitStatus::too_long);
  EXPECT_EQ(refused.result.limit, engine_->longest_text());
  EngineRequest stopping = request(100, 60);
  stopping.overflow = Overflow::stop;
  const Answer stopped = ask(*engine_, stopping);
  EXPECT_EQ(stopped.reason, FinishReason::context);
  EXPECT_GE(stopped.tokens.size(), 28u);
  EXPECT_LT(stopped.tokens.size(), 60u);
}

// The context is full after 28 tokens. The older half of what stands behind the first 8 tokens is forgotten, and what
// follows is what the rest alone would have been continued with.
TEST_F(EngineTest, AShiftLeavesWhatItShouldKeep) {
  EngineRequest shifting = request(100, 60);
  shifting.overflow = Overflow::shift;
  shifting.keep = 8;
  shifting.use_cache = false;
  std::vector<TokenId> text = shifting.prompt;
  std::vector<TokenId> answer;
  std::vector<TokenId> kept;     // the text that was left by the first shift
  std::size_t before_shift = 0;  // tokens of the answer
  const Engine::Submission submission = engine_->submit(shifting);
  ASSERT_NE(submission.stream, nullptr);
  while (const auto event = submission.stream->next()) {
    if (event->kind == TokenEvent::Kind::token) {
      text.push_back(event->sample.id);
      answer.push_back(event->sample.id);
    }
    if (event->kind != TokenEvent::Kind::shifted) continue;
    ASSERT_GT(event->dropped, 0);
    text.erase(text.begin() + 8, text.begin() + 8 + event->dropped);
    if (!kept.empty()) continue;
    kept = text;
    before_shift = answer.size();
  }
  ASSERT_EQ(answer.size(), 60u);
  ASSERT_FALSE(kept.empty());
  EXPECT_TRUE(std::equal(kept.begin(), kept.begin() + 8, shifting.prompt.begin()));
  // The answer's own tokens are computed as generated rows, so the first tokens agree, not every bit of them.
  const Answer rest = ask(*engine_, text_request(kept, 4));
  EXPECT_TRUE(
      std::equal(rest.tokens.begin(), rest.tokens.end(), answer.begin() + static_cast<std::ptrdiff_t>(before_shift)));
}

TEST_F(EngineTest, WhatMeansNothingIsRefused) {
  EXPECT_EQ(engine_->submit(EngineRequest{}).result.status, SubmitStatus::empty);
  EngineRequest bad = request(5, 5);
  bad.prompt[2] = vocabulary_;
  EXPECT_THROW(engine_->submit(bad), Error);
  bad.prompt[2] = -1;
  EXPECT_THROW(engine_->submit(bad), Error);
  EngineRequest top = request(5, 5);
  top.top = kMaxTopTokens + 1;
  EXPECT_THROW(engine_->submit(top), Error);
  EngineRequest warm = request(5, 5);
  warm.sampling.temperature = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW(engine_->submit(warm), Error);
  EngineRequest many = request(5, 5);
  many.branches = 1 << 20;
  EXPECT_EQ(engine_->submit(many).result.status, SubmitStatus::malformed);
}

TEST_F(EngineTest, ItsEndEndsEverything) {
  std::vector<Engine::Submission> submissions;
  for (std::uint32_t i = 0; i < 6; ++i) submissions.push_back(engine_->submit(request(30, 90, i)));
  engine_.reset();
  for (Engine::Submission& each : submissions) {
    const Answer answer = read_answers(*each.stream).front();
    EXPECT_EQ(answer.endings, 1);
  }
}

TEST_F(EngineTest, ASinkMayCallTheEngine) {
  std::atomic<int> ended{0};
  std::atomic<int> tokens{0};
  const SubmitResult result = engine_->submit(request(10, 50), calling([&](const TokenEvent& event) {
                                                if (event.kind == TokenEvent::Kind::token && ++tokens == 3)
                                                  engine_->cancel(event.request);
                                                if (event.kind == TokenEvent::Kind::finished) ++ended;
                                              }));
  ASSERT_EQ(result.status, SubmitStatus::accepted);
  engine_->drain_and_wait();
  EXPECT_EQ(ended, 1);
  EXPECT_GE(tokens, 3);
  EXPECT_LT(tokens, 50);
}

// From many threads, most of them changing their mind: everybody gets an ending, and no block stays behind.
TEST_F(EngineTest, ManyClientsComeAndGo) {
  constexpr int kClients = 4, kEach = 60;
  std::atomic<int> endings{0}, refused{0};
  std::vector<std::thread> clients;
  for (int client = 0; client < kClients; ++client) {
    clients.emplace_back([&, client] {
      for (int i = 0; i < kEach; ++i) {
        const Engine::Submission submission =
            engine_->submit(request(1 + static_cast<std::size_t>(i) % 50, 10, static_cast<std::uint32_t>(client)));
        if (!submission.stream) {
          ++refused;
          continue;
        }
        if (i % 3 != 0) engine_->cancel(submission.result.id);
        endings += read_answers(*submission.stream).front().endings;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(endings + refused, kClients * kEach);
  engine_->drain_and_wait();
  expect_nothing_left();
}

}  // namespace
}  // namespace quarrel::test
