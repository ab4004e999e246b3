// An engine that is to end: what it still serves, what it says of what it does not, and when it says that it is done.
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "base/error.h"
#include "engine/served.h"
#include "support/temp_dir.h"
#include "support/toy_model.h"

namespace quarrel::test {
namespace {

class Drain : public testing::Test {
 protected:
  Drain() : served_(write_toy("llama", folder_.path(), {.context = 4096}), 4096, 64, {.sequences = 2}) {}
  Engine& engine() { return served_.engine(); }
  EngineRequest request(std::int32_t tokens, std::uint32_t seed = 1) const {
    return text_request(random_tokens(20, served_.vocabulary(), seed), tokens);
  }

  TempDir folder_;
  Served served_;
};

TEST_F(Drain, ServesWhatItHasAndTakesNoMore) {
  engine().pause();
  std::vector<Engine::Submission> submissions;
  for (std::uint32_t i = 0; i < 5; ++i) submissions.push_back(engine().submit(request(10, i)));
  std::promise<void> done;
  engine().drain({.on_done = [&] { done.set_value(); }});
  EXPECT_EQ(engine().submit(request(5)).result.status, SubmitStatus::draining);
  done.get_future().wait();
  for (Engine::Submission& each : submissions) {
    // All of it is there already: nothing is waited for.
    std::size_t tokens = 0;
    while (const auto event = each.stream->next_within({})) tokens += event->kind == TokenEvent::Kind::token ? 1u : 0u;
    EXPECT_TRUE(each.stream->done());
    EXPECT_EQ(tokens, 10u);
  }
}

// What counts as done is that the last sink has run, not that the last request has ended.
TEST_F(Drain, IsOverWhenTheLastSinkHasRun) {
  for (std::uint32_t round = 0; round < 20; ++round) {
    Served served(folder_.path() / "llama.gguf", 256, 64, {.sequences = 2});
    std::atomic<bool> left{false};
    served.engine().submit(request(2, round), calling([&](const TokenEvent& event) {
                             if (event.kind != TokenEvent::Kind::finished) return;
                             std::this_thread::sleep_for(std::chrono::milliseconds(3));
                             left = true;
                           }));
    served.engine().drain_and_wait();
    EXPECT_TRUE(left);
  }
}

TEST_F(Drain, MayBeCalledFromASink) {
  std::promise<void> done;
  std::atomic<bool> refused{false};
  engine().submit(request(3), calling([&](const TokenEvent& event) {
                    if (event.kind != TokenEvent::Kind::started) return;
                    engine().drain({.on_done = [&] { done.set_value(); }});
                    try {
                      engine().drain_and_wait();
                    } catch (const Error& error) {
                      refused = error.kind() == ErrorKind::internal;
                    }
                  }));
  done.get_future().wait();
  EXPECT_TRUE(refused);
}

TEST_F(Drain, EndsWithAReasonWhatTakesTooLong) {
  engine().pause();
  std::vector<Engine::Submission> submissions;
  for (std::uint32_t i = 0; i < 4; ++i) {
    EngineRequest endless = request(-1, i);
    endless.overflow = Overflow::shift;
    submissions.push_back(engine().submit(endless));
  }
  engine().drain_and_wait({.within = std::chrono::milliseconds(1), .reason = "the server goes home"});
  for (Engine::Submission& each : submissions) {
    const Answer answer = read_answers(*each.stream).front();
    EXPECT_EQ(answer.reason, FinishReason::cancelled);
    EXPECT_EQ(answer.error, "the server goes home");
    EXPECT_EQ(answer.endings, 1);
  }
}

TEST_F(Drain, CancelAllEndsEverybodyAndTakesMore) {
  std::vector<Engine::Submission> submissions;
  for (std::uint32_t i = 0; i < 4; ++i) {
    EngineRequest endless = request(-1, i);
    endless.overflow = Overflow::shift;
    submissions.push_back(engine().submit(endless));
  }
  engine().cancel_all(FinishReason::cancelled, "enough");
  for (Engine::Submission& each : submissions) {
    const Answer answer = read_answers(*each.stream).front();
    EXPECT_EQ(answer.reason, FinishReason::cancelled);
    EXPECT_EQ(answer.error, "enough");
  }
  EXPECT_EQ(ask(engine(), request(3)).tokens.size(), 3u);
}

}  // namespace
}  // namespace quarrel::test
