#include "backend/cpu/peak_loops.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>
#include <span>

#include "backend/cpu/amx_tiles.h"
#endif

// This file is compiled with optimisation in every build, like the read loops: it measures the machine, not the build.
// Target attributes instead of machine flags, because each loop is for another machine.
namespace quarrel {

#if defined(__x86_64__)
namespace {

std::int64_t sum_of(std::span<const std::int32_t> lanes) {
  std::int64_t sum = 0;
  for (const std::int32_t lane : lanes) sum += lane;
  return sum;
}

// ---- 8-bit integers in vectors ----

// A unit starts one or two of these a cycle and takes five at most for each.
constexpr int kVnniChains = 20;

__attribute__((target("avx512f,avx512bw,avx512vnni"))) std::int64_t vnni_loop(std::int64_t rounds) {
  __m512i sums[kVnniChains];
  for (int i = 0; i < kVnniChains; ++i) sums[i] = _mm512_set1_epi32(i);
  const __m512i left = _mm512_set1_epi8(3);
  const __m512i right = _mm512_set1_epi8(-2);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 20
    for (int i = 0; i < kVnniChains; ++i) sums[i] = _mm512_dpbusd_epi32(sums[i], left, right);
  }
  __m512i total = sums[0];
  for (int i = 1; i < kVnniChains; ++i) total = _mm512_add_epi32(total, sums[i]);
  alignas(64) std::int32_t lanes[16];
  _mm512_store_si512(lanes, total);
  return sum_of(lanes);
}

constexpr int kAvx2Chains = 10;  // with three operands and what lies between the products, all sixteen registers

__attribute__((target("avx2"))) std::int64_t avx2_loop(std::int64_t rounds) {
  __m256i sums[kAvx2Chains];
  for (int i = 0; i < kAvx2Chains; ++i) sums[i] = _mm256_set1_epi32(i);
  __m256i left = _mm256_set1_epi8(3);
  const __m256i right = _mm256_set1_epi8(-2);
  const __m256i ones = _mm256_set1_epi16(1);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 10
    for (int i = 0; i < kAvx2Chains; ++i) {
      // As if it had changed: the same product must be computed again.
      asm volatile("" : "+x"(left));
      sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(_mm256_maddubs_epi16(left, right), ones));
    }
  }
  __m256i total = sums[0];
  for (int i = 1; i < kAvx2Chains; ++i) total = _mm256_add_epi32(total, sums[i]);
  alignas(32) std::int32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), total);
  return sum_of(lanes);
}

// ---- Tiles ----

constexpr int kBf16TileRows = 16;
constexpr int kTileRowBytes = 64;
constexpr int kTileChains = 6;  // sums; the other two of the eight tiles are the factors

struct alignas(64) Tile {
  std::uint8_t bytes[kBf16TileRows * kTileRowBytes];
};

// A macro, because the tiles of an instruction are written into it. The thread loads its own configuration and leaves
// none behind. The compiler does not know that a tile is loaded from memory: the barrier tells it.
#define QUARREL_TILE_LOOP(name, features, multiply)                          \
  __attribute__((target(features))) std::int64_t name(std::int64_t rounds) { \
    const TileConfig config;                                                 \
    Tile factors;                                                            \
    for (std::size_t i = 0; i < sizeof factors.bytes; i += 2) {              \
      factors.bytes[i] = 0x80; /* 1.0 in BF16 */                             \
      factors.bytes[i + 1] = 0x3f;                                           \
    }                                                                        \
    Tile sums;                                                               \
    std::memset(&sums, 0, sizeof sums);                                      \
    asm volatile("" : : "r"(&factors), "r"(&config), "r"(&sums) : "memory"); \
    _tile_loadconfig(&config);                                               \
    _tile_zero(0);                                                           \
    _tile_zero(1);                                                           \
    _tile_zero(2);                                                           \
    _tile_zero(3);                                                           \
    _tile_zero(4);                                                           \
    _tile_zero(5);                                                           \
    _tile_loadd(6, factors.bytes, kTileRowBytes);                            \
    _tile_loadd(7, factors.bytes, kTileRowBytes);                            \
    for (std::int64_t round = 0; round < rounds; ++round) {                  \
      multiply(0, 6, 7);                                                     \
      multiply(1, 6, 7);                                                     \
      multiply(2, 6, 7);                                                     \
      multiply(3, 6, 7);                                                     \
      multiply(4, 6, 7);                                                     \
      multiply(5, 6, 7);                                                     \
    }                                                                        \
    _tile_stored(0, sums.bytes, kTileRowBytes);                              \
    _tile_release();                                                         \
    asm volatile("" : : "r"(&sums) : "memory");                              \
    std::int64_t result = 0;                                                 \
    for (const std::uint8_t byte : sums.bytes) result += byte;               \
    return result;                                                           \
  }
QUARREL_TILE_LOOP(int8_tile_loop, "amx-tile,amx-int8", _tile_dpbusd)
QUARREL_TILE_LOOP(bf16_tile_loop, "amx-tile,amx-bf16", _tile_dpbf16ps)
#undef QUARREL_TILE_LOOP

constexpr double kTileProducts = kTileChains * kBf16TileRows * (kTileRowBytes / 4.0);  // of rows and columns, a round

}  // namespace

std::optional<PeakLoop> integer_peak_loop() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vnni")) {
    return PeakLoop{.instructions = "avx512-vnni", .macs_per_round = 64.0 * kVnniChains, .run = vnni_loop};
  }
  if (__builtin_cpu_supports("avx2")) {
    return PeakLoop{.instructions = "avx2", .macs_per_round = 32.0 * kAvx2Chains, .run = avx2_loop};
  }
  return std::nullopt;
}

std::optional<PeakLoop> int8_tile_peak_loop() {
  if (!request_tiles().int8) return std::nullopt;
  return PeakLoop{.instructions = "amx-int8", .macs_per_round = 64 * kTileProducts, .run = int8_tile_loop};
}

std::optional<PeakLoop> bf16_tile_peak_loop() {
  if (!request_tiles().bf16) return std::nullopt;
  return PeakLoop{.instructions = "amx-bf16", .macs_per_round = 32 * kTileProducts, .run = bf16_tile_loop};
}

#else

std::optional<PeakLoop> integer_peak_loop() { return std::nullopt; }
std::optional<PeakLoop> int8_tile_peak_loop() { return std::nullopt; }
std::optional<PeakLoop> bf16_tile_peak_loop() { return std::nullopt; }

#endif

}  // namespace quarrel
