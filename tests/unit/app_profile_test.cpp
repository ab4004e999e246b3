// The arithmetic of a profile: shares of the time, and of what the machine could do at best.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/op_profile.h"
#include "backend/cpu/peak_loops.h"

namespace quarrel {
namespace {

// Reads 10 GB/s, multiplies 100 G a second in F32 and 400 G in integers.
MachineSpeed machine() {
  MachineSpeed speed;
  speed.read.bytes_per_s = 10e9;
  speed.f32 = {.macs_per_s = 100e9, .instructions = "plain"};
  speed.integer = {.macs_per_s = 400e9, .instructions = "integers"};
  return speed;
}

// Both read 1 GB in a quarter of the time they took.
std::vector<OpTime> times() {
  return {{.name = "head", .seconds = 0.4, .calls = 4, .bytes = 1'000'000'000, .macs = 2'000'000'000},
          {.name = "qkv",
           .seconds = 0.4,
           .calls = 8,
           .bytes = 1'000'000'000,
           .macs = 80'000'000'000,
           .quantised_macs = 80'000'000'000},
          {.name = "sampling", .seconds = 0.2, .calls = 4}};
}

TEST(OpProfile, TheLongerOfReadingAndArithmeticIsTheLimit) {
  const OpProfile profile = profile_of(times(), machine());
  ASSERT_EQ(profile.ops.size(), 3u);
  const OpShare& head = profile.ops[0];
  EXPECT_EQ(head.bound, Bound::reading);
  EXPECT_DOUBLE_EQ(head.of_limit(), 0.25);
  EXPECT_DOUBLE_EQ(head.of_time, 0.4);
  const OpShare& qkv = profile.ops[1];
  EXPECT_EQ(qkv.bound, Bound::arithmetic);
  EXPECT_DOUBLE_EQ(qkv.limit_seconds, 0.2);
  EXPECT_DOUBLE_EQ(qkv.of_limit(), 0.5);
  EXPECT_EQ(profile.ops[2].bound, Bound::none);
  EXPECT_DOUBLE_EQ(profile.ops[2].of_limit(), 0.0);
  EXPECT_DOUBLE_EQ(profile.all.op.seconds, 1.0);
  EXPECT_DOUBLE_EQ(profile.all.of_limit(), 0.3);
  EXPECT_EQ(profile.all.op.calls, 16u);
}

TEST(OpProfile, WithoutAMachineThereAreTimesAlone) {
  const OpProfile profile = profile_of(times(), std::nullopt);
  for (const OpShare& share : profile.ops) EXPECT_EQ(share.bound, Bound::none);
  const auto json = profile_json(profile, std::nullopt);
  EXPECT_TRUE(json[0]["share_of_limit"].is_null());
  EXPECT_TRUE(json[0]["limit"].is_null());
  EXPECT_TRUE(profile_of({}, machine()).ops.empty());
}

TEST(OpProfile, TextAndJsonSayTheSame) {
  const OpProfile profile = profile_of(times(), machine());
  const auto json = profile_json(profile, machine());
  ASSERT_EQ(json.size(), 3u);
  EXPECT_EQ(json[1]["op"], "qkv");
  EXPECT_EQ(json[1]["bytes"], 1'000'000'000);
  EXPECT_EQ(json[1]["macs"], 80'000'000'000);
  EXPECT_EQ(json[1]["limit"], "arithmetic");
  EXPECT_DOUBLE_EQ(json[1]["share_of_limit"].get<double>(), 0.5);
  const std::string text = profile_text("decode", profile);
  for (const char* word : {"decode", "qkv", "200.0", "50.0 %", "arithmetic", "25.0 %", "reading", "all"}) {
    EXPECT_NE(text.find(word), std::string::npos) << word << " in\n" << text;
  }
}

TEST(OpProfile, AShareAboveTheLimitIsExplained) {
  MachineSpeed speed = machine();
  speed.caches = {{.name = "L2", .bytes = 4'000'000}, {.name = "L3", .bytes = 300'000'000}};
  EXPECT_EQ(excess_text(profile_of(times(), speed), speed), "") << "nothing is above its limit";

  // Four steps; all ops together read 500 MB in each.
  std::vector<OpTime> fast = times();
  fast[0].seconds = 0.0125;
  EXPECT_EQ(excess_text(profile_of(fast, speed), speed),
            "head is above its limit: the L3 cache (300.0 MB) holds part of the 500.0 MB that a step reads\n");
  speed.caches[1].bytes = 600'000'000;
  EXPECT_EQ(excess_text(profile_of(fast, speed), speed),
            "head is above its limit: the L3 cache (600.0 MB) holds the 500.0 MB that a step reads\n");
  speed.caches.clear();
  EXPECT_EQ(excess_text(profile_of(fast, speed), speed),
            "head is above its limit: a cache holds part of what a step reads\n");

  fast = times();
  fast[1].seconds = 0.1;
  EXPECT_EQ(excess_text(profile_of(fast, speed), speed),
            "qkv is above its limit: the processor ran faster than while its peak was measured\n");
  const auto json = profile_json(profile_of(fast, speed), speed);
  EXPECT_GT(json[1]["share_of_limit"].get<double>(), 1.0);
  EXPECT_EQ(json[1]["share_of_limit_reason"], "the processor ran faster than while its peak was measured");
  for (const std::size_t op : {0u, 2u}) EXPECT_FALSE(json[op].contains("share_of_limit_reason"));
}

TEST(PeakLoops, ThoseThatAreThereComputeSomething) {
  for (const auto& loop : {integer_peak_loop(), int8_tile_peak_loop(), bf16_tile_peak_loop()}) {
    if (!loop) continue;
    EXPECT_GT(loop->macs_per_round, 0.0);
    EXPECT_STRNE(loop->instructions, "");
    EXPECT_NE(loop->run(3), loop->run(1000)) << loop->instructions;
  }
}

TEST(OpProfile, PartsHoldEveryOpOnce) {
  const std::vector<OpTime> times{{.name = "qkv", .seconds = 1.0},      {.name = "attend", .seconds = 2.0},
                                  {.name = "glu", .seconds = 3.0},      {.name = "norms and int8", .seconds = 0.5},
                                  {.name = "sampling", .seconds = 1.5}, {.name = "something new", .seconds = 2.0}};
  const OpProfile profile = profile_of(times, machine());
  const std::vector<PartTime> parts = parts_of(profile);
  ASSERT_EQ(parts.size(), 5u);  // no recurrent layers
  EXPECT_EQ(parts[0].name, "attention");
  EXPECT_DOUBLE_EQ(parts[0].seconds, 3.0);
  EXPECT_DOUBLE_EQ(parts[0].of_time, 0.3);
  EXPECT_EQ(parts[4].name, "rest");
  double share = 0.0;
  for (const PartTime& part : parts) share += part.of_time;
  EXPECT_DOUBLE_EQ(share, 1.0);
  EXPECT_NE(profile_text("decode", profile).find("attention 30.0 %, feed-forward 30.0 %, norms 5.0 %"),
            std::string::npos);
  EXPECT_DOUBLE_EQ(parts_json(profile)["attention"]["share"].get<double>(), 0.3);
}

}  // namespace
}  // namespace quarrel
