// Memory that runs out at every single allocation of a load and of a request: whoever asked gets an error or an ending,
// and the engine goes on as if nothing had been.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <optional>

#include "backend/create.h"
#include "base/error.h"
#include "engine/answers.h"
#include "support/failing_allocation.h"
#include "support/temp_dir.h"
#include "support/toy_model.h"

namespace quarrel::test {
namespace {

// Calls attempt() with the n-th allocation failing, for n = 0, 1, … until it needs fewer than n.
template <typename Attempt>
long fail_each_allocation(const Attempt& attempt) {
  for (long n = 0;; ++n) {
    fail_allocation(n);
    attempt(n);
    if (!fail_no_allocation()) return n;
  }
}

class MemoryTest : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Toys, MemoryTest, testing::Values("llama", "granitehybrid"));

TEST_P(MemoryTest, ARequestMayFailButTheEngineDoesNot) {
  const TempDir folder;
  const auto device = make_device({.backend = "cpu", .threads = 2});
  Engine engine(
      std::make_unique<Executor>(GgufFile::open(write_toy(GetParam(), folder.path(), {.context = 96})), *device,
                                 ExecutorOptions{.context = 96, .sequences = 3, .snapshots = 4, .batch_rows = 32}));
  EngineRequest request = text_request(random_tokens(40, engine.executor().spec().vocabulary, 1), 6);
  request.top = 3;
  request.sampling.repeat_penalty = 1.1f;
  const Answer expected = ask(engine, request);
  int refused = 0, failed = 0, answered = 0;
  // Outside of what may fail: while the engine works, the allocation that does could be this one.
  std::vector<TokenId> tokens;
  tokens.reserve(16);
  const long allocations = fail_each_allocation([&](long n) {
    Engine::Submission submission;
    try {
      submission = engine.submit(request);
    } catch (const std::bad_alloc&) {
      ++refused;
      return;
    }
    ASSERT_NE(submission.stream, nullptr) << n;
    tokens.clear();
    FinishReason reason = FinishReason::stop;
    int endings = 0, lost = 0;
    for (;;) {
      try {
        const auto event = submission.stream->next();
        if (!event) break;
        if (event->kind == TokenEvent::Kind::token) tokens.push_back(event->sample.id);
        if (event->kind == TokenEvent::Kind::finished) {
          reason = event->reason;
          ++endings;
        }
      } catch (const std::bad_alloc&) {
        ++lost;  // this thread's own: the event is gone, the stream is not
      }
    }
    EXPECT_LE(endings, 1) << n;
    if (reason == FinishReason::length) {
      ++answered;
      // This thread may have lost some of them, but none is another.
      auto next = expected.tokens.begin();
      for (const TokenId token : tokens) {
        next = std::find(next, expected.tokens.end(), token);
        ASSERT_NE(next, expected.tokens.end()) << n;
        ++next;
      }
      if (endings == 1 && lost == 0) {
        EXPECT_EQ(tokens, expected.tokens) << n;
      }
    } else {
      ++failed;
    }
  });
  EXPECT_GT(allocations, 40);
  EXPECT_GT(refused, 0);
  EXPECT_GT(answered, 0);
  EXPECT_EQ(ask(engine, request), expected);
  engine.drain_and_wait();
  const SchedulerCounters counters = engine.counters().scheduler;
  EXPECT_EQ(counters.running + counters.waiting + counters.returning, 0);
  for (const GroupCounters& group : counters.groups) EXPECT_EQ(group.used, 0);
}

// It may be refused, and nobody's prompt is copied sixteen times for that.
TEST(PromptOfManyAnswers, IsKeptOnceUntilTheyBegin) {
  const TempDir folder;
  const auto device = make_device({.backend = "cpu", .threads = 1});
  constexpr std::size_t kTokens = 4000;
  Engine engine(std::make_unique<Executor>(GgufFile::open(write_toy("llama", folder.path(), {.context = 4096})),
                                           *device,
                                           ExecutorOptions{.context = 4096, .sequences = 2, .batch_rows = 32}));
  EngineRequest request = text_request(random_tokens(kTokens, engine.executor().spec().vocabulary, 1), 1);
  request.sampling.repeat_penalty = 1.1f;
  request.branches = engine.most_branches();
  ASSERT_GE(request.branches, 8);
  engine.pause();
  const std::int64_t before = live_bytes();
  const Engine::Submission submission = engine.submit(request);
  ASSERT_NE(submission.stream, nullptr);
  // The scheduler's, with its hashes, and the engine's own.
  EXPECT_LT(live_bytes() - before, std::int64_t{4 * kTokens * sizeof(TokenId)});
}

const ExecutorOptions kSmall{.context = 96, .sequences = 2, .batch_rows = 32};

// The end of a drain is on the engine's own thread, where what is thrown would end the process.
TEST_P(MemoryTest, ADrainEndsWhatItCannotGiveAReason) {
  const TempDir folder;
  const auto path = write_toy(GetParam(), folder.path(), {.context = 96});
  const auto device = make_device({.backend = "cpu", .threads = 2});
  const std::string why = "a reason that has no place in a string's own few bytes";
  int untold = 0;
  bool failed = true;
  for (long n = 0; failed; ++n) {
    std::atomic<bool> done = false;
    Engine engine(std::make_unique<Executor>(GgufFile::open(path), *device, kSmall));
    engine.pause();
    std::vector<Engine::Submission> waiting;
    for (int i = 0; i < 3; ++i) waiting.push_back(engine.submit(text_request({1, 2, 3}, 4)));
    DrainOptions options{.within = std::chrono::microseconds(0), .reason = why, .on_done = [&done] {
                           done = true;
                           done.notify_all();
                         }};
    fail_allocation(n);
    try {
      engine.drain(std::move(options));
    } catch (const std::bad_alloc&) {
      EXPECT_TRUE(fail_no_allocation());
      continue;
    }
    done.wait(false);
    failed = fail_no_allocation();
    for (const Engine::Submission& each : waiting) {
      std::optional<TokenEvent> last;
      while (auto event = each.stream->next()) last = std::move(event);
      ASSERT_TRUE(last && last->kind == TokenEvent::Kind::finished);
      if (last->reason == FinishReason::failed) continue;  // there was no memory for the event itself
      EXPECT_EQ(last->reason, FinishReason::cancelled);
      if (last->error.empty()) ++untold;
      EXPECT_TRUE(last->error.empty() || last->error == why) << last->error;
    }
  }
  EXPECT_GT(untold, 0);
}

TEST_P(MemoryTest, ALoadFailsWithAnError) {
  const TempDir folder;
  const auto path = write_toy(GetParam(), folder.path(), {.context = 96});
  const auto device = make_device({.backend = "cpu", .threads = 2});
  int errors = 0;
  const long allocations = fail_each_allocation([&](long) {
    try {
      const Engine engine(std::make_unique<Executor>(GgufFile::open(path), *device, kSmall));
    } catch (const std::bad_alloc&) {
      ++errors;
    } catch (const Error&) {
      ++errors;
    }
  });
  EXPECT_GT(allocations, 100);
  EXPECT_GT(errors, 100);
  Engine engine(std::make_unique<Executor>(GgufFile::open(path), *device, kSmall));
  EXPECT_EQ(ask(engine, text_request({1, 2, 3}, 2)).tokens.size(), 2u);
}

}  // namespace
}  // namespace quarrel::test
