// The life of a request: ends of every kind, limits, and that nothing stays behind.
#include <gtest/gtest.h>

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
        executor_(GgufFile::open(write_toy("llama", folder_.path(), {.context = 128})), *device_,
                  {.context = 128, .sequences = 4, .batch_rows = 64}),
        engine_(std::make_unique<Engine>(executor_, options)) {}

  GenerateRequest request(std::size_t prompt, std::int32_t tokens, std::uint32_t seed = 1) const {
    return {.prompt = random_tokens(prompt, executor_.spec().vocabulary, seed), .max_tokens = tokens};
  }
  void expect_nothing_left() {
    const SchedulerCounters counters = engine_->counters().scheduler;
    EXPECT_EQ(counters.running + counters.waiting + counters.returning, 0);
    for (const GroupCounters& group : counters.groups) EXPECT_EQ(group.used, 0);
  }

  TempDir folder_;
  std::unique_ptr<Device> device_;
  Executor executor_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineTest, StopTokensEndAnAnswer) {
  const Answer whole = ask(*engine_, request(10, 20));
  ASSERT_EQ(whole.tokens.size(), 20u);
  GenerateRequest stopped = request(10, 20);
  stopped.stop_tokens = {whole.tokens[5]};
  const Answer answer = ask(*engine_, stopped);
  EXPECT_EQ(answer.reason, EndReason::stop);
  ASSERT_LE(answer.tokens.size(), 6u);
  EXPECT_EQ(answer.tokens.back(), whole.tokens[5]);
}

TEST_F(EngineTest, CancelledAtAnyMoment) {
  for (int after = 0; after < 12; ++after) {
    const Engine::Submission submission = engine_->submit(request(40, 80, static_cast<std::uint32_t>(after)));
    ASSERT_NE(submission.stream, nullptr);
    for (int i = 0; i < after; ++i) submission.stream->next();
    // It may have come to its own end by now.
    const bool found = engine_->cancel(submission.result.id);
    EXPECT_TRUE(found || after > 0);
    const Answer answer = read_answers(*submission.stream).front();
    EXPECT_EQ(answer.reason, found ? EndReason::cancelled : EndReason::length);
    EXPECT_EQ(answer.endings, 1);
  }
  EXPECT_FALSE(engine_->cancel(12345));
  // One more goes through the engine after them, so the last step has been committed.
  EXPECT_EQ(ask(*engine_, request(5, 2)).reason, EndReason::length);
  expect_nothing_left();
}

TEST_F(EngineTest, DeadlinesCountTheQueue) {
  engine_->pause();
  GenerateRequest late = request(5, 5);
  late.deadline = std::chrono::milliseconds(30);
  EXPECT_EQ(ask(*engine_, late).reason, EndReason::deadline);
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
  for (Engine::Submission& each : taken) EXPECT_EQ(read_answers(*each.stream).front().reason, EndReason::length);
  EXPECT_EQ(engine_->counters().scheduler.refused, 1u);
}

TEST_F(EngineTest, TextsBeyondTheContext) {
  const Engine::Submission refused = engine_->submit(request(100, 60));
  EXPECT_EQ(refused.result.status, SubmitStatus::too_long);
  EXPECT_EQ(refused.result.limit, engine_->longest_text());
  GenerateRequest stopping = request(100, 60);
  stopping.overflow = Overflow::stop;
  const Answer stopped = ask(*engine_, stopping);
  EXPECT_EQ(stopped.reason, EndReason::length);
  EXPECT_GE(stopped.tokens.size(), 28u);
  EXPECT_LT(stopped.tokens.size(), 60u);
  GenerateRequest shifting = request(100, 60);
  shifting.overflow = Overflow::shift;
  shifting.keep = 8;
  const Answer shifted = ask(*engine_, shifting);
  EXPECT_EQ(shifted.reason, EndReason::length);
  EXPECT_EQ(shifted.tokens.size(), 60u);
  EXPECT_GT(shifted.shifts, 0);
}

TEST_F(EngineTest, WhatMeansNothingIsRefused) {
  EXPECT_EQ(engine_->submit(GenerateRequest{}).result.status, SubmitStatus::empty);
  GenerateRequest bad = request(5, 5);
  bad.prompt[2] = executor_.spec().vocabulary;
  EXPECT_THROW(engine_->submit(bad), Error);
  bad.prompt[2] = -1;
  EXPECT_THROW(engine_->submit(bad), Error);
  GenerateRequest top = request(5, 5);
  top.top = kMaxTopTokens + 1;
  EXPECT_THROW(engine_->submit(top), Error);
  GenerateRequest warm = request(5, 5);
  warm.sampling.temperature = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW(engine_->submit(warm), Error);
  GenerateRequest many = request(5, 5);
  many.branches = 1 << 20;
  EXPECT_EQ(engine_->submit(many).result.status, SubmitStatus::malformed);
}

TEST_F(EngineTest, DrainsAndThenTakesNoMore) {
  const Engine::Submission running = engine_->submit(request(20, 40));
  engine_->drain();
  EXPECT_EQ(read_answers(*running.stream).front().tokens.size(), 40u);
  EXPECT_EQ(engine_->submit(request(5, 5)).result.status, SubmitStatus::draining);
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
  const SubmitResult result = engine_->submit(request(10, 50), [&](const TokenEvent& event) {
    if (event.kind == TokenEvent::Kind::token && ++tokens == 3) engine_->cancel(event.request);
    if (event.kind == TokenEvent::Kind::finished) ++ended;
  });
  ASSERT_EQ(result.status, SubmitStatus::accepted);
  engine_->drain();
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
  engine_->drain();
  expect_nothing_left();
}

}  // namespace
}  // namespace quarrel::test
