// The machine's limits applied to a model's speed, with speeds that are made up: what prompts and decoding are held to,
// and how a share of that is told to people and programs, below the limit and above it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/op_profile.h"

namespace quarrel {
namespace {

// Reads 10 GB/s, multiplies 100 G a second in F32 and 400 G in integers.
MachineSpeed plain_machine() {
  MachineSpeed speed;
  speed.read.bytes_per_s = 10e9;
  speed.f32 = {.macs_per_s = 100e9, .instructions = "floats"};
  speed.integer = {.macs_per_s = 400e9, .instructions = "integers"};
  return speed;
}

// The same with tiles: 3600 G a second in int8, 1800 in bf16.
MachineSpeed tile_machine() {
  MachineSpeed speed = plain_machine();
  speed.int8_tiles = {.macs_per_s = 3600e9, .instructions = "int8-tiles"};
  speed.bf16_tiles = {.macs_per_s = 1800e9, .instructions = "bf16-tiles"};
  return speed;
}

MultiplyAdds macs_with(WeightKind kind, double count) {
  MultiplyAdds macs;
  macs[kind] = count;
  return macs;
}

// A prompt of a model with a billion weights of one kind.
PrefillSpeed prefill_of(double tokens_per_s, WeightKind kind) {
  return {.tokens_per_s = tokens_per_s, .macs_per_token = macs_with(kind, 1e9)};
}

nlohmann::ordered_json prefill_json(const PrefillSpeed& prefill, const MachineSpeed& speed) {
  nlohmann::ordered_json value;
  put_prefill_shares(value, prefill, speed);
  return value;
}

constexpr const char* kFasterNow = "the processor ran faster than while its peak was measured";

TEST(MachineLimits, TheTypeOfWeightsIsTheirKind) {
  EXPECT_EQ(weight_kind_of(QuantType::f32), WeightKind::f32);
  EXPECT_EQ(weight_kind_of(QuantType::f16), WeightKind::f16);
  EXPECT_EQ(weight_kind_of(QuantType::bf16), WeightKind::bf16);
  EXPECT_EQ(weight_kind_of(QuantType::q8_0), WeightKind::quantised);
  EXPECT_EQ(weight_kind_of(QuantType::tq1_0), WeightKind::quantised);
}

TEST(MachineLimits, AGpuIsHeldToWhatItCopiesAndToItsGemm) {
  const MachineSpeed gpu =
      machine_of({.copy_bytes_per_s = 4e12, .gemm_flops_per_s = 600e12, .cache_bytes = 50'000'000});
  for (const WeightKind kind : {WeightKind::f32, WeightKind::f16, WeightKind::bf16, WeightKind::quantised}) {
    EXPECT_DOUBLE_EQ(peak_for(kind, gpu).macs_per_s, 300e12);
    // A billion weights at 150 000 tokens/s.
    EXPECT_EQ(prefill_share(prefill_of(150e3, kind), gpu).share, "50.0 % of the F16 GEMM peak");
  }
  const auto prefill = prefill_json(prefill_of(150e3, WeightKind::quantised), gpu);
  EXPECT_DOUBLE_EQ(prefill["share_of_peak"].get<double>(), 0.5);
  EXPECT_FALSE(prefill.contains("share_of_f32_peak"));
  const DecodeSpeed speed{.bytes_per_s = 3e12, .step_bytes = 4e9};
  EXPECT_EQ(decode_share(speed, gpu).share, "75.0 % of the copy bandwidth");
  nlohmann::ordered_json decode;
  put_decode_share(decode, speed, gpu);
  EXPECT_DOUBLE_EQ(decode["share_of_copy_bandwidth"].get<double>(), 0.75);
  const DecodeSpeed cached{.bytes_per_s = 5e12, .step_bytes = 4e7};
  EXPECT_NE(decode_share(cached, gpu).excess.find("the L2 cache (50.0 MB) holds the 40.0 MB"), std::string::npos)
      << decode_share(cached, gpu).excess;
}

// Makers' figures are compared with makers' figures, as far as they are known.
TEST(MachineLimits, DecodeIsScaledToOtherGpusByTheirBandwidth) {
  const auto known = scaled_to_others(500.0, {.copy_bytes_per_s = 4e12, .peak_bytes_per_s = 4.68e12});
  ASSERT_EQ(known.size(), 2u);
  EXPECT_EQ(known[0].device, "RTX 3090");
  EXPECT_DOUBLE_EQ(known[0].tokens_per_s, 100.0);
  EXPECT_NEAR(known[1].tokens_per_s, 107.69, 0.01);
  EXPECT_DOUBLE_EQ(scaled_to_others(500.0, {.copy_bytes_per_s = 4e12})[0].tokens_per_s, 117.0);
}

TEST(MachineLimits, QuantisedWeightsAreHeldToTheFastestIntegers) {
  MultiplyAdds mixed = macs_with(WeightKind::quantised, 200e9);
  MachineSpeed speed = plain_machine();
  EXPECT_DOUBLE_EQ(arithmetic_seconds(mixed, speed), 0.5);
  mixed[WeightKind::f32] = 100e9;
  EXPECT_DOUBLE_EQ(arithmetic_seconds(mixed, speed), 1.5);
  speed.int8_tiles = {.macs_per_s = 4000e9, .instructions = "int8-tiles"};
  EXPECT_DOUBLE_EQ(arithmetic_seconds(macs_with(WeightKind::quantised, 200e9), speed), 0.05);
  speed.integer.reset();
  speed.int8_tiles.reset();
  EXPECT_DOUBLE_EQ(arithmetic_seconds(macs_with(WeightKind::quantised, 200e9), speed), 2.0)
      << "without integers, F32 is what there is";
}

TEST(MachineLimits, FloatWeightsAreHeldToTheTilesThatTheyGoThrough) {
  const MachineSpeed tiles = tile_machine();
  EXPECT_DOUBLE_EQ(peak_for(WeightKind::bf16, tiles).macs_per_s, 1800e9);
  EXPECT_EQ(peak_for(WeightKind::bf16, tiles).instructions, "bf16-tiles");
  EXPECT_DOUBLE_EQ(peak_for(WeightKind::f16, tiles).macs_per_s, 600e9) << "pairs take three multiplications";
  EXPECT_EQ(peak_for(WeightKind::f16, tiles).instructions, "bf16-tiles/3");
  EXPECT_DOUBLE_EQ(peak_for(WeightKind::f32, tiles).macs_per_s, 100e9);
  EXPECT_DOUBLE_EQ(arithmetic_seconds(macs_with(WeightKind::bf16, 900e9), tiles), 0.5);
  EXPECT_DOUBLE_EQ(arithmetic_seconds(macs_with(WeightKind::f16, 900e9), tiles), 1.5);
  EXPECT_DOUBLE_EQ(arithmetic_seconds(macs_with(WeightKind::f32, 900e9), tiles), 9.0);

  for (const WeightKind kind : {WeightKind::f32, WeightKind::f16, WeightKind::bf16}) {
    EXPECT_EQ(peak_for(kind, plain_machine()).instructions, "floats") << "there are no tiles";
  }
  MachineSpeed slow = tile_machine();
  slow.bf16_tiles->macs_per_s = 240e9;
  EXPECT_EQ(peak_for(WeightKind::bf16, slow).instructions, "bf16-tiles");
  EXPECT_EQ(peak_for(WeightKind::f16, slow).instructions, "floats") << "a third of the tiles' peak is below F32";
}

TEST(MachineLimits, MostMultiplyAddsNameThePeak) {
  MultiplyAdds macs = macs_with(WeightKind::f16, 3.0);
  EXPECT_EQ(macs.most(), WeightKind::f16);
  EXPECT_EQ(macs.fastest_floats(), WeightKind::f16);
  macs[WeightKind::quantised] = 3.0;
  macs[WeightKind::bf16] = 1.0;
  EXPECT_EQ(macs.most(), WeightKind::quantised);
  EXPECT_EQ(macs.fastest_floats(), WeightKind::bf16);
  EXPECT_DOUBLE_EQ(macs.all(), 7.0);
  EXPECT_EQ(macs_with(WeightKind::quantised, 1.0).fastest_floats(), WeightKind::f32);
}

// What multiplies no weights, and the router, stays with F32.
TEST(MachineLimits, TilesLimitThoseOpsOfAProfileThatUseThem) {
  const std::vector<OpTime> ops = {{.name = "qkv", .seconds = 0.1, .calls = 1, .bytes = 0, .macs = 90'000'000'000},
                                   {.name = "attend", .seconds = 2.0, .calls = 1, .bytes = 0, .macs = 90'000'000'000},
                                   {.name = "router", .seconds = 2.0, .calls = 1, .bytes = 0, .macs = 90'000'000'000}};
  const MachineSpeed tiles = tile_machine();
  const OpProfile prompt = profile_of(ops, tiles, WeightKind::bf16);
  EXPECT_DOUBLE_EQ(prompt.ops[0].of_limit(), 0.5);
  EXPECT_DOUBLE_EQ(prompt.ops[1].of_limit(), 0.45);
  EXPECT_DOUBLE_EQ(prompt.ops[2].of_limit(), 0.45);
  EXPECT_EQ(excess_text(prompt, tiles), "") << "no processor ran faster";
  EXPECT_DOUBLE_EQ(profile_of(ops, tiles, WeightKind::f16).ops[0].of_limit(), 1.5);
  EXPECT_DOUBLE_EQ(profile_of(ops, tiles).ops[0].of_limit(), 9.0) << "generated rows compute in F32";
}

TEST(MachineLimits, AShareHasAReasonOnlyAboveOne) {
  nlohmann::ordered_json value;
  put_share(value, "below", 0.5, "never told");
  put_share(value, "whole", 1.0, "never told");
  put_share(value, "above", 1.5, "told");
  EXPECT_EQ(value.dump(), R"({"below":0.5,"whole":1.0,"above":1.5,"above_reason":"told"})");
}

TEST(MachineLimits, APrefillBelowItsPeakNeedsNoReason) {
  const PrefillSpeed prefill = prefill_of(50.0, WeightKind::quantised);
  const ShareText text = prefill_share(prefill, plain_machine());
  EXPECT_EQ(text.share, "12.5 % of the integers peak");
  EXPECT_EQ(text.excess, "");
  const auto json = prefill_json(prefill, plain_machine());
  EXPECT_EQ(json["peak"], "integers");
  EXPECT_DOUBLE_EQ(json["share_of_peak"].get<double>(), 0.125);
  EXPECT_DOUBLE_EQ(json["share_of_f32_peak"].get<double>(), 0.5);
  EXPECT_EQ(json.size(), 3u) << json;
}

TEST(MachineLimits, APrefillAboveItsPeakSaysWhy) {
  const PrefillSpeed prefill = prefill_of(500.0, WeightKind::quantised);
  const ShareText text = prefill_share(prefill, plain_machine());
  EXPECT_EQ(text.share, "125.0 % of the integers peak");
  EXPECT_EQ(text.excess, std::string("prefill is above the peak: ") + kFasterNow + "\n");
  const auto json = prefill_json(prefill, plain_machine());
  EXPECT_DOUBLE_EQ(json["share_of_peak"].get<double>(), 1.25);
  EXPECT_EQ(json["share_of_peak_reason"], kFasterNow);
}

// What was said of every prompt that tiles made faster than F32.
TEST(MachineLimits, TilesAreNoFasterProcessor) {
  const PrefillSpeed prefill = prefill_of(300.0, WeightKind::f16);
  const ShareText text = prefill_share(prefill, tile_machine());
  EXPECT_EQ(text.share, "50.0 % of the bf16-tiles/3 peak");
  EXPECT_EQ(text.excess, "");
  const auto json = prefill_json(prefill, tile_machine());
  EXPECT_EQ(json["peak"], "bf16-tiles/3");
  EXPECT_FALSE(json.contains("share_of_peak_reason"));
  EXPECT_DOUBLE_EQ(json["share_of_f32_peak"].get<double>(), 3.0);
  EXPECT_EQ(json["share_of_f32_peak_reason"],
            "F16 and BF16 weights are multiplied in bf16 tiles, which is faster than F32");
}

TEST(MachineLimits, WhatIsFasterThanF32IsNamed) {
  const auto reason = [](WeightKind kind, const MachineSpeed& speed) {
    return prefill_json(prefill_of(1000.0, kind), speed)["share_of_f32_peak_reason"].get<std::string>();
  };
  EXPECT_EQ(reason(WeightKind::quantised, plain_machine()),
            "quantised weights are multiplied as integers, which is faster than F32");
  EXPECT_EQ(reason(WeightKind::quantised, tile_machine()),
            "quantised weights are multiplied in bf16 tiles or as integers, which is faster than F32");
  EXPECT_EQ(reason(WeightKind::f32, tile_machine()), kFasterNow);
  EXPECT_EQ(reason(WeightKind::bf16, plain_machine()), kFasterNow);
}

TEST(MachineLimits, DecodingIsHeldToTheReadBandwidth) {
  MachineSpeed speed = plain_machine();
  speed.caches = {{.name = "L3", .bytes = 300'000'000}};
  nlohmann::ordered_json json;
  const DecodeSpeed below{.bytes_per_s = 5e9, .step_bytes = 250e6};
  put_decode_share(json, below, speed);
  EXPECT_EQ(json.dump(), R"({"share_of_read_bandwidth":0.5})");
  EXPECT_EQ(decode_share(below, speed).share, "50.0 % of the read bandwidth");
  EXPECT_EQ(decode_share(below, speed).excess, "");

  const DecodeSpeed above{.bytes_per_s = 20e9, .step_bytes = 250e6};
  const std::string reason = "the L3 cache (300.0 MB) holds the 250.0 MB that a step reads";
  put_decode_share(json, above, speed);
  EXPECT_DOUBLE_EQ(json["share_of_read_bandwidth"].get<double>(), 2.0);
  EXPECT_EQ(json["share_of_read_bandwidth_reason"].get<std::string>(), reason);
  EXPECT_EQ(decode_share(above, speed).share, "200.0 % of the read bandwidth");
  EXPECT_EQ(decode_share(above, speed).excess, "decode reads faster than memory: " + reason + "\n");
}

}  // namespace
}  // namespace quarrel
