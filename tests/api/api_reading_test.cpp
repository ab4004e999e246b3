// Answers that no thread waits for, read as they come: open, next, close, and a descriptor for event loops.
#include <poll.h>

#include <thread>

#include "api/api_support.h"

namespace quarrel::test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Kind = api::Event::Kind;

constexpr microseconds kNow{0};

bool readable(int descriptor, milliseconds wait) {
  pollfd entry{.fd = descriptor, .events = POLLIN, .revents = 0};
  return ::poll(&entry, 1, static_cast<int>(wait.count())) == 1;
}

class ApiReading : public ApiTest {
 protected:
  const api::GenerateResult whole_ = model_.generate(kPrompt, unending(40));
};

TEST_F(ApiReading, EventsAreTheAnswer) {
  api::Generation generation = model_.open(kPrompt, unending(40));
  std::string text;
  std::vector<api::Token> tokens;
  std::vector<Kind> kinds;
  while (const auto event = generation.next()) {
    kinds.push_back(event->kind);
    text += event->text;
    if (event->kind == Kind::piece && event->token != api::kNoToken) tokens.push_back(event->token);
    EXPECT_EQ(event->reason, event->kind == Kind::finished ? api::FinishReason::length : api::FinishReason::stop);
  }
  EXPECT_TRUE(generation.done());
  EXPECT_FALSE(generation.next());
  EXPECT_FALSE(generation.next(kNow));
  EXPECT_EQ(kinds.front(), Kind::started);
  EXPECT_EQ(kinds.back(), Kind::finished);
  EXPECT_EQ(text, whole_.text);
  EXPECT_EQ(tokens, whole_.tokens);
  const std::vector<api::GenerateResult> results = generation.wait();
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].text, text);
  EXPECT_EQ(results[0].tokens, tokens);
  EXPECT_EQ(results[0].logprobs, whole_.logprobs);
  EXPECT_EQ(results[0].prompt_tokens, whole_.prompt_tokens);
  EXPECT_GT(results[0].generate_seconds, 0.0);
}

TEST_F(ApiReading, NothingWithinTheTimeIsNotTheEnd) {
  const Gate gate;
  api::Generation generation = model_.open(kPrompt, held_at(gate, unending(4)));
  gate.wait_until_reached();
  while (generation.next(milliseconds(1))) continue;  // it may have been started
  EXPECT_FALSE(generation.done());
  EXPECT_FALSE(generation.next(kNow));
  EXPECT_FALSE(generation.next(microseconds(-5)));
  EXPECT_FALSE(generation.done());
  gate.open();
  const auto event = generation.next(microseconds::max());
  EXPECT_TRUE(event);
  EXPECT_EQ(generation.wait().front().tokens.size(), 4u);
  EXPECT_TRUE(generation.done());
}

TEST_F(ApiReading, ADescriptorSaysWhenThereIsSomethingToRead) {
  const Gate gate;
  api::Generation generation = model_.open(kPrompt, held_at(gate, unending(40)));
  gate.wait_until_reached();
  const int descriptor = generation.event_fd();
  EXPECT_EQ(generation.event_fd(), descriptor);
  while (generation.next(kNow)) continue;
  EXPECT_FALSE(readable(descriptor, milliseconds(0)));
  gate.open();
  std::string text;
  std::size_t wakings = 0;
  while (!generation.done()) {
    ASSERT_TRUE(readable(descriptor, std::chrono::seconds(60)));
    ++wakings;
    while (const auto event = generation.next(kNow)) text += event->text;
  }
  EXPECT_GE(wakings, 1u);
  EXPECT_EQ(text, whole_.text);
  EXPECT_TRUE(readable(descriptor, milliseconds(0)));  // the end can be read, too
}

// The descriptor may be asked for when everything has come already.
TEST_F(ApiReading, ADescriptorMayComeLate) {
  api::Generation generation = model_.open(kPrompt, unending(4));
  while (model_.metrics().finished < 2) std::this_thread::yield();
  const int descriptor = generation.event_fd();
  EXPECT_TRUE(readable(descriptor, milliseconds(0)));
  const auto one = generation.next();
  EXPECT_TRUE(one);
  EXPECT_TRUE(readable(descriptor, milliseconds(0)));
  generation.wait();
  EXPECT_TRUE(readable(descriptor, milliseconds(0)));
}

TEST_F(ApiReading, OneLoopReadsMany) {
  std::vector<api::Generation> generations;
  std::vector<pollfd> entries;
  std::vector<std::string> texts(6);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    generations.push_back(model_.open(kPrompt, unending(40)));
    entries.push_back({.fd = generations.back().event_fd(), .events = POLLIN, .revents = 0});
  }
  std::size_t open = generations.size();
  while (open > 0) {
    ASSERT_GT(::poll(entries.data(), entries.size(), 60'000), 0);
    for (std::size_t i = 0; i < generations.size(); ++i) {
      if (entries[i].fd < 0 || (entries[i].revents & POLLIN) == 0) continue;
      while (const auto event = generations[i].next(kNow)) texts[i] += event->text;
      if (!generations[i].done()) continue;
      entries[i].fd = -1;
      --open;
    }
  }
  for (const std::string& text : texts) EXPECT_EQ(text, whole_.text);
}

TEST_F(ApiReading, CancellingIsTheEndOfPieces) {
  api::Generation generation = model_.open(kPrompt, unending(-1));
  for (int i = 0; i < 4; ++i) generation.next();
  generation.cancel();
  std::size_t ends = 0;
  while (const auto event = generation.next()) {
    EXPECT_EQ(event->kind, Kind::finished);
    EXPECT_EQ(event->reason, api::FinishReason::cancelled);
    ++ends;
  }
  EXPECT_EQ(ends, 1u);
  EXPECT_EQ(generation.wait().front().tokens.size(), 3u);

  api::GenerateOptions options = unending(30);
  options.answers = 3;
  options.temperature = 1.5f;
  const auto alone = model_.generate_many(kPrompt, options);
  generation = model_.open(kPrompt, options);
  generation.cancel_answer(1);
  generation.cancel_answer(9);  // there is none
  const auto answers = generation.wait();
  EXPECT_EQ(answers[0].tokens, alone[0].tokens);
  EXPECT_EQ(answers[1].reason, api::FinishReason::cancelled);
  EXPECT_TRUE(answers[1].tokens.empty());
  EXPECT_EQ(answers[2].tokens, alone[2].tokens);
}

TEST_F(ApiReading, AnyThreadCancelsWhileAnotherWaits) {
  const Gate gate;
  api::GenerateOptions options = held_at(gate, unending(-1));
  options.cancel = api::CancelToken();
  api::Generation generation = model_.open(kPrompt, options);
  gate.wait_until_reached();
  auto reader = std::async(std::launch::async, [&] { return generation.wait(); });
  options.cancel->cancel();
  gate.open();
  const auto answers = reader.get();
  EXPECT_EQ(answers.front().reason, api::FinishReason::cancelled);
  EXPECT_TRUE(answers.front().tokens.empty());
}

// Closing ends what runs: the model has room again.
TEST_F(ApiReading, ClosingLetsGo) {
  std::vector<api::Generation> generations;
  for (int i = 0; i < 4; ++i) generations.push_back(model_.open(kPrompt, unending(-1)));
  generations[0].next();
  for (api::Generation& generation : generations) generation.close();
  EXPECT_TRUE(generations[0].done());
  EXPECT_FALSE(generations[0].next());
  EXPECT_TRUE(generations[0].wait().empty());
  generations[0].cancel();
  expect_api_error(api::ErrorKind::usage, "closed", [&] { generations[0].event_fd(); });
  EXPECT_EQ(model_.generate(kPrompt, unending(40)).text, whole_.text);
  EXPECT_EQ(model_.metrics().running + model_.metrics().waiting, 0);
  EXPECT_TRUE(api::Generation().done());
}

TEST_F(ApiReading, AGenerationKeepsItsModel) {
  api::Generation generation;
  {
    const api::Model other = api::Model::load(file_, small_load());
    generation = other.open(kPrompt, unending(40));
  }
  api::Generation moved = std::move(generation);
  EXPECT_TRUE(generation.done());  // NOLINT(bugprone-use-after-move): meant so
  EXPECT_EQ(moved.wait().front().text, whole_.text);
  moved = api::Generation();
  // In the middle of an answer, too.
  {
    const api::Model other = api::Model::load(file_, small_load());
    generation = other.open(kPrompt, unending(-1));
    generation.next();
  }
  generation.close();
}

TEST_F(ApiReading, WhatCannotBeBegunIsThrownAtOnce) {
  expect_api_error(api::ErrorKind::bad_input, "empty", [&] { model_.open(std::vector<api::Token>{}); });
  expect_api_error(api::ErrorKind::bad_input, "max_tokens", [&] { model_.open(kPrompt, {.max_tokens = -2}); });
}

// A mask is called by the model's own thread: to wait there would be to wait for ever.
TEST_F(ApiReading, TheModelsOwnThreadCannotWait) {
  std::string said;
  api::GenerateOptions options = unending(2);
  options.mask = [&](std::size_t, std::span<const api::Token>, std::span<std::uint64_t> allowed) {
    std::ranges::fill(allowed, ~std::uint64_t{0});
    try {
      model_.generate(kPrompt, unending(1));
    } catch (const api::Error& error) {
      said = error.what();
    }
  };
  EXPECT_EQ(model_.generate(kPrompt, options).tokens.size(), 2u);
  EXPECT_FALSE(said.empty());
}

}  // namespace
}  // namespace quarrel::test
