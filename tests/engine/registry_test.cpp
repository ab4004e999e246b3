// Models that come and go: within a budget, by age, for as long as somebody holds them, and exchanged under load.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <thread>

#include "backend/create.h"
#include "base/error.h"
#include "engine/answers.h"
#include "engine/model_registry.h"
#include "support/rewritten_toy.h"
#include "support/temp_dir.h"
#include "support/toy_model.h"

namespace quarrel::test {
namespace {

class RegistryTest : public testing::Test {
 protected:
  RegistryTest() : device_(make_device({.backend = "cpu", .threads = 2})) {
    for (const char* toy : {"llama", "qwen3", "granite"}) write_toy(toy, folder_.path(), {.context = 96});
  }

  std::filesystem::path file(const std::string& name) const { return folder_.path() / (name + ".gguf"); }
  static ExecutorOptions executor_options() { return {.context = 96, .sequences = 2, .batch_rows = 32}; }
  std::uint64_t bytes_of(const std::string& name) const {
    return plan_memory(GgufFile::open(file(name)), *device_, executor_options()).total();
  }
  std::unique_ptr<ModelRegistry> registry(std::uint64_t budget,
                                          std::chrono::milliseconds patience = std::chrono::seconds(10)) {
    return std::make_unique<ModelRegistry>(*device_, RegistryOptions{.executor = executor_options(),
                                                                     .budget = budget,
                                                                     .keep_alive = std::chrono::minutes(1),
                                                                     .patience = patience,
                                                                     .resolve =
                                                                         [this](const std::string& name) {
                                                                           if (!std::filesystem::exists(file(name))) {
                                                                             fail(ErrorKind::not_found,
                                                                                  "no model is called '{}'", name);
                                                                           }
                                                                           return file(name);
                                                                         },
                                                                     .on_event =
                                                                         [this](const LoadEvent& event) {
                                                                           const std::scoped_lock lock(mutex_);
                                                                           events_.push_back(event);
                                                                           if (event.kind == refused_) {
                                                                             fail(ErrorKind::cancelled, "no more");
                                                                           }
                                                                         }});
  }
  static std::vector<std::string> names(const ModelRegistry& registry) {
    std::vector<std::string> all;
    for (const ModelRegistry::Status& status : registry.list()) all.push_back(status.name);
    return all;
  }
  int count(LoadEvent::Kind kind) {
    const std::scoped_lock lock(mutex_);
    return static_cast<int>(std::ranges::count(events_, kind, &LoadEvent::kind));
  }
  // A model that can be loaded, but whose numbers are not finite.
  std::filesystem::path write_mute() const {
    ToyRewriter toy("llama", {.context = 96});
    toy.change = [](const ToyTensor& tensor, ToyRewriter& to) {
      if (tensor.name != "blk.1.ffn_down.weight") return to.keep(tensor);
      std::vector<std::byte> bytes = tensor.bytes;
      const float poison = std::numeric_limits<float>::quiet_NaN();
      std::memcpy(bytes.data(), &poison, sizeof poison);
      to.add_bytes(tensor.name, tensor.type, tensor.shape, std::move(bytes));
    };
    return toy.write(file("mute"));
  }
  static GenerateRequest request() { return {.prompt = {1, 2, 3, 4, 5}, .max_tokens = 8}; }

  TempDir folder_;
  std::unique_ptr<Device> device_;
  std::mutex mutex_;
  std::vector<LoadEvent> events_;
  std::optional<LoadEvent::Kind> refused_;  // whoever is told of it ends the load
};

using Names = std::vector<std::string>;

TEST_F(RegistryTest, LoadsOnceAndTellsHowFarItIs) {
  const auto models = registry(0);
  const ModelRegistry::Lease first = models->acquire("llama");
  EXPECT_EQ(models->acquire("llama"), first);
  EXPECT_EQ(ask(first->engine(), request()).tokens.size(), 8u);
  EXPECT_EQ(count(LoadEvent::Kind::loading), 1);
  EXPECT_EQ(count(LoadEvent::Kind::ready), 1);
  EXPECT_TRUE(models->list().front().in_use);
  EXPECT_EQ(models->bytes_used(), bytes_of("llama"));
}

TEST_F(RegistryTest, TheOldestGoesWhenAnotherNeedsTheRoom) {
  const std::uint64_t two = bytes_of("llama") + std::max(bytes_of("qwen3"), bytes_of("granite"));
  const auto models = registry(two);
  models->acquire("llama");
  models->acquire("qwen3");
  models->acquire("llama");
  models->acquire("granite");
  EXPECT_EQ(names(*models), (Names{"granite", "llama"}));
  EXPECT_LE(models->bytes_used(), two);
  // One in use stays, whatever its age.
  const ModelRegistry::Lease held = models->acquire("llama");
  models->acquire("granite");
  models->acquire("qwen3");
  EXPECT_EQ(names(*models), (Names{"llama", "qwen3"}));
}

TEST_F(RegistryTest, WaitsForRoomOrSaysThatThereIsNone) {
  const std::uint64_t one = std::max({bytes_of("llama"), bytes_of("qwen3")});
  const auto models = registry(one, std::chrono::milliseconds(60));
  {
    const ModelRegistry::Lease held = models->acquire("llama");
    EXPECT_THROW(models->acquire("qwen3"), Error);
    EXPECT_EQ(names(*models), Names{"llama"});
  }
  EXPECT_NE(models->acquire("qwen3"), nullptr);
  EXPECT_EQ(names(*models), Names{"qwen3"});
  const auto tiny = registry(4096);
  EXPECT_THROW(tiny->acquire("llama"), Error);
  EXPECT_TRUE(names(*tiny).empty());
}

TEST_F(RegistryTest, AFailedLoadIsToldAndForgotten) {
  const auto models = registry(0);
  EXPECT_THROW(models->acquire("nothing"), Error);
  std::ofstream(file("broken")) << "GGUF, but not really";
  EXPECT_THROW(models->acquire("broken"), Error);
  EXPECT_TRUE(models->list().empty());
  std::filesystem::copy_file(file("llama"), file("broken"), std::filesystem::copy_options::overwrite_existing);
  EXPECT_NE(models->acquire("broken"), nullptr);
}

TEST_F(RegistryTest, UnusedModelsExpire) {
  const auto models = registry(0);
  models->acquire("qwen3");
  const ModelRegistry::Lease held = models->acquire("llama");
  const auto later = Clock::now() + std::chrono::minutes(2);
  models->expire(Clock::now() + std::chrono::seconds(30));
  EXPECT_EQ(models->list().size(), 2u);
  models->expire(later);
  EXPECT_EQ(names(*models), Names{"llama"});
  EXPECT_EQ(count(LoadEvent::Kind::unloaded), 1);
  EXPECT_FALSE(models->unload("qwen3"));
}

TEST_F(RegistryTest, AnExchangeDropsNoRequest) {
  const auto models = registry(0);
  ModelRegistry::Lease old = models->acquire("llama");
  const Answer before = ask(old->engine(), request());
  GenerateRequest longer = request();
  longer.max_tokens = 80;
  const Engine::Submission running = old->engine().submit(longer);
  models->exchange("llama", file("qwen3"));
  const ModelRegistry::Lease now = models->acquire("llama");
  EXPECT_EQ(now->path(), file("qwen3"));
  EXPECT_NE(now, old);
  EXPECT_EQ(read_answers(*running.stream).front().tokens.size(), 80u);
  EXPECT_EQ(models->bytes_used(), bytes_of("llama") + bytes_of("qwen3"));
  old.reset();
  EXPECT_EQ(models->bytes_used(), bytes_of("qwen3"));
  EXPECT_NE(ask(now->engine(), request()).tokens, before.tokens);
}

TEST_F(RegistryTest, AnExchangeThatFailsLeavesTheOldOne) {
  const auto models = registry(0);
  const ModelRegistry::Lease old = models->acquire("llama");
  std::ofstream(file("broken")) << "GGUF, but not really";
  EXPECT_THROW(models->exchange("llama", file("broken")), Error);
  EXPECT_EQ(models->acquire("llama"), old);
  EXPECT_EQ(ask(old->engine(), request()).tokens.size(), 8u);
}

TEST_F(RegistryTest, WithoutRoomForBothTheQueueWaits) {
  const auto models = registry(std::max(bytes_of("llama"), bytes_of("qwen3")));
  ModelRegistry::Lease old = models->acquire("llama");
  std::thread exchange([&] { models->exchange("llama", file("qwen3")); });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  std::thread client([&] {
    const ModelRegistry::Lease next = models->acquire("llama");
    EXPECT_EQ(ask(next->engine(), request()).tokens.size(), 8u);
  });
  EXPECT_EQ(ask(old->engine(), request()).tokens.size(), 8u);
  old.reset();
  exchange.join();
  client.join();
  EXPECT_EQ(models->acquire("llama")->path(), file("qwen3"));
}

TEST_F(RegistryTest, AModelHasAnsweredBeforeItIsReady) {
  const auto models = registry(0);
  const ModelRegistry::Lease model = models->acquire("llama");
  std::vector<LoadEvent::Kind> kinds;
  for (const LoadEvent& event : events_) {
    if (kinds.empty() || kinds.back() != event.kind) kinds.push_back(event.kind);
  }
  using Kind = LoadEvent::Kind;
  EXPECT_EQ(kinds, (std::vector<Kind>{Kind::loading, Kind::progress, Kind::warming, Kind::ready}));
  const SchedulerCounters counters = model->engine().counters().scheduler;
  EXPECT_EQ(counters.finished, 1u);
  EXPECT_EQ(counters.prompt_rows, 2u);
  EXPECT_EQ(counters.generated_rows, 1u);
  for (const GroupCounters& group : counters.groups) EXPECT_EQ(group.free, group.total);
  // Nobody's answer knows of it.
  Executor executor(GgufFile::open(file("llama")), *device_, executor_options());
  Engine cold(executor);
  EXPECT_EQ(ask(model->engine(), request()), ask(cold, request()));
}

TEST_F(RegistryTest, AModelThatCannotAnswerIsNotLoaded) {
  write_mute();
  const auto models = registry(0);
  EXPECT_THROW(models->acquire("mute"), Error);
  EXPECT_TRUE(models->list().empty());
  EXPECT_EQ(models->bytes_used(), 0u);
  EXPECT_EQ(count(LoadEvent::Kind::ready), 0);
  EXPECT_EQ(count(LoadEvent::Kind::failed), 1);
  EXPECT_NE(events_.back().error.find("not finite"), std::string::npos) << events_.back().error;
}

TEST_F(RegistryTest, NorIsItExchanged) {
  const std::filesystem::path mute = write_mute();
  {
    const auto models = registry(0);
    const ModelRegistry::Lease old = models->acquire("llama");
    EXPECT_THROW(models->exchange("llama", mute), Error);
    EXPECT_EQ(models->acquire("llama"), old);
    EXPECT_EQ(models->bytes_used(), bytes_of("llama"));
  }
  // Without room for both the old one comes back.
  const auto models = registry(bytes_of("llama"));
  models->acquire("llama");
  EXPECT_THROW(models->exchange("llama", mute), Error);
  const ModelRegistry::Lease back = models->acquire("llama");
  EXPECT_EQ(back->path(), file("llama"));
  EXPECT_EQ(ask(back->engine(), request()).tokens.size(), 8u);
}

TEST_F(RegistryTest, AWarmUpCanBeCancelled) {
  const auto models = registry(0);
  refused_ = LoadEvent::Kind::warming;
  EXPECT_THROW(models->acquire("llama"), Error);
  EXPECT_TRUE(models->list().empty());
  refused_.reset();
  EXPECT_NE(models->acquire("llama"), nullptr);
}

// What gives no logits has nothing to warm up with.
TEST_F(RegistryTest, AModelWithoutAHeadIsLoadedAsItIs) {
  ExecutorOptions options = executor_options();
  options.logits = false;
  ModelRegistry models(*device_,
                       {.executor = options, .resolve = [this](const std::string& name) { return file(name); }});
  const ModelRegistry::Lease model = models.acquire("llama");
  EXPECT_FALSE(model->executor().spec().has_head);
  EXPECT_EQ(model->engine().counters().scheduler.accepted, 0u);
}

TEST_F(RegistryTest, AnEncoderToo) {
  write_toy("bert", folder_.path(), {.context = 96});
  const auto models = registry(0);
  EXPECT_NE(models->acquire("bert"), nullptr);
}

TEST_F(RegistryTest, ManyThreadsShareOneLoad) {
  const auto models = registry(0);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int turn = 0; turn < 5; ++turn) {
        const ModelRegistry::Lease lease = models->acquire(i % 2 == 0 ? "llama" : "qwen3");
        EXPECT_EQ(ask(lease->engine(), request()).tokens.size(), 8u);
        models->expire(Clock::now() + std::chrono::minutes(turn));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace quarrel::test
