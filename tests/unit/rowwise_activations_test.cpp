// Activations and gates at every level against their definitions in double.
#include "unit/rowwise_support.h"

namespace quarrel::test {
namespace {

double silu(double z) { return z / (1.0 + std::exp(-z)); }
double gelu_tanh(double z) {
  return 0.5 * z * (1.0 + std::tanh(std::sqrt(2.0 / 3.14159265358979323846) * (z + 0.044715 * z * z * z)));
}
// erfc instead of 1 + erf: exact also where little is left.
double gelu_erf(double z) { return 0.5 * z * std::erfc(-z / std::sqrt(2.0)); }
double relu_squared(double z) { return z > 0.0 ? z * z : 0.0; }

struct Activation {
  const char* name;
  void (*CpuKernels::*alone)(float*, std::size_t);
  void (*CpuKernels::*gated)(float*, const float*, std::size_t);
  double (*exact)(double);
};

constexpr Activation kActivations[] = {
    {.name = "silu", .alone = &CpuKernels::silu, .gated = &CpuKernels::swiglu, .exact = silu},
    {.name = "gelu_tanh", .alone = &CpuKernels::gelu_tanh, .gated = &CpuKernels::geglu_tanh, .exact = gelu_tanh},
    {.name = "gelu_erf", .alone = &CpuKernels::gelu_erf, .gated = &CpuKernels::geglu_erf, .exact = gelu_erf},
    {.name = "relu_squared",
     .alone = &CpuKernels::relu_squared,
     .gated = &CpuKernels::reglu_squared,
     .exact = relu_squared},
};

TEST(RowwiseActivations, AreCloseToDoubleAtEveryLength) {
  for (const Activation& activation : kActivations) {
    SCOPED_TRACE(activation.name);
    for_levels_and_lengths([&](const CpuKernels& kernels, std::size_t length) {
      const std::vector<float> z = random_values(length, 1, 3.0f);
      const std::vector<float> up = random_values(length, 2);
      Row alone{z};
      (kernels.*activation.alone)(alone.data(), length);
      Row gated{z};
      const Row factors{up};
      (kernels.*activation.gated)(gated.data(), factors.values().data(), length);
      for (std::size_t i = 0; i < length; ++i) {
        const double exact = activation.exact(static_cast<double>(z[i]));
        ASSERT_NO_FATAL_FAILURE(expect_close(alone[i], exact, 4e-7)) << z[i];
        ASSERT_NO_FATAL_FAILURE(expect_close(gated[i], exact * static_cast<double>(up[i]), 6e-7)) << z[i];
      }
      ASSERT_TRUE(alone.intact() && gated.intact());
    });
  }
}

// The erf within is good to 1e-7, and the negative tail keeps its leading digits.
TEST(RowwiseActivations, GeluByErfIsExactInBothTails) {
  std::vector<float> z = {0.0f, -0.0f, 1e-30f, -1e-30f, 15.0f, -15.0f, 1e10f, -1e10f, 3e38f, -3e38f};
  z.reserve(10000);
  for (int i = -4400; i <= 4400; ++i) z.push_back(static_cast<float>(i) * 0.00317f);
  for (const IsaLevel level : available_levels()) {
    SCOPED_TRACE(level_name(level));
    std::vector<float> out = z;
    kernels_of(level).gelu_erf(out.data(), out.size());
    for (std::size_t i = 0; i < z.size(); ++i) {
      const auto x = static_cast<double>(z[i]);
      ASSERT_LE(std::abs(static_cast<double>(out[i]) - gelu_erf(x)), 1e-7 * std::max(1.0, std::abs(gelu_erf(x)))) << x;
      // The exponent of e^(-x²/2) is rounded to F32, which costs x²/2 in units of its last place.
      const double relative = 1e-6 + x * x * 1e-7;
      if (x < 0.0 && x > -12.0) {
        ASSERT_LE(std::abs(static_cast<double>(out[i]) - gelu_erf(x)), relative * -gelu_erf(x)) << x;
      }
    }
  }
}

// What comes out depends on the value, not on its place in the row or on the row's length.
TEST(RowwiseActivations, AValueGivesTheSameBitsWhereverItStands) {
  const std::vector<float> z = random_values(1000, 3, 4.0f);
  const std::vector<float> up = random_values(1000, 4);
  for (const IsaLevel level : available_levels()) {
    SCOPED_TRACE(level_name(level));
    const CpuKernels& kernels = kernels_of(level);
    for (const Activation& activation : kActivations) {
      std::vector<float> all = z;
      (kernels.*activation.gated)(all.data(), up.data(), all.size());
      std::vector<float> alone = z;
      (kernels.*activation.alone)(alone.data(), alone.size());
      for (std::size_t i = 0; i < z.size(); ++i) {
        float one = z[i];
        (kernels.*activation.gated)(&one, &up[i], 1);
        ASSERT_EQ(one, all[i]) << activation.name << " of value " << i;
        one = z[i];
        (kernels.*activation.alone)(&one, 1);
        ASSERT_EQ(one, alone[i]) << activation.name << " of value " << i;
        ASSERT_EQ(one * up[i], all[i]) << "one pass gives what two would";
      }
    }
  }
}

TEST(RowwiseActivations, BadNumbersStayBad) {
  for (const IsaLevel level : available_levels()) {
    SCOPED_TRACE(level_name(level));
    const CpuKernels& kernels = kernels_of(level);
    for (const Activation& activation : kActivations) {
      for (const float bad : {kNan, kInf, -kInf}) {
        std::vector<float> row(21, 1.0f);
        row[3] = row[18] = bad;
        (kernels.*activation.alone)(row.data(), row.size());
        const bool zeroed = activation.exact == relu_squared && bad < 0.0f;
        for (std::size_t i = 0; i < row.size(); ++i) {
          EXPECT_EQ(std::isfinite(row[i]), zeroed || (i != 3 && i != 18)) << activation.name << " of " << bad;
        }
      }
    }
  }
}

TEST(RowwiseActivations, ClampedSwigluAndSoftCap) {
  for_levels_and_lengths([](const CpuKernels& kernels, std::size_t length) {
    const std::vector<float> z = random_values(length, 5, 6.0f);
    const std::vector<float> up = random_values(length, 6, 6.0f);
    Row gate{z};
    kernels.swiglu_clamped(gate.data(), up.data(), 7.0f, 1.702f, length);
    Row capped{z};
    kernels.soft_cap(capped.data(), 2.0f, 30.0f, length);
    Row scaled{z};
    kernels.soft_cap(scaled.data(), 0.3f, 0.0f, length);
    for (std::size_t i = 0; i < length; ++i) {
      const double g = std::min(static_cast<double>(z[i]), 7.0);
      const double u = std::clamp(static_cast<double>(up[i]), -7.0, 7.0);
      const double alpha = static_cast<double>(1.702f);
      ASSERT_NO_FATAL_FAILURE(expect_close(gate[i], g / (1.0 + std::exp(-alpha * g)) * (u + 1.0), 1e-6));
      ASSERT_NO_FATAL_FAILURE(expect_close(capped[i], 30.0 * std::tanh(2.0 * static_cast<double>(z[i]) / 30.0), 5e-6));
      ASSERT_EQ(scaled[i], z[i] * 0.3f);
    }
    ASSERT_TRUE(gate.intact() && capped.intact() && scaled.intact());
  });
}

}  // namespace
}  // namespace quarrel::test
