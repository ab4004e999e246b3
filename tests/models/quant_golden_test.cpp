// The same small llama in every weight type against exact logits of its decoded weights, on every device and row class.
#include <gtest/gtest.h>

#include <array>

#include "models/runner.h"
#include "support/golden.h"

namespace quarrel::test {
namespace {

struct TypeCase {
  const char* name;
  double int8;   // bound on NMSE with int8 activations, split in outlier groups or not
  double split;  // with the hi/lo split everywhere, or F32
};

void PrintTo(const TypeCase& type, std::ostream* out) { *out << type.name; }

// What ideal int8 activations give (1.14e-4 to 1.27e-4), with a margin; ternary weights are harder on them.
constexpr double kInt8 = 1.5e-4;
constexpr double kTernary = 2.1e-4;

constexpr std::array kTypes = {
    TypeCase{"F16", 1.5e-7, 1.5e-7},   TypeCase{"BF16", 1e-5, 1e-5},      TypeCase{"Q4_0", kInt8, 1e-6},
    TypeCase{"Q4_1", kInt8, 1e-6},     TypeCase{"Q5_0", kInt8, 1e-6},     TypeCase{"Q5_1", kInt8, 1e-6},
    TypeCase{"Q8_0", kInt8, 1e-6},     TypeCase{"Q2_K", kInt8, 1e-6},     TypeCase{"Q3_K_S", kInt8, 1e-6},
    TypeCase{"Q4_K_S", kInt8, 1e-6},   TypeCase{"Q5_K_S", kInt8, 1e-6},   TypeCase{"Q6_K", kInt8, 1e-6},
    TypeCase{"IQ4_NL", kInt8, 1e-6},   TypeCase{"IQ4_XS", kInt8, 1e-6},   TypeCase{"MXFP4_MOE", kInt8, 1e-6},
    TypeCase{"TQ1_0", kTernary, 1e-6}, TypeCase{"TQ2_0", kTernary, 1e-6},
};

class QuantGolden : public testing::TestWithParam<TypeCase> {};

TEST_P(QuantGolden, LogitsAreWithinTheBoundOfTheArithmetic) {
  const TypeCase& type = GetParam();
  const auto file = test_data(std::string("quant/") + type.name + ".gguf");
  const auto golden = load_f32(test_data(std::string("quant/") + type.name + ".f32"));
  const auto tokens = golden_tokens();
  for (const NamedDevice& named : all_devices()) {
    SCOPED_TRACE(named.name);
    const auto logits = [&](const RunOptions& options) { return logits_of(file, *named.device, tokens, options); };
    const double generated = nmse(logits({.row_class = RowClass::generated}), golden);
    const double int8 = nmse(logits({.activations = ActivationPrecision::int8}), golden);
    // These again with the weights where they lie.
    const auto error = [&](ActivationPrecision activations) {
      const std::vector<float> packed = logits({.activations = activations});
      EXPECT_EQ(logits({.activations = activations, .repack = false}), packed) << static_cast<int>(activations);
      return nmse(packed, golden);
    };
    const double prompt = error(ActivationPrecision::int8_split);
    const double outliers = error(ActivationPrecision::outlier_groups);
    const double f32 = error(ActivationPrecision::f32);
    std::printf("%-10s %-12s prompt %.2e  generated %.2e  int8 %.2e  outlier groups %.2e  f32 %.2e\n", type.name,
                named.name.c_str(), prompt, generated, int8, outliers, f32);
    EXPECT_LE(prompt, named.exact ? 1e-9 : type.split);
    EXPECT_LE(generated, named.exact ? 1e-9 : type.split);
    EXPECT_LE(int8, named.exact ? 1e-9 : type.int8);
    EXPECT_LE(outliers, named.exact ? 1e-9 : type.int8);
    EXPECT_LE(f32, named.exact ? 1e-9 : type.split);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, QuantGolden, testing::ValuesIn(kTypes),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace quarrel::test
