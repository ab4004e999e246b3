// F16 products with F32 sums through cuBLASLt: prompts and large batches on weights decoded to 16 bits.
#pragma once

#include <cstdint>
#include <memory>

#include "backend/cuda/device_memory.h"

namespace quarrel::cuda {

// One shape, planned once. out[tokens][rows] = in[tokens][columns] * weight[rows][columns]^T.
class DenseGemm {
 public:
  DenseGemm(int tokens, int rows, int columns, bool f32_out);
  ~DenseGemm();
  DenseGemm(const DenseGemm&) = delete;
  DenseGemm& operator=(const DenseGemm&) = delete;

  void run(const LaunchContext& context, const std::uint16_t* weight, const std::uint16_t* in, void* out);

 private:
  struct Plan;
  std::unique_ptr<Plan> plan_;
};

}  // namespace quarrel::cuda
