// F16 GEMMs with F32 sums through cuBLASLt: prompts and large batches on weights in 16 bits. A shape is planned when
// it first comes and kept. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "backend/cuda/device_memory.h"

namespace quarrel::cuda {

struct GemmShape {
  int tokens = 0;
  int rows = 0;
  int columns = 0;
  int out_stride = 0;     // from a token's results to the next one's; 0: they follow each other
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

  // Leading dimensions must be multiples of eight numbers, places of 16 bytes.
  static bool can_multiply(int rows, int columns) { return rows % 8 == 0 && columns % 8 == 0; }
  static std::size_t workspace_bytes();

  void run(const LaunchContext& context, const GemmShape& shape, const std::uint16_t* weight, const std::uint16_t* in,
           void* out, float scale = 1.0f);

 private:
  struct Planner;
  std::unique_ptr<Planner> planner_;
};

}  // namespace quarrel::cuda
