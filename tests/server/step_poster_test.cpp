// Tasks of engines on their way to the I/O threads: one wake-up for many, and none lost when those threads have ended.
#include <gtest/gtest.h>

#include <atomic>

#include "base/error.h"
#include "server/service.h"

namespace quarrel {
namespace {

TEST(StepPosterTest, OneWakeUpRunsAllThatGathered) {
  const auto poster = std::make_shared<StepPoster>();
  std::vector<std::function<void()>> woken;
  poster->set([&](std::function<void()> task) { woken.push_back(std::move(task)); });
  std::string order;
  for (const char c : {'a', 'b', 'c'}) StepPoster::post(poster, [&order, c] { order += c; });
  ASSERT_EQ(woken.size(), 1u);
  EXPECT_EQ(order, "");
  woken[0]();
  EXPECT_EQ(order, "abc");
  StepPoster::post(poster, [&] { order += 'd'; });
  ASSERT_EQ(woken.size(), 2u);
  woken[1]();
  EXPECT_EQ(order, "abcd");
}

TEST(StepPosterTest, WithoutIoThreadsTasksRunWhereTheyAre) {
  const auto poster = std::make_shared<StepPoster>();
  poster->set([](const std::function<void()>&) { fail(ErrorKind::cancelled, "ended"); });
  int done = 0;
  StepPoster::post(poster, [&] { ++done; });
  StepPoster::post(poster, [&] { ++done; });
  EXPECT_EQ(done, 2);
}

TEST(StepPosterTest, ManyEnginesMayPost) {
  const auto poster = std::make_shared<StepPoster>();
  std::atomic<bool> ended = false;
  poster->set([&](const std::function<void()>& task) {
    if (ended) fail(ErrorKind::cancelled, "ended");
    task();
  });
  std::atomic<int> done = 0;
  std::vector<std::thread> engines;
  for (int i = 0; i < 4; ++i) {
    engines.emplace_back([&] {
      for (int k = 0; k < 500; ++k) StepPoster::post(poster, [&] { ++done; });
    });
  }
  ended = true;
  for (std::thread& engine : engines) engine.join();
  EXPECT_EQ(done, 2000);
}

}  // namespace
}  // namespace quarrel
