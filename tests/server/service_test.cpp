// What requests share, at its end and where something fails.
#include "server/service.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <stdexcept>

#include "backend/create.h"
#include "server/long_jobs.h"
#include "server/ollama_models.h"
#include "support/temp_dir.h"
#include "support/toy_model.h"

namespace quarrel {
namespace {

struct FullDisk : Log {
  void write(LogLevel, std::string_view) override { throw std::bad_alloc(); }
};

TEST(LongJobsTest, TheEndStopsThemAndTakesNoMore) {
  FullDisk log;
  LongJobs jobs(log);
  std::promise<void> stopped;
  ASSERT_TRUE(jobs.start([&](const std::stop_token& stop) {
    const std::stop_callback told(stop, [&] { stopped.set_value(); });
    stopped.get_future().wait();
    throw std::runtime_error("in the middle of it");
  }));
  jobs.end();
  EXPECT_FALSE(jobs.start([](const std::stop_token&) {}));
}

class ServiceTest : public testing::Test {
 protected:
  std::unique_ptr<Service> service() {
    return std::make_unique<Service>(ServiceOptions{}, make_device({.backend = "cpu", .threads = 1}),
                                     ModelStore({.quarrel = folder_.path(), .ollama = {folder_ / "ollama"}}), log_);
  }

  test::TempDir folder_;
  FullDisk log_;
};

// A pull that waits its turn when the server ends.
TEST_F(ServiceTest, WhatStillWaitsAtTheEndIsRefusedItsJob) {
  std::unique_ptr<Service> ending = service();
  std::promise<void> stopped;
  const std::shared_future<void> stop_seen = stopped.get_future().share();
  ASSERT_TRUE(ending->jobs().start([&](const std::stop_token& stop) {
    const std::stop_callback told(stop, [&] { stopped.set_value(); });
    stop_seen.wait();
  }));
  bool started = true;
  ending->run_text_work([&] { stop_seen.wait(); });
  ending->run_text_work([&, &shared = *ending] { started = shared.jobs().start([](const std::stop_token&) {}); });
  ending.reset();
  EXPECT_FALSE(started);
}

TEST_F(ServiceTest, ATaskThatThrowsEndsNobody) {
  const std::unique_ptr<Service> shared = service();
  shared->run_text_work([] { throw std::runtime_error("for want of anything"); });
  std::promise<void> next;
  shared->run_text_work([&] { next.set_value(); });
  next.get_future().wait();
}

// An engine's thread may be about to say something when the service ends.
TEST_F(ServiceTest, TextWorkThatComesAfterTheEndIsDropped) {
  std::unique_ptr<Service> ending = service();
  const auto post = ending->text_poster();
  std::promise<void> done;
  post([&] { done.set_value(); });
  done.get_future().wait();
  ending.reset();
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> weak = held;
  post([held = std::move(held)] { FAIL() << "there is no thread for it"; });
  EXPECT_TRUE(weak.expired());
}

// The store sees no difference in letter case and the extension, the key does.
TEST_F(ServiceTest, AKeyReplacesNoModelOfAnotherSpelling) {
  const std::unique_ptr<Service> shared = service();
  std::ofstream(folder_ / "Alpha.gguf") << "weights";
  const auto refused = [&](const std::string& name, const Caller& caller) {
    try {
      require_may_make(*shared, name, caller);
    } catch (const ApiError& error) {
      EXPECT_EQ(error.status, 403u) << name;
      EXPECT_EQ(error.code, "model_not_allowed") << name;
      return true;
    }
    return false;
  };
  const Caller narrow{.models = {"alpha", "ALPHA", "Alpha.gguf", "beta"}};
  for (const char* name : {"alpha", "ALPHA", "Alpha.gguf", "Alpha"}) EXPECT_TRUE(refused(name, narrow)) << name;
  EXPECT_FALSE(refused("beta", narrow));
  for (const char* name : {"Alpha", "alpha"}) {
    EXPECT_FALSE(refused(name, Caller{.models = {"alpha", "Alpha"}})) << name;
    EXPECT_FALSE(refused(name, Caller{})) << name;
  }
}

// Nor one of Ollama's store, which Quarrel's own goes before, nor the one that `pull` knows by another name.
TEST_F(ServiceTest, AKeyPutsNoModelBeforeAnother) {
  const std::unique_ptr<Service> shared = service();
  std::filesystem::create_directories(folder_ / "ollama/manifests/r.example/me/big");
  std::ofstream(folder_ / "ollama/manifests/r.example/me/big/7B") << "{}";
  const auto may_make = [&](const std::string& name, const std::vector<std::string>& models) {
    try {
      require_may_make(*shared, name, Caller{.models = models});
    } catch (const ApiError& error) {
      EXPECT_EQ(error.code, "model_not_allowed") << name;
      return false;
    }
    return true;
  };
  EXPECT_FALSE(may_make("me/Big:7b", {"me/Big:7b"}));
  EXPECT_TRUE(may_make("me/big:7B", {"me/big:7B"}));
  EXPECT_TRUE(may_make("me/Big:7b", {"me/Big:7b", "me/big:7B"}));
  EXPECT_TRUE(may_make("me/Big", {"me/Big"})) << "that is another tag";
  const std::string stem = "SmolLM2-135M-Instruct.Q4_1";
  EXPECT_FALSE(may_make(stem, {stem}));
  EXPECT_TRUE(may_make(stem, {stem, "default"}));
}

// By the name that the store lists it under, and the same model: what a key may use is told by one name.
TEST_F(ServiceTest, AModelIsFoundByBothItsNames) {
  const std::string stem = "SmolLM2-135M-Instruct.Q4_1";
  std::filesystem::rename(test::write_toy("llama", folder_.path()), folder_ / (stem + ".gguf"));
  const std::unique_ptr<Service> shared = service();
  for (const std::string& name : {std::string("default"), stem, stem + ":latest"}) {
    EXPECT_EQ(shared->find(name, {}).name, "default") << name;
    EXPECT_TRUE(shared->look_up(name, Caller{.models = {"default"}})) << name;
    EXPECT_FALSE(shared->look_up(name, Caller{.models = {stem}})) << name;
  }
  EXPECT_EQ(shared->models({}).size(), 1u);
  EXPECT_FALSE(shared->look_up(":latest", {}));
}

// Nobody would catch it, and the process would end.
TEST_F(ServiceTest, TheHubGoesOnThoughItCannotEvenSayWhatFailed) {
  struct Call final : RunningCall {
    void end(const ApiError&) override {}
  };
  const auto call = std::make_shared<Call>();
  std::promise<void> again;
  std::atomic<int> looks = 0;
  const std::unique_ptr<Service> shared = service();
  shared->set_accepts([&](const Caller&) -> bool {
    if (++looks == 2) again.set_value();
    throw std::bad_alloc();
  });
  shared->sockets().watch(call, std::make_shared<const Caller>());
  again.get_future().wait();
}

}  // namespace
}  // namespace quarrel
