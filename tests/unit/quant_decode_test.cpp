// Every quantised type against blocks that an independent decoder has decoded (tools/make_quant_test_data.py). The
// definition fixes the order of the few float operations a value takes, so the comparison is exact to the bit; only the
// bits of a NaN are free.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "quant/decode.h"
#include "quant/iq_tables.h"

namespace quarrel {
namespace {

struct Sample {
  std::uint32_t sane_blocks = 0;
  std::uint32_t wild_blocks = 0;
  std::uint32_t block_bytes = 0;
  std::uint32_t block_weights = 0;
  std::vector<std::byte> blocks;
  std::vector<float> values;
};

bool read_into(std::ifstream& file, void* destination, std::size_t bytes) {
  return static_cast<bool>(file.read(static_cast<char*>(destination), static_cast<std::streamsize>(bytes)));
}

template <typename Codebook>
void expect_next_codebook(std::ifstream& file, const Codebook& codebook, const char* name) {
  Codebook expected;
  ASSERT_TRUE(read_into(file, expected.data(), sizeof(expected))) << name;
  EXPECT_EQ(codebook, expected) << name;
}

Sample read_sample(std::string_view name) {
  const auto path = std::filesystem::path(QUARREL_TEST_DATA) / "quant_blocks" / (std::string(name) + ".bin");
  std::ifstream file(path, std::ios::binary);
  Sample sample;
  std::uint32_t header[4] = {};
  EXPECT_TRUE(read_into(file, header, sizeof(header))) << path;
  sample.sane_blocks = header[0];
  sample.wild_blocks = header[1];
  sample.block_bytes = header[2];
  sample.block_weights = header[3];
  const std::size_t count = sample.sane_blocks + sample.wild_blocks;
  sample.blocks.resize(count * sample.block_bytes);
  sample.values.resize(count * sample.block_weights);
  EXPECT_TRUE(read_into(file, sample.blocks.data(), sample.blocks.size())) << path;
  EXPECT_TRUE(read_into(file, sample.values.data(), sample.values.size() * sizeof(float))) << path;
  return sample;
}

bool same(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

// F32, F16 and BF16 have no blocks to speak of; OneWeightTypes and the tests of the half formats see to them. The other
// order of MXFP4 has a test of its own.
std::vector<TypeInfo> quantised_types() {
  std::vector<TypeInfo> types;
  for (const TypeInfo& info : all_types()) {
    if (info.block_weights > 1 && info.type != QuantType::mxfp4_pairs) types.push_back(info);
  }
  return types;
}

std::string test_name(const testing::TestParamInfo<TypeInfo>& test) { return std::string(test.param.name); }

class QuantDecode : public testing::TestWithParam<TypeInfo> {};
class QuantDecodeSample : public QuantDecode {};

TEST_P(QuantDecodeSample, EqualsTheIndependentDecoder) {
  const TypeInfo& info = GetParam();
  const Sample sample = read_sample(info.name);
  ASSERT_EQ(sample.block_bytes, info.block_bytes);
  ASSERT_EQ(sample.block_weights, info.block_weights);
  ASSERT_GE(sample.sane_blocks, 8u);
  ASSERT_GE(sample.wild_blocks, 8u);

  std::vector<float> decoded(sample.values.size());
  decode_row(info.type, sample.blocks.data(), decoded.data(), decoded.size());
  for (std::size_t i = 0; i < decoded.size(); ++i) {
    ASSERT_TRUE(same(decoded[i], sample.values[i]))
        << "weight " << i << ": " << decoded[i] << " instead of " << sample.values[i];
    if (i < std::size_t{sample.sane_blocks} * sample.block_weights) {
      ASSERT_TRUE(std::isfinite(decoded[i])) << i;
    }
  }
}

TEST(QuantDecodePairs, AreTheSameNumbersInAnotherOrder) {
  const Sample sample = read_sample("MXFP4");
  std::vector<std::byte> paired = sample.blocks;
  for (std::size_t block = 0; block < paired.size(); block += 17) {
    const std::byte* halves = sample.blocks.data() + block + 1;  // byte j: weights j and j + 16
    const auto nibble = [&](std::size_t weight) {
      return weight < 16 ? halves[weight] & std::byte{15} : halves[weight - 16] >> 4;
    };
    for (std::size_t j = 0; j < 16; ++j) paired[block + 1 + j] = nibble(2 * j) | nibble(2 * j + 1) << 4;
  }
  std::vector<float> decoded(sample.values.size());
  decode_row(QuantType::mxfp4_pairs, paired.data(), decoded.data(), decoded.size());
  for (std::size_t i = 0; i < decoded.size(); ++i) ASSERT_TRUE(same(decoded[i], sample.values[i])) << i;
}

TEST_P(QuantDecode, SourceNeedNotBeAligned) {
  const TypeInfo& info = GetParam();
  std::mt19937 random(7);
  const std::size_t weights = std::size_t{info.block_weights} * 3;
  const std::size_t bytes = row_bytes(info, weights);
  std::vector<std::byte> aligned(bytes);
  for (std::byte& byte : aligned) byte = static_cast<std::byte>(random() & 255u);
  std::vector<float> expected(weights);
  decode_row(info.type, aligned.data(), expected.data(), weights);
  for (std::size_t offset = 1; offset < 4; ++offset) {
    std::vector<std::byte> moved(bytes + offset);
    std::memcpy(moved.data() + offset, aligned.data(), bytes);
    std::vector<float> decoded(weights);
    decode_row(info.type, moved.data() + offset, decoded.data(), weights);
    for (std::size_t i = 0; i < weights; ++i) ASSERT_TRUE(same(decoded[i], expected[i])) << offset << " " << i;
  }
}

// The buffers are exactly as large as promised: with sanitizers, reading or writing beyond them ends the test, as does
// any operation without a meaning on any bytes. The poison shows that every value is written.
TEST_P(QuantDecode, AnyBytesDecode) {
  const TypeInfo& info = GetParam();
  constexpr float kPoison = 12345.678f;
  std::mt19937 random(99);
  std::vector<std::byte> source(info.block_bytes);
  for (int round = 0; round < 500; ++round) {
    for (std::byte& byte : source) byte = static_cast<std::byte>(random() & 255u);
    if (round < 2) std::fill(source.begin(), source.end(), static_cast<std::byte>(round == 0 ? 0 : 255));
    std::vector<float> values(info.block_weights, kPoison);
    decode_row(info.type, source.data(), values.data(), values.size());
    for (const float value : values) ASSERT_NE(value, kPoison);
  }
}

TEST_P(QuantDecode, NothingDecodesToNothing) { decode_row(GetParam().type, nullptr, nullptr, 0); }

INSTANTIATE_TEST_SUITE_P(EveryType, QuantDecode, testing::ValuesIn(all_types().begin(), all_types().end()), test_name);
INSTANTIATE_TEST_SUITE_P(EveryQuantisedType, QuantDecodeSample, testing::ValuesIn(quantised_types()), test_name);

// Random blocks do not reach every entry of the large codebooks.
TEST(QuantDecodeRow, CodebooksAreTheFormats) {
  std::ifstream file(std::filesystem::path(QUARREL_TEST_DATA) / "quant_blocks" / "codebooks.bin", std::ios::binary);
  expect_next_codebook(file, kIq2XxsCodebook, "IQ2_XXS");
  expect_next_codebook(file, kIq2XsCodebook, "IQ2_XS");
  expect_next_codebook(file, kIq2SCodebook, "IQ2_S");
  expect_next_codebook(file, kIq3XxsCodebook, "IQ3_XXS");
  expect_next_codebook(file, kIq3SCodebook, "IQ3_S");
  expect_next_codebook(file, kIq1Codebook, "IQ1_S");
  EXPECT_EQ(file.peek(), std::ifstream::traits_type::eof());
}

TEST(QuantDecodeRow, OneWeightTypes) {
  const float values[3] = {1.5f, -0x1p-24f, 65504.0f};
  const std::uint16_t halves[3] = {0x3e00, 0x8001, 0x7bff};
  const std::uint16_t brains[3] = {0x3fc0, 0xb380, 0x4780};
  float decoded[3] = {};
  decode_row(QuantType::f32, reinterpret_cast<const std::byte*>(values), decoded, 3);
  EXPECT_TRUE(std::equal(decoded, decoded + 3, values));
  decode_row(QuantType::f16, reinterpret_cast<const std::byte*>(halves), decoded, 3);
  EXPECT_TRUE(std::equal(decoded, decoded + 3, values));
  decode_row(QuantType::bf16, reinterpret_cast<const std::byte*>(brains), decoded, 3);
  EXPECT_EQ(decoded[0], 1.5f);
  EXPECT_EQ(decoded[1], -0x1p-24f);
  EXPECT_EQ(decoded[2], 65536.0f);
}

}  // namespace
}  // namespace quarrel
