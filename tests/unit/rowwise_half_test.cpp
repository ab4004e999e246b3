// F16 to F32 and back at every level: all halves, all ties between them and what lies next to those. A NaN stays one,
// with its sign and what fits of its payload, and becomes a quiet one: that is the same at every level.
#include <bit>
#include <numeric>

#include "quant/half.h"
#include "unit/rowwise_support.h"

namespace quarrel::test {
namespace {

std::vector<std::uint16_t> all_halves() {
  std::vector<std::uint16_t> halves(65536);
  std::iota(halves.begin(), halves.end(), std::uint16_t{0});
  return halves;
}

bool is_nan(std::uint16_t half) { return (half & 0x7fffu) > 0x7c00u; }

TEST(RowwiseHalf, EveryHalfIsExact) {
  const std::vector<std::uint16_t> halves = all_halves();
  for (const IsaLevel level : available_levels()) {
    SCOPED_TRACE(level_name(level));
    std::vector<float> floats(halves.size());
    kernels_of(level).load_half(halves.data(), floats.data(), halves.size());
    for (const std::uint16_t half : halves) {
      const auto quiet = static_cast<std::uint16_t>(half | (is_nan(half) ? 0x200u : 0u));
      ASSERT_EQ(std::bit_cast<std::uint32_t>(floats[half]), std::bit_cast<std::uint32_t>(f16_to_f32(quiet))) << half;
    }
    std::vector<std::uint16_t> back(halves.size());
    const std::uint64_t clamped = kernels_of(level).store_half(floats.data(), back.data(), floats.size());
    for (const std::uint16_t half : halves) {
      const bool infinite = (half & 0x7fffu) == 0x7c00u;
      const auto expected = static_cast<std::uint16_t>(is_nan(half) ? half | 0x200u : infinite ? half - 1u : half);
      ASSERT_EQ(back[half], expected) << half;
    }
    EXPECT_EQ(clamped, 2u) << "the infinities";
  }
}

TEST(RowwiseHalf, RoundsToNearestEven) {
  std::vector<float> values;
  std::vector<std::uint16_t> expected;
  const auto add = [&](float value, std::uint32_t half) {
    values.push_back(value);
    expected.push_back(static_cast<std::uint16_t>(half));
    values.push_back(-value);
    expected.push_back(static_cast<std::uint16_t>(half | 0x8000u));
  };
  for (std::uint32_t low = 0; low < 0x7bff; ++low) {
    const std::uint32_t high = low + 1;
    const auto at = [](std::uint32_t half) {
      return static_cast<double>(f16_to_f32(static_cast<std::uint16_t>(half)));
    };
    const auto tie = static_cast<float>((at(low) + at(high)) / 2.0);
    add(tie, (low & 1u) == 0 ? low : high);
    add(std::nextafter(tie, 0.0f), low);
    add(std::nextafter(tie, 1e6f), high);
    add(std::nextafter(f16_to_f32(static_cast<std::uint16_t>(high)), 0.0f), high);
    add(std::nextafter(f16_to_f32(static_cast<std::uint16_t>(low)), 1e6f), low);
  }
  for (const IsaLevel level : available_levels()) {
    SCOPED_TRACE(level_name(level));
    std::vector<std::uint16_t> out(values.size());
    EXPECT_EQ(kernels_of(level).store_half(values.data(), out.data(), values.size()), 0u);
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(out[i], expected[i]) << values[i];
  }
}

TEST(RowwiseHalf, ClampsAndCountsWhereverItStands) {
  for_levels_and_lengths([](const CpuKernels& kernels, std::size_t length) {
    std::vector<float> values = random_values(length, 1, 40000.0f);
    for (std::size_t i = 0; i < length; i += 5) values[i] = kNan;
    for (std::size_t i = 1; i < length; i += 11) values[i] = i % 2 == 0 ? kInf : -kInf;
    for (std::size_t i = 2; i < length; i += 13) values[i] = i % 2 == 0 ? 65504.0f : -65504.0f;
    for (std::size_t i = 3; i < length; i += 17) values[i] = std::nextafter(65504.0f, 1e6f);
    std::uint64_t beyond = 0;
    for (const float value : values) beyond += std::abs(value) > 65504.0f ? 1u : 0u;
    const Row in{values};
    GuardedRow<std::uint16_t> halves(length);
    ASSERT_EQ(kernels.store_half(in.values().data(), halves.data(), length), beyond);
    Row back(length);
    kernels.load_half(halves.data(), back.data(), length);
    for (std::size_t i = 0; i < length; ++i) {
      ASSERT_EQ(halves[i], f32_to_f16_saturating(values[i])) << values[i];
      if (std::isnan(values[i])) {
        ASSERT_TRUE(std::isnan(back[i]));
      } else {
        ASSERT_EQ(back[i], f16_to_f32(halves[i]));
      }
    }
    ASSERT_TRUE(halves.intact() && back.intact());
  });
}

}  // namespace
}  // namespace quarrel::test
