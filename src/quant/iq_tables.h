// The codebooks and value lists of the IQ types and of MXFP4: facts of the format, that a block's indices refer to.
// Used by the decoders here and by the backends' kernels. Constant data: safe from any thread.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace quarrel {

using CodebookEntry8 = std::array<std::int8_t, 8>;
using CodebookEntry4 = std::array<std::int8_t, 4>;

// Magnitudes; the signs are stored apart.
extern const std::array<CodebookEntry8, 256> kIq2XxsCodebook;
extern const std::array<CodebookEntry8, 512> kIq2XsCodebook;
extern const std::array<CodebookEntry8, 1024> kIq2SCodebook;
extern const std::array<CodebookEntry4, 256> kIq3XxsCodebook;
extern const std::array<CodebookEntry4, 512> kIq3SCodebook;

// -1, 0 or 1, of IQ1_S and IQ1_M; kIq1Shift is added or taken away.
extern const std::array<CodebookEntry8, 2048> kIq1Codebook;
inline constexpr float kIq1Shift = 0.125f;

// The sixteen values of IQ4_NL and IQ4_XS, ascending.
inline constexpr std::array<std::int8_t, 16> kIq4Values = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                           1,    13,   25,  38,  53,  69,  89,  113};

// The sixteen values of E2M1, doubled so that they are whole. Code 8 (minus zero) reads as zero.
inline constexpr std::array<std::int8_t, 16> kE2m1Doubled = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// A sign pattern stored in seven bits (the others are ignored): bit j set means weight j is negative. The eighth makes
// the number of signs even.
constexpr std::uint32_t even_signs(std::uint32_t stored) noexcept {
  const std::uint32_t seven = stored & 127u;
  return seven | (static_cast<std::uint32_t>(std::popcount(seven)) & 1u) << 7;
}

}  // namespace quarrel
