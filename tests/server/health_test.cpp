// What the server says of itself when an engine does not get on, and when it does again.
#include <gtest/gtest.h>

#include <thread>

#include <nlohmann/json.hpp>

#include "server/health_api.h"
#include "server/served_toy.h"

namespace quarrel {
namespace {

class Silent final : public AnswerWriter {
 public:
  void begin(const LoadedModel&, const Generations&) override {}
  void take(std::span<GenerationEvent>) override {}
  void end(const Usage&) override {}
  void fail(const ApiError&) override {}
  void abandon() override {}
};

// Holds the engine's thread in the middle of a step.
class Holding final : public TokenMask {
 public:
  explicit Holding(const test::Gate& gate) : gate_(gate) {}
  void allow(std::span<const TokenId>, std::span<std::uint64_t> allowed) override {
    gate_.pass();
    std::ranges::fill(allowed, ~std::uint64_t{0});
  }

 private:
  const test::Gate gate_;
};

class HealthTest : public test::ServedToy {
 protected:
  // Any time at all is too long, so that nothing here depends on how fast the machine is.
  HealthTest()
      : test::ServedToy({.program = {.version = "1.2.3", .commit = "abc", .build = "Release", .backends = {"cpu"}},
                         .stuck_after = std::chrono::milliseconds(0)}) {}

  struct Said {
    unsigned status = 0;
    nlohmann::json body = {};
  };
  Said ask(void (*handler)(Service&, const std::shared_ptr<http::Exchange>&)) {
    const auto asked = exchange();
    handler(*service_, asked);
    const http::Exchange::Output output = asked->take();
    return {output.head.status, nlohmann::json::parse(output.head.body)};
  }
};

TEST_F(HealthTest, AnEngineThatDoesNotGetOnIsNoticedAndWellAgainAfterwards) {
  EXPECT_EQ(ask(health).status, 200u) << "nothing is to be done";
  const test::Gate gate;
  const auto call = start_generation(
      *service_, service_->new_record({.route = "POST /test"}), service_->find("", {}),
      [gate](const LoadedModel& model) {
        Ask ask = endless(model);
        ask.max_tokens = 3;
        ask.mask = [gate](std::int32_t) { return std::make_unique<Holding>(gate); };
        return ask;
      },
      std::make_unique<Silent>());
  gate.wait_until_reached();
  while (!service_->stuck()) std::this_thread::yield();
  const Said ill = ask(health);
  EXPECT_EQ(ill.status, 503u);
  EXPECT_EQ(ill.body["status"], "stuck");
  EXPECT_EQ(ill.body["checks"]["engine"]["status"], "stuck");
  EXPECT_EQ(ill.body["checks"]["device"]["status"], "ok");
  EXPECT_EQ(ask(readiness).status, 503u);
  EXPECT_EQ(ask(readiness).body["status"], "stuck");
  gate.open();
  write_until([&] { return !service_->stuck() && counters().tokens >= 3; });
  write_until([&] { return ask(health).status == 200; });
  EXPECT_EQ(ask(readiness).body["status"], "ready");
}

TEST_F(HealthTest, WhatRunsIsTold) {
  const Said well = ask(health);
  EXPECT_EQ(well.body["status"], "ok");
  EXPECT_EQ(well.body["version"], "1.2.3");
  EXPECT_EQ(well.body["timestamp"].get<std::string>().back(), 'Z');
  EXPECT_FALSE(well.body["uptime"].get<std::string>().empty());
  EXPECT_EQ(
      ask(version).body,
      (nlohmann::json{
          {"version", "1.2.3"}, {"commit", "abc"}, {"build", "Release"}, {"backends", {"cpu"}}, {"role", "admin"}}));
  service_->begin_drain();
  EXPECT_EQ(ask(health).status, 200u) << "it lives";
  EXPECT_EQ(ask(readiness).body["status"], "draining");
}

TEST(Uptime, IsWrittenInPartsThatAreNotZero) {
  using std::chrono::seconds;
  EXPECT_EQ(uptime_text(seconds(0)), "0s");
  EXPECT_EQ(uptime_text(seconds(59)), "59s");
  EXPECT_EQ(uptime_text(seconds(3600)), "1h");
  EXPECT_EQ(uptime_text(seconds(93784)), "1d 2h 3m 4s");
}

}  // namespace
}  // namespace quarrel
