// Generations without a blocked thread: listeners on the engine's thread and on others, cancelling from everywhere, and
// models whose last holder lets go in a listener.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "session/embedding.h"
#include "session/session_support.h"
#include "unit/gguf_support.h"

namespace quarrel::test {
namespace {

// What was reported to a listener.
struct Reported {
  std::mutex mutex;
  GenerationResult result;
  std::size_t calls = 0;
  std::size_t pieces = 0;
  std::atomic<std::size_t> ends = 0;

  void add(std::span<GenerationEvent> events) {
    const std::scoped_lock lock(mutex);
    ++calls;
    for (GenerationEvent& event : events) {
      pieces += event.kind == GenerationEvent::Kind::piece;
      const bool end = event.kind == GenerationEvent::Kind::finished;
      result.add(event);
      ends += end;
    }
  }
};

class Listen : public ChatToy {
 protected:
  // An answer that never ends by itself.
  Ask endless() const {
    Ask made = ask(-1);
    made.overflow = Overflow::shift;
    return made;
  }
};

TEST_F(Listen, OnTheEnginesThread) {
  const auto reported = std::make_shared<Reported>();
  std::atomic<bool> elsewhere = false;
  Ask several = ask(20);
  several.answers = 3;
  const Generation generation = Generation::start(model_, several, [&, reported](std::span<GenerationEvent> events) {
    if (!model_->engine().on_engine_thread()) elsewhere = true;
    reported->add(events);
  });
  ASSERT_TRUE(eventually([&] { return generation.done(); }));
  EXPECT_FALSE(elsewhere);
  EXPECT_EQ(reported->ends, 3u);
  EXPECT_LT(reported->calls, reported->pieces);  // those of a step come together
  const GenerationResult expected = generate(model_, several);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(reported->result.answers[i].text, expected.answers[i].text);
}

// Tasks on a thread of its own, which may be slow.
class Pool {
 public:
  Pool() : thread_([this] { run(); }) {}
  ~Pool() {
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  void post(std::function<void()> task) {
    const std::scoped_lock lock(mutex_);
    ++posted;
    tasks_.push_back(std::move(task));
    changed_.notify_all();
  }
  std::atomic<std::size_t> posted = 0;

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      const auto task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::thread thread_;
};

TEST_F(Listen, OnAnotherThreadInOrder) {
  const auto reported = std::make_shared<Reported>();
  Pool pool;
  Ask several = ask(40);
  several.answers = 4;
  const Generation generation = Generation::start(
      model_, several, [reported](std::span<GenerationEvent> events) { reported->add(events); },
      [&pool](std::function<void()> task) { pool.post(std::move(task)); });
  ASSERT_TRUE(eventually([&] { return generation.done(); }));
  EXPECT_GT(pool.posted, 0u);
  const GenerationResult expected = generate(model_, several);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(reported->result.answers[i].tokens, expected.answers[i].tokens);
}

TEST_F(Listen, WhatCannotBePostedRunsAtOnce) {
  const auto reported = std::make_shared<Reported>();
  const Generation generation = Generation::start(
      model_, ask(5), [reported](std::span<GenerationEvent> events) { reported->add(events); },
      [](const std::function<void()>&) { throw std::runtime_error("the pool is gone"); });
  ASSERT_TRUE(eventually([&] { return generation.done(); }));
  EXPECT_EQ(reported->result.answers.at(0).tokens.size(), 5u);
}

TEST_F(Listen, CancelledFromAnotherThread) {
  const auto reported = std::make_shared<Reported>();
  Generation generation =
      Generation::start(model_, endless(), [reported](std::span<GenerationEvent> events) { reported->add(events); });
  ASSERT_TRUE(eventually([&] {
    const std::scoped_lock lock(reported->mutex);
    return reported->pieces > 2;
  }));
  generation.cancel();
  ASSERT_TRUE(eventually([&] { return generation.done(); }));
  EXPECT_EQ(reported->result.answers.at(0).reason, FinishReason::cancelled);
  EXPECT_EQ(reported->ends, 1u);
}

TEST_F(Listen, OneAnswerIsCancelledFromTheListener) {
  const auto reported = std::make_shared<Reported>();
  Ask several = ask(30);
  several.answers = 3;
  std::atomic<Generation*> self = nullptr;
  model_->engine().pause();
  Generation generation = Generation::start(model_, several, [reported, &self](std::span<GenerationEvent> events) {
    std::size_t pieces = 0;
    for (const GenerationEvent& event : events) pieces += event.answer == 1 && event.token >= 0;
    reported->add(events);
    if (pieces > 0) self.load()->cancel_answer(1);
  });
  self = &generation;
  model_->engine().resume();
  ASSERT_TRUE(eventually([&] { return generation.done(); }));
  const GenerationResult expected = generate(model_, several);
  EXPECT_EQ(reported->result.answers[1].reason, FinishReason::cancelled);
  EXPECT_LT(reported->result.answers[1].tokens.size(), 30u);
  for (const std::size_t i : {0u, 2u}) EXPECT_EQ(reported->result.answers[i].tokens, expected.answers[i].tokens);
}

TEST_F(Listen, AListenerThatThrowsHearsNoMore) {
  std::atomic<std::size_t> calls = 0;
  const Generation generation = Generation::start(model_, ask(-1), [&](std::span<GenerationEvent>) {
    ++calls;
    throw std::runtime_error("enough");
  });
  ASSERT_TRUE(eventually([&] { return generation.done(); }));
  ASSERT_TRUE(eventually([&] { return model_->engine().counters().scheduler.running == 0; }));
  EXPECT_EQ(calls, 1u);
}

TEST_F(Listen, WhoLetsGoEndsIt) {
  const auto reported = std::make_shared<Reported>();
  {
    const Generation generation =
        Generation::start(model_, endless(), [reported](std::span<GenerationEvent> events) { reported->add(events); });
    ASSERT_TRUE(eventually([&] {
      const std::scoped_lock lock(reported->mutex);
      return reported->pieces > 0;
    }));
  }
  ASSERT_TRUE(eventually([&] { return model_->engine().counters().scheduler.running == 0; }));
  EXPECT_EQ(reported->ends, 0u);
  ASSERT_TRUE(eventually([&] { return reported.use_count() == 1; }));  // the engine holds nothing either
}

TEST_F(Listen, AStreamIsReadWithATimeout) {
  model_->engine().pause();
  GenerationStream stream(model_, ask(3));
  EXPECT_FALSE(stream.next(std::chrono::milliseconds(1)));
  EXPECT_FALSE(stream.done());
  model_->engine().resume();
  GenerationResult result;
  while (auto event = stream.next()) result.add(*event);
  EXPECT_TRUE(stream.done());
  EXPECT_EQ(result.answers.at(0).tokens.size(), 3u);
}

TEST_F(Listen, WaitingOnTheEnginesThreadIsRefused) {
  std::atomic<bool> refused = false;
  const Generation generation = Generation::start(model_, ask(1), [&](std::span<GenerationEvent>) {
    try {
      generate(model_, ask(1));
    } catch (const Error& error) {
      refused = error.kind() == ErrorKind::internal;
    }
  });
  ASSERT_TRUE(eventually([&] { return generation.done(); }));
  EXPECT_TRUE(refused);
}

TEST_F(Listen, CollectingEndsWhenNobodyWantsMore) {
  std::size_t events = 0;
  const GenerationResult refused =
      generate(model_, endless(), {.on_event = [&](const GenerationEvent&) { return ++events < 5; }});
  EXPECT_EQ(refused.answers[0].reason, FinishReason::cancelled);
  EXPECT_EQ(events, 5u) << "nobody is asked again";
  EXPECT_LT(refused.answers[0].tokens.size(), 20'000u) << "some came before it heard of that";
  std::atomic<bool> stop = false;
  const GenerationResult polled = generate(model_, endless(),
                                           {.on_event =
                                                [&](const GenerationEvent&) {
                                                  stop = true;
                                                  return true;
                                                },
                                            .cancelled = [&] { return stop.load(); }});
  EXPECT_EQ(polled.answers[0].reason, FinishReason::cancelled);
}

// ---- lifetimes ----

// The last one who holds the model is the listener, on the engine's thread.
TEST_F(Listen, TheLastHolderMayLetGoOnTheEnginesThread) {
  for (int i = 0; i < 20; ++i) {
    auto model = load_toy(model_->path());
    const std::weak_ptr<LoadedModel> watched = model;
    auto held = std::make_shared<std::shared_ptr<LoadedModel>>(model);
    model->engine().pause();
    auto generation = std::make_shared<Generation>();
    *generation = Generation::start(model, ask(3), [held, generation](std::span<GenerationEvent> events) {
      for (const GenerationEvent& event : events) {
        if (event.kind != GenerationEvent::Kind::finished) continue;
        held->reset();
        *generation = {};
      }
    });
    generation.reset();
    model->engine().resume();
    model.reset();
    ASSERT_TRUE(eventually([&] { return watched.expired(); }));
  }
}

TEST_F(Listen, ARegistryMayRetireModelsItself) {
  std::atomic<int> retired = 0;
  std::thread::id where;
  LoadOptions options;
  options.retire = [&](std::unique_ptr<LoadedModel> ending) {
    where = std::this_thread::get_id();
    std::thread([owned = std::move(ending)]() mutable { owned.reset(); }).join();
    ++retired;
  };
  load_toy(model_->path(), options).reset();
  EXPECT_EQ(retired, 1);
  EXPECT_EQ(where, std::this_thread::get_id());
}

// The engine still holds what listened for a moment after the end, but not the model with it.
TEST_F(Listen, WhoWaitedForTheEndEndsTheModel) {
  for (int i = 0; i < 30; ++i) {
    std::thread::id where;
    LoadOptions options;
    options.retire = [&](const std::unique_ptr<LoadedModel>&) { where = std::this_thread::get_id(); };
    auto model = load_toy(model_->path(), options);
    if (i % 3 == 0) {
      embed(model, std::vector<std::string>{"some", "texts"});
    } else {
      Ask short_ask = ask(5);
      if (i % 3 == 1) short_ask.stop = {generate(model, short_ask).answers[0].text.substr(0, 1)};
      generate(model, short_ask);
    }
    model.reset();
    ASSERT_EQ(where, std::this_thread::get_id()) << i;
  }
}

TEST_F(Listen, AModelOutlivesWhatItAnswers) {
  auto model = load_toy(model_->path());
  const auto reported = std::make_shared<Reported>();
  const Generation generation =
      Generation::start(model, ask(50), [reported](std::span<GenerationEvent> events) { reported->add(events); });
  model.reset();
  ASSERT_TRUE(eventually([&] { return generation.done(); }));
  EXPECT_EQ(reported->result.answers.at(0).tokens.size(), 50u);
}

}  // namespace
}  // namespace quarrel::test
