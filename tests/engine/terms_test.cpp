// What a request says of its place among others reaches the scheduler: key, salt, pins, priority. And one sink hears of
// all its requests in one call a step.
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <set>

#include "engine/served.h"
#include "support/temp_dir.h"
#include "support/toy_model.h"

namespace quarrel::test {
namespace {

class Terms : public testing::Test {
 protected:
  Terms() : model_(write_toy("llama", folder_.path(), {.context = 256})) {}
  static EngineRequest request(const Served& served, std::size_t prompt, std::int32_t tokens, std::uint32_t seed) {
    return text_request(random_tokens(prompt, served.vocabulary(), seed), tokens);
  }

  TempDir folder_;
  std::filesystem::path model_;
};

TEST_F(Terms, TextsOfDifferentSaltsShareNothing) {
  Served served(model_, 256, 64, {.sequences = 2});
  EngineRequest salted = request(served, 64, 2, 1);
  salted.salt = 1;
  EXPECT_EQ(ask(served.engine(), salted).cached, 0);
  EXPECT_EQ(ask(served.engine(), salted).cached, 48);
  salted.salt = 2;
  EXPECT_EQ(ask(served.engine(), salted).cached, 0);
}

TEST_F(Terms, APinnedPrefixOutlivesTheOthers) {
  for (const bool pinned : {true, false}) {
    // Blocks for ten of these texts.
    Served served(model_, 256, 64, {.sequences = 2, .cache_tokens = 640});
    EngineRequest kept = request(served, 64, 2, 1);
    kept.pinned = pinned ? 64 : 0;
    ask(served.engine(), kept);
    for (std::uint32_t i = 0; i < 40; ++i) ask(served.engine(), request(served, 64, 2, 100 + i));
    EXPECT_EQ(ask(served.engine(), kept).cached, pinned ? 48 : 0);
  }
}

// One place, eight requests of one key before one of another: it is the other's turn after the first of them.
TEST_F(Terms, KeysShareTheMachine) {
  Served served(model_, 256, 64, {.sequences = 1});
  std::vector<std::uint64_t> order;
  std::promise<void> done;
  const auto sink = calling([&](const TokenEvent& event) {
    if (event.kind == TokenEvent::Kind::started) order.push_back(event.request);
    if (event.kind == TokenEvent::Kind::finished && order.size() == 9) done.set_value();
  });
  served.engine().pause();
  for (std::uint32_t i = 0; i < 8; ++i) {
    EngineRequest greedy = request(served, 20, 4, i);
    greedy.key = 1;
    served.engine().submit(greedy, sink);
  }
  EngineRequest modest = request(served, 20, 4, 50);
  modest.key = 2;
  const RequestId id = served.engine().submit(modest, sink).id;
  served.engine().resume();
  done.get_future().wait();
  EXPECT_LE(std::ranges::find(order, id) - order.begin(), 1);
}

TEST_F(Terms, ASinkHearsOfAStepInOneCall) {
  class Counting final : public EventSink {
   public:
    void take(std::span<TokenEvent> events) override {
      ++calls;
      std::set<RequestId> requests;
      for (const TokenEvent& event : events) {
        requests.insert(event.request);
        if (event.kind == TokenEvent::Kind::token) tokens[event.request] += 1;
        if (event.kind == TokenEvent::Kind::finished && ++ended == 6) done.set_value();
      }
      most = std::max(most, requests.size());
    }
    std::size_t calls = 0, most = 0, ended = 0;
    std::map<RequestId, int> tokens;
    std::promise<void> done;
  };
  Served served(model_, 256, 256, {.sequences = 6});
  const auto sink = std::make_shared<Counting>();
  served.engine().pause();
  for (std::uint32_t i = 0; i < 6; ++i) served.engine().submit(request(served, 10, 40, i), sink);
  const std::uint64_t before = served.engine().counters().scheduler.steps;
  served.engine().resume();
  sink->done.get_future().wait();
  served.engine().drain_and_wait();
  const std::uint64_t steps = served.engine().counters().scheduler.steps - before;
  EXPECT_EQ(sink->most, 6u);
  EXPECT_LE(sink->calls, steps + 1);
  for (const auto& [id, tokens] : sink->tokens) EXPECT_EQ(tokens, 40) << id;
}

// A request that comes while the end of another is reported wakes the engine: it does not wait for a look at deadlines,
// which here would come in an hour.
TEST_F(Terms, WhatASinkSubmitsBeginsAtOnce) {
  Served served(model_, 256, 64, {.sequences = 2, .deadline_check = std::chrono::hours(1)});
  std::promise<void> done;
  EngineRequest late = request(served, 20, 5, 1);
  late.timeout = std::chrono::microseconds(1);
  served.engine().submit(late, calling([&](const TokenEvent& event) {
                           if (event.kind != TokenEvent::Kind::finished) return;
                           EXPECT_EQ(event.reason, FinishReason::timeout);
                           served.engine().submit(request(served, 20, 5, 2), calling([&](const TokenEvent& next) {
                                                    if (next.kind == TokenEvent::Kind::finished) done.set_value();
                                                  }));
                         }));
  EXPECT_EQ(done.get_future().wait_for(std::chrono::minutes(1)), std::future_status::ready);
}

// A sink that throws ends its requests, and nobody else's.
TEST_F(Terms, ASinkThatThrowsEndsItsOwn) {
  Served served(model_, 256, 64, {.sequences = 4});
  const Answer expected = ask(served.engine(), request(served, 20, 30, 5));
  std::atomic<int> reported{0};
  served.engine().pause();
  served.engine().submit(request(served, 20, 30, 1), calling([&](const TokenEvent&) {
                           ++reported;
                           throw std::runtime_error("the line is cut");
                         }));
  const Engine::Submission other = served.engine().submit(request(served, 20, 30, 5));
  served.engine().resume();
  EXPECT_EQ(read_answers(*other.stream).front(), expected);
  served.engine().drain_and_wait();
  // It hears of a start, of its end, and perhaps of a token between the two.
  EXPECT_LE(reported, 3);
}

}  // namespace
}  // namespace quarrel::test
