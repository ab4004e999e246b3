// What the machine could do at best, measured: how fast it reads memory and how fast it multiplies and adds. A
// benchmark measures both in the same run and on the same number of threads, so that its shares compare like with like.
// The calls start threads of their own, each on a core of its own, and return when they are done.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace quarrel {

struct ReadSpeed {
  double bytes_per_s = 0.0;
  std::size_t buffer_bytes = 0;
  std::string method;  // which of the ways of reading was the fastest: "plain", "prefetch 4 KiB ahead" …
};

struct ArithmeticSpeed {
  double macs_per_s = 0.0;   // a multiplication and the addition of its result
  std::string instructions;  // "avx512", "avx2" or "baseline"; "avx512-vnni"; "amx-int8"
};

// A cache that all measuring threads have together: what lies in it is read faster than memory.
struct CacheLevel {
  std::string name;  // "L2"
  std::size_t bytes = 0;
};

struct MachineSpeed {
  // A GPU: `read` is what it copies, `f32` how fast it multiplies in 16 bits, which everything is held to.
  bool is_gpu = false;
  int threads = 1;
  std::vector<CacheLevel> caches = {};  // smallest first; empty where the system does not say
  ReadSpeed read;
  ArithmeticSpeed f32;                     // fused multiply-adds
  std::optional<ArithmeticSpeed> integer;  // 8-bit multiply-adds in vectors
  std::optional<ArithmeticSpeed> int8_tiles;
  std::optional<ArithmeticSpeed> bf16_tiles;

  // The fastest there is for quantised weights.
  const ArithmeticSpeed& fastest_integer() const;
};

// The best of several passes each. Reading goes through a buffer too large for the caches: 1 GiB if `memory_available`
// allows, less if not.
MachineSpeed measure_machine(int threads, std::size_t memory_available);

}  // namespace quarrel
