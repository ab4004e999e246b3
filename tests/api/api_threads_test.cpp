// Several threads on one model: nobody's answer changes, and anybody's can be ended by another. Small, because it also
// runs under the thread sanitizer.
#include <array>
#include <atomic>
#include <future>
#include <thread>

#include "api/api_support.h"

namespace quarrel::test {
namespace {

using ApiThreads = ApiTest;

TEST_F(ApiThreads, EachGivesWhatItGivesAlone) {
  struct Case {
    std::string prompt;
    api::GenerateOptions options;
  };
  std::vector<Case> cases;
  for (const char* prompt : {"Hello", "What is the world", " of the and", "Hello"}) {
    api::GenerateOptions options = unending(24);
    options.temperature = cases.size() % 2 == 0 ? 0.0f : 1.5f;
    options.seed = cases.size();
    cases.push_back({.prompt = prompt, .options = options});
  }
  std::vector<api::GenerateResult> alone;
  alone.reserve(cases.size());
  for (const Case& one : cases) {
    alone.push_back(api::Model::load(file_, small_load()).generate(one.prompt, one.options));
  }
  std::vector<api::GenerateResult> together(cases.size());
  std::vector<std::thread> threads;
  threads.reserve(cases.size());
  for (std::size_t i = 0; i < cases.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 2; ++round) together[i] = model_.generate(cases[i].prompt, cases[i].options);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(together[i].tokens, alone[i].tokens) << i;
    EXPECT_EQ(together[i].text, alone[i].text) << i;
  }
}

TEST_F(ApiThreads, AnotherThreadEndsAnAnswer) {
  api::GenerateOptions options = unending(-1);
  options.cancel = api::CancelToken();
  std::promise<void> begun;
  std::promise<void> cancelled;
  std::thread other([&, cancel = *options.cancel] {
    begun.get_future().wait();
    cancel.cancel();
    cancelled.set_value();
  });
  std::size_t calls = 0;
  const api::GenerateResult result = model_.generate("Hello", options, [&](const api::Piece&) {
    if (++calls == 3) {
      begun.set_value();
      cancelled.get_future().wait();
    }
    return true;
  });
  other.join();
  EXPECT_EQ(calls, 3u);
  EXPECT_EQ(result.tokens.size(), 3u);
  EXPECT_EQ(result.reason, api::FinishReason::cancelled);
  EXPECT_TRUE(options.cancel->cancelled());
  // Nothing begins with it any more, and the model goes on.
  const api::GenerateResult none = model_.generate("Hello", options);
  EXPECT_EQ(none.reason, api::FinishReason::cancelled);
  EXPECT_TRUE(none.tokens.empty());
  EXPECT_EQ(model_.generate("Hello", unending(4)).tokens.size(), 4u);
}

// Two run, the others wait their turn: one token ends them all wherever they are.
TEST_F(ApiThreads, OneTokenEndsManyAnswers) {
  const api::CancelToken cancel;
  std::array<api::FinishReason, 5> reasons{};
  std::vector<std::thread> threads;
  threads.reserve(reasons.size());
  std::atomic<bool> begun = false;
  for (api::FinishReason& reason : reasons) {
    threads.emplace_back([&] {
      api::GenerateOptions options = unending(-1);
      options.cancel = cancel;
      reason = model_
                   .generate("Hello", options,
                             [&](const api::Piece&) {
                               begun = true;
                               while (!cancel.cancelled()) std::this_thread::yield();
                               return true;
                             })
                   .reason;
    });
  }
  while (!begun) std::this_thread::yield();
  cancel.cancel();
  for (std::thread& thread : threads) thread.join();
  for (const api::FinishReason reason : reasons) EXPECT_EQ(reason, api::FinishReason::cancelled);
}

TEST(ApiCancelToken, OneThatWasMovedCancelsNothing) {
  api::CancelToken from;
  const api::CancelToken to = std::move(from);
  from.cancel();  // NOLINT(bugprone-use-after-move): meant so
  EXPECT_FALSE(from.cancelled());
  EXPECT_FALSE(to.cancelled());
  to.cancel();
  EXPECT_TRUE(to.cancelled());
}

TEST(ApiEmbeddingThreads, EachGetsWhatItGetsAlone) {
  const TempDir folder;
  const api::Model model = api::Model::load(write_toy_embed(folder.path()).string(), small_load());
  const std::vector<std::string> texts{"the long search query", "a fox"};
  const auto alone = model.embed(texts);
  std::array<std::vector<api::Embedding>, 3> beside;
  std::vector<std::thread> threads;
  threads.reserve(beside.size());
  for (auto& embeddings : beside) threads.emplace_back([&] { embeddings = model.embed(texts); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& embeddings : beside) {
    ASSERT_EQ(embeddings.size(), alone.size());
    for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_EQ(embeddings[i].values, alone[i].values);
  }
}

}  // namespace
}  // namespace quarrel::test
