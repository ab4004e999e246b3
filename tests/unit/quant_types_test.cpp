#include <gtest/gtest.h>

#include <set>
#include <string>

#include "quant/types.h"

namespace quarrel {
namespace {

TEST(QuantTypes, NumbersAscendAndNamesAreUnique) {
  std::set<std::string_view> names;
  std::uint32_t previous = 0;
  for (const TypeInfo& info : all_types()) {
    const auto number = static_cast<std::uint32_t>(info.type);
    EXPECT_TRUE(number > previous || info.type == QuantType::f32) << info.name;
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    previous = number;
  }
  EXPECT_EQ(names.size(), 27u);
}

TEST(QuantTypes, SizesAreTheFormats) {
  struct Expected {
    std::string_view name;
    std::uint32_t number, weights, bytes;
  };
  constexpr Expected kExpected[] = {
      {"F32", 0, 1, 4},         {"F16", 1, 1, 2},         {"BF16", 30, 1, 2},         {"Q4_0", 2, 32, 18},
      {"Q4_1", 3, 32, 20},      {"Q5_0", 6, 32, 22},      {"Q5_1", 7, 32, 24},        {"Q8_0", 8, 32, 34},
      {"Q2_K", 10, 256, 84},    {"Q3_K", 11, 256, 110},   {"Q4_K", 12, 256, 144},     {"Q5_K", 13, 256, 176},
      {"Q6_K", 14, 256, 210},   {"Q8_K", 15, 256, 292},   {"IQ2_XXS", 16, 256, 66},   {"IQ2_XS", 17, 256, 74},
      {"IQ3_XXS", 18, 256, 98}, {"IQ1_S", 19, 256, 50},   {"IQ4_NL", 20, 32, 18},     {"IQ3_S", 21, 256, 110},
      {"IQ2_S", 22, 256, 82},   {"IQ4_XS", 23, 256, 136}, {"IQ1_M", 29, 256, 56},     {"TQ1_0", 34, 256, 54},
      {"TQ2_0", 35, 256, 66},   {"MXFP4", 39, 32, 17},    {"MXFP4_PAIRS", 4, 32, 17},
  };
  EXPECT_EQ(std::size(kExpected), all_types().size());
  for (const Expected& expected : kExpected) {
    const TypeInfo* info = find_type(expected.name);
    ASSERT_NE(info, nullptr) << expected.name;
    EXPECT_EQ(static_cast<std::uint32_t>(info->type), expected.number) << expected.name;
    EXPECT_EQ(info->block_weights, expected.weights) << expected.name;
    EXPECT_EQ(info->block_bytes, expected.bytes) << expected.name;
    EXPECT_EQ(find_type(expected.number), info) << expected.name;
    EXPECT_EQ(&type_info(info->type), info) << expected.name;
    EXPECT_EQ(row_bytes(*info, std::size_t{512}), 512 / expected.weights * expected.bytes) << expected.name;
  }
}

TEST(QuantTypes, UnknownNumbersAndNamesGiveNull) {
  for (const std::uint32_t number : {5u, 9u, 24u, 28u, 31u, 33u, 36u, 38u, 40u, 255u, 0x80000000u, 0xffffffffu}) {
    EXPECT_EQ(find_type(number), nullptr) << number;
  }
  for (const char* name : {"", "Q4", "Q4_", "Q4_KK", "Q4_K ", "Q4-K", "q9_k"}) {
    EXPECT_EQ(find_type(std::string_view(name)), nullptr) << name;
  }
}

TEST(QuantTypes, NamesAreFoundInAnyCase) {
  const TypeInfo* expected = &type_info(QuantType::iq2_xxs);
  for (const char* name : {"IQ2_XXS", "iq2_xxs", "Iq2_xXs"}) EXPECT_EQ(find_type(std::string_view(name)), expected);
}

TEST(QuantTypes, AnIndexIsAPlaceInTheList) {
  ASSERT_EQ(all_types().size(), kTypeCount);
  for (const TypeInfo& info : all_types()) EXPECT_EQ(&all_types()[type_index(info.type)], &info) << info.name;
}

}  // namespace
}  // namespace quarrel
