// What the machine could do at best, measured: how fast it reads memory and how fast it multiplies and adds. A
// benchmark measures both in the same run and on the same number of threads, so that its shares compare like with like.
// The calls start threads of their own and return when they are done.
#pragma once

#include <cstddef>
#include <string>

namespace quarrel {

struct ReadSpeed {
  double bytes_per_s = 0.0;
  std::size_t buffer_bytes = 0;
};

// The best of several passes in which all threads read a buffer too large for the caches: 1 GiB if `memory_available`
// allows, less if not.
ReadSpeed measure_read_speed(int threads, std::size_t memory_available);

struct ArithmeticSpeed {
  double flops_per_s = 0.0;  // a multiplication and an addition are two
  std::string instructions;  // "avx512", "avx2" or "baseline"
};

// The best of several passes of F32 multiply-adds in registers.
ArithmeticSpeed measure_f32_peak(int threads);

}  // namespace quarrel
