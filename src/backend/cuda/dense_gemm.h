// GEMMs with F32 sums through cuBLASLt: prompts and large batches on weights in 16 bits, or on those that a file has in
// F32, without loss. A shape is planned when it first comes and kept. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "backend/cuda/device_memory.h"

namespace quarrel::cuda {

struct GemmShape {
  int tokens = 0;
  int rows = 0;
  int columns = 0;
  int in_stride = 0;      // from a token's numbers to the next one's; 0: they follow each other
  int out_stride = 0;     // from a token's results to the next one's; 0: they follow each other
  bool f32_in = false;    // both the weight and the tokens' numbers; false: F16
  bool f32_out = true;    // false: F16
  bool is_added = false;  // out += scale * value instead of out = value
  auto operator<=>(const GemmShape&) const = default;
};

// out[tokens][rows] = in[tokens][columns] * weight[rows][columns]^T.
class DenseGemm {
 public:
  DenseGemm();
  ~DenseGemm();
  DenseGemm(const DenseGemm&) = delete;
  DenseGemm& operator=(const DenseGemm&) = delete;

  // Leading dimensions must be multiples of eight numbers, in F32 of four, places of 16 bytes.
  static bool can_multiply(int rows, int columns) { return rows % 8 == 0 && columns % 8 == 0; }
  static std::size_t workspace_bytes();

  void run(const LaunchContext& context, GemmShape shape, const void* weight, const void* in, void* out,
           float scale = 1.0f);

 private:
  struct Planner;
  std::unique_ptr<Planner> planner_;
};

}  // namespace quarrel::cuda
