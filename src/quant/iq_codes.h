// The codebooks of quant/iq_tables.h as integers, for kernels that look up many entries at once: sixteen bits an entry,
// eight two-bit or four four-bit numbers of values. The lower byte holds the row's even columns, the upper its odd
// ones, each from its lowest bits up: a shift puts two neighbours into place. What the values are: 8, 25, 43 (IQ2); 4,
// 12, 20, 28, 36, 44, 52, 62 (IQ3_XXS); 1, 3, 5 to 15 (IQ3_S); -1, 0, 1 (IQ1).
#pragma once

#include <cstddef>
#include <cstdint>

namespace quarrel {

// One number more than the codebook has entries, because a kernel may read 32 bits at each.
template <std::size_t kRows>
struct CodebookCodes {
  std::uint16_t at[kRows + 1];
};
// A codebook that is too large for anything but reading its entries one by one: each code twice, as it will be wanted.
template <std::size_t kRows>
struct TwiceCodes {
  std::int32_t at[kRows];
};
extern const CodebookCodes<256> kIq2XxsCodes;
extern const CodebookCodes<512> kIq2XsCodes;
extern const CodebookCodes<1024> kIq2SCodes;
extern const CodebookCodes<256> kIq3XxsCodes;
extern const CodebookCodes<512> kIq3SCodes;
extern const TwiceCodes<2048> kIq1Codes;

}  // namespace quarrel
