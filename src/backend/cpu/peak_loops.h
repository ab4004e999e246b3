// Loops that multiply and add in registers and do nothing else: what this processor's integer units and matrix tiles
// could do at best. A benchmark runs them on as many threads as it measures with. Pure functions of the machine: any
// thread may call them.
#pragma once

#include <cstdint>
#include <optional>

namespace quarrel {

struct PeakLoop {
  const char* instructions = "";  // "avx512-vnni"
  double macs_per_round = 0.0;    // multiply-adds
  // Gives back a sum that the caller must want, or nothing would be computed.
  std::int64_t (*run)(std::int64_t rounds) = nullptr;
};

// Multiply-adds of 8-bit integers, summed in 32 bits. None where the processor has neither AVX-512 VNNI nor AVX2.
std::optional<PeakLoop> integer_peak_loop();

// The same for tiles. None without support.
std::optional<PeakLoop> int8_tile_peak_loop();
std::optional<PeakLoop> bf16_tile_peak_loop();

}  // namespace quarrel
