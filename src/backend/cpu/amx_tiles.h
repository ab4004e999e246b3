// What all users of AMX tiles share: leave to use them, and the configuration that each thread loads for itself.
#pragma once

#include <cstdint>

namespace quarrel {

// What may be done with AMX tiles. A process must ask its operating system before any of its threads touches a tile;
// asking again costs nothing. All false where the processor has no tiles or the answer is no.
struct TileSupport {
  bool int8 = false;
  bool bf16 = false;
};
TileSupport request_tiles();

// As LDTILECFG reads it: 16 rows of 64 bytes for each of the eight tiles.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

}  // namespace quarrel
