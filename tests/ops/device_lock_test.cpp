// The device lock: first come, first served, and how long the steps of others take.
#include "backend/device_lock.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>

namespace quarrel::test {
namespace {

using std::chrono::milliseconds;

// A device whose time goes when the test says so.
struct Timed {
  Clock::time_point now{};
  DeviceLock lock{[this] { return now; }};

  void step(DeviceLock::User& user, std::int64_t micros) {
    const DeviceLock::Hold hold(user);
    now += std::chrono::microseconds(micros);
    EXPECT_EQ(hold.micros(), micros);
  }
};

TEST(DeviceLock, PaceIsTheTypicalStepOfTheOthers) {
  Timed timed;
  DeviceLock::User mine(timed.lock);
  EXPECT_EQ(mine.pace(), 0);
  timed.step(mine, 500);
  EXPECT_EQ(mine.pace(), 0) << "its own steps do not count";
  DeviceLock::User other(timed.lock);
  EXPECT_EQ(mine.pace(), 0) << "who has never had a step has no pace";
  for (const std::int64_t micros : {200, 210, 190, 90000, 205}) timed.step(other, micros);
  EXPECT_EQ(mine.pace(), 205) << "one long prompt changes nothing";
  EXPECT_EQ(other.pace(), 500);
  DeviceLock::User third(timed.lock);
  timed.step(third, 70);
  EXPECT_EQ(mine.pace(), 70) << "the shortest of them";
  EXPECT_EQ(third.pace(), 205);
}

TEST(DeviceLock, PaceForgetsWhoIsGone) {
  Timed timed;
  DeviceLock::User mine(timed.lock);
  {
    DeviceLock::User other(timed.lock);
    timed.step(other, 300);
    timed.now += milliseconds(150);
    EXPECT_EQ(mine.pace(), 300);
    timed.now += milliseconds(100);
    EXPECT_EQ(mine.pace(), 0) << "it has not been here for long";
    timed.step(other, 310);
    EXPECT_EQ(mine.pace(), 310);
    {
      const DeviceLock::Hold hold(other);
      timed.now += milliseconds(900);
      EXPECT_EQ(mine.pace(), 310) << "it is here";
    }
  }
  EXPECT_EQ(mine.pace(), 0) << "it was taken down";
}

TEST(DeviceLock, WhoWaitsIsThere) {
  Timed timed;
  DeviceLock::User mine(timed.lock);
  DeviceLock::User other(timed.lock);
  timed.step(other, 300);
  std::thread waiting;
  {
    const DeviceLock::Hold hold(mine);
    timed.now += milliseconds(1000);
    EXPECT_EQ(mine.pace(), 0);
    waiting = std::thread([&] { const DeviceLock::Hold its(other); });
    while (mine.pace() == 0) std::this_thread::yield();
    EXPECT_EQ(mine.pace(), 300);
  }
  waiting.join();
}

TEST(DeviceLock, LoadingIsNoStep) {
  Timed timed;
  DeviceLock::User mine(timed.lock);
  {
    const DeviceLock::Hold hold(timed.lock);
  }
  EXPECT_EQ(mine.pace(), 0);
}

TEST(DeviceLock, FirstComeFirstServed) {
  DeviceLock lock;
  std::vector<int> order;  // guarded by the lock itself
  std::vector<std::thread> threads;
  std::vector<std::unique_ptr<DeviceLock::User>> users;
  DeviceLock::User first(lock);
  {
    const DeviceLock::Hold hold(first);
    for (int i = 0; i < 5; ++i) {
      users.push_back(std::make_unique<DeviceLock::User>(lock));
      DeviceLock::User& user = *users.back();
      const int before = lock.waiting();
      threads.emplace_back([&order, &user, i] {
        const DeviceLock::Hold its(user);
        order.push_back(i);
      });
      while (lock.waiting() == before) std::this_thread::yield();
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
}

// Whoever has the device for longer than another's whole step lets it go first, and its own time leaves that out.
TEST(DeviceLock, ALongStepGivesWayToAShorterOne) {
  Timed timed;
  DeviceLock::User longer(timed.lock);
  DeviceLock::User shorter(timed.lock);
  timed.step(shorter, 300);
  std::thread waiting;
  {
    DeviceLock::Hold hold(longer);
    timed.now += std::chrono::microseconds(5000);
    EXPECT_FALSE(hold.should_give_way()) << "nobody waits";
    hold.give_way();
    EXPECT_EQ(hold.micros(), 5000);
    waiting = std::thread([&] { timed.step(shorter, 200); });
    while (timed.lock.waiting() < 2) std::this_thread::yield();
    EXPECT_FALSE(hold.should_give_way()) << "it got the device only now";
    timed.now += std::chrono::microseconds(299);
    EXPECT_FALSE(hold.should_give_way());
    timed.now += std::chrono::microseconds(1);
    EXPECT_TRUE(hold.should_give_way());
    hold.give_way();
    EXPECT_EQ(timed.lock.waiting(), 1) << "the other has had its step";
    timed.now += std::chrono::microseconds(7);
    EXPECT_EQ(hold.micros(), 5307);
  }
  waiting.join();
  EXPECT_EQ(shorter.pace(), 5307) << "the whole of a step counts, in however many pieces";
}

TEST(DeviceLock, AShortStepDoesNotGiveWay) {
  Timed timed;
  DeviceLock::User mine(timed.lock);
  DeviceLock::User longer(timed.lock);
  DeviceLock::User unknown(timed.lock);
  timed.step(longer, 9000);
  std::vector<std::thread> waiting;
  {
    const DeviceLock::Hold hold(mine);
    waiting.emplace_back([&] { const DeviceLock::Hold its(longer); });
    waiting.emplace_back([&] { const DeviceLock::Hold its(unknown); });
    waiting.emplace_back([&] { const DeviceLock::Hold its(timed.lock); });
    while (timed.lock.waiting() < 4) std::this_thread::yield();
    timed.now += std::chrono::microseconds(8999);
    EXPECT_FALSE(hold.should_give_way());
    timed.now += std::chrono::microseconds(1);
    EXPECT_TRUE(hold.should_give_way()) << "now it has had as much";
  }
  for (std::thread& thread : waiting) thread.join();
}

}  // namespace
}  // namespace quarrel::test
