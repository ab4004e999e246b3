// Answers that call back, on a thread of the model's for callbacks: pieces, ends, and what may be done from there.
#include <atomic>
#include <future>
#include <mutex>
#include <thread>

#include "api/api_support.h"

namespace quarrel::test {
namespace {

using Kind = api::Event::Kind;
using Answers = std::vector<api::GenerateResult>;

class ApiCallbacks : public ApiTest {
 protected:
  // Its answers, when they have come.
  static std::function<void(const Answers&)> keep(std::promise<Answers>& promise) {
    return [&promise](const Answers& answers) { promise.set_value(answers); };
  }
  const api::GenerateResult whole_ = model_.generate(kPrompt, unending(40));
};

TEST_F(ApiCallbacks, BringTheAnswer) {
  std::string text;
  std::vector<Kind> kinds;
  std::promise<Answers> done;
  std::thread::id thread;
  api::Generation generation = model_.start(kPrompt, unending(40),
                                            {.on_event =
                                                 [&](const api::Event& event) {
                                                   thread = std::this_thread::get_id();
                                                   text += event.text;
                                                   kinds.push_back(event.kind);
                                                   return true;
                                                 },
                                             .on_done = keep(done)});
  const Answers answers = done.get_future().get();
  EXPECT_NE(thread, std::this_thread::get_id());
  EXPECT_EQ(kinds.front(), Kind::started);
  EXPECT_EQ(kinds.back(), Kind::finished);
  EXPECT_EQ(text, whole_.text);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].tokens, whole_.tokens);
  EXPECT_EQ(answers[0].prompt_tokens, whole_.prompt_tokens);
  EXPECT_EQ(generation.wait().front().text, text);
  EXPECT_TRUE(generation.done());
  expect_api_error(api::ErrorKind::usage, "calls back", [&] { generation.next(); });
  expect_api_error(api::ErrorKind::usage, "calls back", [&] { generation.event_fd(); });
}

TEST_F(ApiCallbacks, ComeOneAtATimeForMany) {
  std::atomic<int> inside = 0;
  std::atomic<int> ended = 0;
  std::vector<std::string> texts(8);
  std::vector<api::Generation> generations;
  for (std::string& text : texts) {
    generations.push_back(model_.start(kPrompt, unending(40),
                                       {.on_event =
                                            [&](const api::Event& event) {
                                              EXPECT_EQ(++inside, 1);
                                              text += event.text;
                                              --inside;
                                              return true;
                                            },
                                        .on_done = [&](const Answers&) { ++ended; }}));
  }
  for (api::Generation& generation : generations) generation.wait();
  EXPECT_EQ(ended, 8);
  for (const std::string& text : texts) EXPECT_EQ(text, whole_.text);
}

// Whoever only wants to know when it is over, and whoever wants to know nothing.
TEST_F(ApiCallbacks, AreBothOptional) {
  std::promise<Answers> done;
  const api::Generation generation = model_.start(kPrompt, unending(40), {.on_done = keep(done)});
  EXPECT_EQ(done.get_future().get().front().text, whole_.text);
  api::Generation silent = model_.start(kPrompt, unending(40), {});
  EXPECT_EQ(silent.wait().front().text, whole_.text);
}

TEST_F(ApiCallbacks, FalseEndsOneAnswer) {
  api::GenerateOptions options = unending(30);
  options.answers = 3;
  options.temperature = 1.5f;
  const Answers alone = model_.generate_many(kPrompt, options);
  std::size_t pieces = 0;
  api::Generation generation = model_.start(kPrompt, options, {.on_event = [&](const api::Event& event) {
                                              if (event.kind != Kind::piece || event.answer != 1) return true;
                                              return ++pieces < 4;
                                            }});
  const Answers answers = generation.wait();
  EXPECT_EQ(pieces, 4u);
  EXPECT_EQ(answers[0].tokens, alone[0].tokens);
  EXPECT_EQ(answers[1].tokens.size(), 4u);
  EXPECT_EQ(answers[1].reason, api::FinishReason::cancelled);
  EXPECT_EQ(answers[2].tokens, alone[2].tokens);
}

TEST_F(ApiCallbacks, MayCancelInEveryWay) {
  for (const int way : {0, 1, 2}) {
    api::GenerateOptions options = unending(-1);
    options.cancel = api::CancelToken();
    std::promise<void> known;
    auto is_known = known.get_future().share();
    api::Generation generation;
    std::size_t pieces = 0;
    std::promise<Answers> done;
    generation = model_.start(kPrompt, options,
                              {.on_event =
                                   [&](const api::Event& event) {
                                     is_known.wait();
                                     if (event.kind != Kind::piece || ++pieces < 3) return true;
                                     if (way == 0) generation.cancel();
                                     if (way == 1) generation.cancel_answer(0);
                                     if (way == 2) options.cancel->cancel();
                                     return true;
                                   },
                               .on_done = keep(done)});
    known.set_value();
    const Answers answers = done.get_future().get();
    EXPECT_EQ(pieces, 3u) << way;
    EXPECT_EQ(answers.front().tokens.size(), 3u) << way;
    EXPECT_EQ(answers.front().reason, api::FinishReason::cancelled) << way;
  }
}

// A callback may close its own generation, even where that is the last that holds the model.
TEST_F(ApiCallbacks, MayCloseTheirGeneration) {
  std::promise<void> known;
  auto is_known = known.get_future().share();
  std::promise<void> closed;
  auto generation = std::make_unique<api::Generation>();
  std::atomic<int> calls = 0;
  {
    const api::Model last = api::Model::load(file_, small_load());
    *generation = last.start(kPrompt, unending(-1),
                             {.on_event =
                                  [&](const api::Event&) {
                                    is_known.wait();
                                    ++calls;
                                    generation.reset();
                                    closed.set_value();
                                    return true;
                                  },
                              .on_done = [&](const Answers&) { ++calls; }});
  }
  known.set_value();
  closed.get_future().wait();
  EXPECT_EQ(generation, nullptr);
  EXPECT_EQ(calls, 1);
}

TEST_F(ApiCallbacks, ClosingWaitsForTheOneThatRuns) {
  std::promise<void> inside;
  std::promise<void> released;
  std::atomic<bool> left = false;
  std::atomic<int> calls = 0;
  api::Generation generation = model_.start(kPrompt, unending(-1), {.on_event = [&](const api::Event&) {
                                              if (++calls == 1) {
                                                inside.set_value();
                                                released.get_future().wait();
                                                left = true;
                                              }
                                              return true;
                                            }});
  inside.get_future().wait();
  std::thread closer([&] {
    generation.close();
    EXPECT_TRUE(left);
  });
  released.set_value();
  closer.join();
  const int after = calls;
  EXPECT_EQ(model_.generate(kPrompt, unending(40)).text, whole_.text);
  EXPECT_EQ(calls, after);
}

TEST_F(ApiCallbacks, MayUseTheModelAndStartMore) {
  std::promise<Answers> second_done;
  std::promise<Answers> done;
  api::Generation second;
  std::string inner;
  const api::Generation first =
      model_.start(kPrompt, unending(4),
                   {.on_event =
                        [&](const api::Event& event) {
                          if (event.kind != Kind::finished) return true;
                          inner = model_.generate(kPrompt, unending(40)).text;
                          second = model_.start(kPrompt, unending(40), {.on_done = keep(second_done)});
                          return true;
                        },
                    .on_done = keep(done)});
  done.get_future().wait();
  EXPECT_EQ(second_done.get_future().get().front().text, whole_.text);
  EXPECT_EQ(inner, whole_.text);
}

TEST_F(ApiCallbacks, WhatTheyThrowEndsTheirGenerationAlone) {
  std::mutex mutex;
  std::vector<std::string> lines;
  api::LoadOptions load = small_load();
  load.warning = [&](std::string_view line) {
    const std::scoped_lock lock(mutex);
    lines.emplace_back(line);
  };
  const api::Model model = api::Model::load(file_, load);
  std::promise<Answers> done;
  std::size_t calls = 0;
  api::Generation throwing = model.start(kPrompt, unending(-1),
                                         {.on_event = [&](const api::Event& event) -> bool {
                                            ++calls;
                                            if (event.kind != Kind::piece) return true;
                                            throw std::out_of_range("mine");
                                          },
                                          .on_done = keep(done)});
  api::Generation other = model.start(kPrompt, unending(40), {});
  const Answers answers = done.get_future().get();
  EXPECT_EQ(answers.front().reason, api::FinishReason::cancelled);
  EXPECT_NE(answers.front().error.find("mine"), std::string::npos);
  EXPECT_EQ(calls, 2u);
  EXPECT_EQ(other.wait().front().text, whole_.text);
  throwing.wait();
  const std::scoped_lock lock(mutex);
  ASSERT_FALSE(lines.empty());
  EXPECT_NE(lines.back().find("mine"), std::string::npos);
}

TEST_F(ApiCallbacks, CannotWaitForTheirOwnEnd) {
  std::promise<void> known;
  auto is_known = known.get_future().share();
  std::string said;
  api::Generation generation;
  generation = model_.start(kPrompt, unending(2), {.on_event = [&](const api::Event& event) {
                              is_known.wait();
                              if (event.kind != Kind::started) return true;
                              try {
                                generation.wait();
                              } catch (const api::Error& error) {
                                said = error.what();
                              }
                              return true;
                            }});
  known.set_value();
  generation.wait();
  EXPECT_NE(said.find("cannot wait"), std::string::npos) << said;
}

}  // namespace
}  // namespace quarrel::test
