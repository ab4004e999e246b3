#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "quant/decode.h"
#include "quant/encode.h"

namespace quarrel {
namespace {

constexpr std::size_t kWeights = 512;  // a multiple of every block

std::vector<std::byte> encode(const TypeInfo& info, const std::vector<float>& values) {
  std::vector<std::byte> bytes(row_bytes(info, values.size()));
  encode_row(info.type, values.data(), bytes.data(), values.size());
  return bytes;
}

std::vector<float> round_trip(const TypeInfo& info, const std::vector<float>& values) {
  const std::vector<std::byte> bytes = encode(info, values);
  std::vector<float> decoded(values.size());
  decode_row(info.type, bytes.data(), decoded.data(), decoded.size());
  return decoded;
}

std::vector<float> gaussian(std::size_t count, float deviation, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// Squared error over squared values.
double relative_error(const std::vector<float>& values, const std::vector<float>& decoded) {
  double error = 0;
  double power = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double difference = static_cast<double>(values[i]) - static_cast<double>(decoded[i]);
    error += difference * difference;
    power += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  return error / power;
}

std::vector<TypeInfo> encodable_types() {
  std::vector<TypeInfo> types;
  for (const TypeInfo& info : all_types()) {
    if (can_encode(info.type)) types.push_back(info);
  }
  return types;
}

class QuantEncode : public testing::TestWithParam<TypeInfo> {};

// The bounds lie a few per cent above what the encoders reach, so that a loss of quality shows. Sixteen evenly spaced
// values per block of 32 cannot do much better than Q4_1; Q4_K gains by fitting, and spends its bits on scales instead.
TEST_P(QuantEncode, GaussianValuesComeBackWithinTheTypesError) {
  const std::map<QuantType, double> bounds = {
      {QuantType::f32, 0.0},      {QuantType::f16, 4.5e-8},   {QuantType::bf16, 2.9e-6},  {QuantType::q8_0, 2.95e-5},
      {QuantType::q4_0, 0.0076},  {QuantType::q4_1, 0.0064},  {QuantType::q5_0, 0.0019},  {QuantType::q5_1, 0.0015},
      {QuantType::q4_k, 0.0051},  {QuantType::q5_k, 0.00125}, {QuantType::q6_k, 3.05e-4}, {QuantType::iq4_nl, 0.0056},
      {QuantType::mxfp4, 0.0129},
  };
  for (const float deviation : {0.02f, 1.0f, 300.0f}) {
    const std::vector<float> values = gaussian(64 * kWeights, deviation, 5);
    EXPECT_LE(relative_error(values, round_trip(GetParam(), values)), bounds.at(GetParam().type)) << deviation;
  }
}

TEST_P(QuantEncode, ZerosStayZeros) {
  for (const float value : round_trip(GetParam(), std::vector<float>(kWeights, 0.0f))) ASSERT_EQ(value, 0.0f);
}

TEST_P(QuantEncode, NegativeAndPositiveOnly) {
  for (const float sign : {-1.0f, 1.0f}) {
    std::vector<float> values = gaussian(kWeights, 0.5f, 6);
    for (float& value : values) value = sign * (1.0f + std::abs(value));
    const std::vector<float> decoded = round_trip(GetParam(), values);
    EXPECT_LT(relative_error(values, decoded), 0.02) << sign;
    for (const float value : decoded) ASSERT_GT(value * sign, 0.0f);
  }
}

TEST_P(QuantEncode, ConstantRows) {
  for (const float constant : {0.75f, -0.75f, 1000.0f, -1e-3f, 1e-4f}) {
    const std::vector<float> values(kWeights, constant);
    const double bound = GetParam().type == QuantType::mxfp4 ? 0.01 : 1e-4;
    EXPECT_LT(relative_error(values, round_trip(GetParam(), values)), bound) << constant;
  }
}

// One large value among small ones keeps its size (MXFP4 has no value between 6 and 8 scales, hence the wide margin).
TEST_P(QuantEncode, OneLargeValue) {
  for (const float large : {100.0f, -100.0f}) {
    std::vector<float> values = gaussian(kWeights, 0.01f, 8);
    values[300] = large;
    const std::vector<float> decoded = round_trip(GetParam(), values);
    EXPECT_NEAR(decoded[300], large, GetParam().type == QuantType::mxfp4 ? 25.0f : 1.0f);
    for (std::size_t i = 0; i < kWeights; ++i) {
      if (i == 300) continue;
      ASSERT_LE(std::abs(decoded[i]), 8.0f) << i;
    }
  }
}

// Values no scale reaches end at the largest there is, never at infinity, and leave other blocks alone.
TEST_P(QuantEncode, HugeValuesSaturate) {
  const float max = std::numeric_limits<float>::max();
  for (const float huge : {1e30f, -1e30f, max, -max}) {
    std::vector<float> values(kWeights, 0.0f);
    values[0] = huge;
    values[1] = -huge;
    const std::vector<float> decoded = round_trip(GetParam(), values);
    for (std::size_t i = 0; i < kWeights; ++i) ASSERT_TRUE(std::isfinite(decoded[i])) << huge << " " << i;
    EXPECT_EQ(std::signbit(decoded[0]), std::signbit(huge));
    EXPECT_GE(std::abs(decoded[0]), 65504.0f);
    EXPECT_EQ(std::signbit(decoded[1]), std::signbit(-huge));
    for (std::size_t i = 256; i < kWeights; ++i) ASSERT_EQ(decoded[i], 0.0f);
  }
}

TEST_P(QuantEncode, TinyValuesVanishQuietly) {
  for (const float tiny : {1e-9f, 1e-30f, std::numeric_limits<float>::denorm_min()}) {
    std::vector<float> values(kWeights, tiny);
    values[1] = -tiny;
    const std::vector<float> decoded = round_trip(GetParam(), values);
    for (std::size_t i = 0; i < kWeights; ++i) ASSERT_NEAR(decoded[i], values[i], 1e-8f) << tiny << " " << i;
  }
}

// With sanitizers: no finite input leads to an operation without a meaning, or out of a buffer.
TEST_P(QuantEncode, AnyFiniteValuesEncode) {
  std::mt19937 random(11);
  std::vector<float> values(GetParam().block_weights == 1 ? 16 : GetParam().block_weights);
  for (int round = 0; round < 200; ++round) {
    for (float& value : values) {
      do {
        value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
      } while (!std::isfinite(value));
    }
    for (const float value : round_trip(GetParam(), values)) ASSERT_TRUE(std::isfinite(value));
  }
}

TEST_P(QuantEncode, DestinationNeedNotBeAligned) {
  const std::vector<float> values = gaussian(kWeights, 1.0f, 9);
  const std::vector<std::byte> expected = encode(GetParam(), values);
  std::vector<std::byte> moved(expected.size() + 1);
  encode_row(GetParam().type, values.data(), moved.data() + 1, values.size());
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), moved.begin() + 1));
}

TEST_P(QuantEncode, NonFiniteValuesAreRefused) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    for (const std::size_t where : {std::size_t{0}, kWeights - 1}) {
      std::vector<float> values(kWeights, 1.0f);
      values[where] = bad;
      const std::vector<std::byte> untouched(row_bytes(GetParam(), kWeights), std::byte{0x5a});
      std::vector<std::byte> bytes = untouched;
      try {
        encode_row(GetParam().type, values.data(), bytes.data(), values.size());
        FAIL() << bad << " was taken";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::bad_input);
        EXPECT_NE(std::string(error.what()).find(std::to_string(where)), std::string::npos) << error.what();
      }
      EXPECT_EQ(bytes, untouched);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryEncoder, QuantEncode, testing::ValuesIn(encodable_types()),
                         [](const auto& test) { return std::string(test.param.name); });

// A decoded row is the type's own, so encoding it again loses nothing. The K types and IQ4_NL search, and may find
// another set of scales.
TEST(QuantEncodeRow, SimpleTypesAreIdempotent) {
  for (const QuantType type : {QuantType::f32, QuantType::f16, QuantType::bf16, QuantType::q8_0, QuantType::q4_0,
                               QuantType::q4_1, QuantType::q5_0, QuantType::q5_1, QuantType::mxfp4}) {
    const TypeInfo& info = type_info(type);
    for (unsigned seed = 0; seed < 20; ++seed) {
      const std::vector<float> once = round_trip(info, gaussian(kWeights, 0.3f, seed));
      ASSERT_EQ(round_trip(info, once), once) << info.name << " " << seed;
    }
  }
}

// No weight is farther off than its type's step allows; the side without a counterpart to the lowest quant may be cut
// by a whole one.
TEST(QuantEncodeRow, ErrorsStayWithinTheStep) {
  const std::vector<float> values = gaussian(64 * kWeights, 1.0f, 12);
  struct Case {
    QuantType type;
    float steps;    // from the block's extreme to zero, or from its lowest to its highest
    bool ranged;    // the latter
    float allowed;  // in steps; a little above a half, or above one, for the rounding of the scale
  };
  for (const Case& test : {Case{QuantType::q8_0, 127, false, 0.57f}, Case{QuantType::q4_0, 8, false, 1.01f},
                           Case{QuantType::q5_0, 16, false, 1.01f}, Case{QuantType::q4_1, 15, true, 0.52f},
                           Case{QuantType::q5_1, 31, true, 0.53f}}) {
    const std::vector<float> decoded = round_trip(type_info(test.type), values);
    for (std::size_t block = 0; block < values.size(); block += 32) {
      const auto first = values.begin() + static_cast<std::ptrdiff_t>(block);
      const auto [low, high] = std::minmax_element(first, first + 32);
      const float reach = test.ranged ? *high - *low : std::max(std::abs(*low), std::abs(*high));
      for (std::size_t i = block; i < block + 32; ++i) {
        ASSERT_LE(std::abs(decoded[i] - values[i]), test.allowed * reach / test.steps) << type_info(test.type).name;
      }
    }
  }
}

TEST(QuantEncodeRow, UnsupportedTypesAndLengths) {
  const std::vector<float> values(kWeights, 1.0f);
  std::vector<std::byte> bytes(kWeights * 4);
  const auto kind_of = [&](QuantType type, std::size_t weights) {
    try {
      encode_row(type, values.data(), bytes.data(), weights);
    } catch (const Error& error) {
      return error.kind();
    }
    return ErrorKind::internal;
  };
  EXPECT_EQ(encodable_types().size(), 13u);
  for (const TypeInfo& info : all_types()) {
    if (can_encode(info.type)) continue;
    EXPECT_EQ(kind_of(info.type, kWeights), ErrorKind::unsupported) << info.name;
  }
  const auto unknown = static_cast<QuantType>(5);  // NOLINT(clang-analyzer-optin.core.EnumCastOutOfRange)
  EXPECT_FALSE(can_encode(unknown));
  EXPECT_EQ(kind_of(unknown, kWeights), ErrorKind::unsupported);
  EXPECT_EQ(kind_of(QuantType::q8_0, 33), ErrorKind::bad_input);
  EXPECT_EQ(kind_of(QuantType::q4_k, 32), ErrorKind::bad_input);
  EXPECT_NO_THROW(encode_row(QuantType::q4_k, nullptr, nullptr, 0));
}

}  // namespace
}  // namespace quarrel
