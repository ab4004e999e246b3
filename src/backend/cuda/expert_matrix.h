// A weight of all experts of a layer in device memory, and what becomes of its rows: what the kernels for experts take.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/dense_gemv.h"
#include "backend/cuda/gate_function.h"
#include "backend/cuda/weight_format.h"

namespace quarrel::cuda {

struct ExpertMatrix {
  PackedMatrix packed = {};      // of the first expert; without data where the weights are F16 or F32
  DenseMatrix dense = {};        // the same for these
  std::size_t expert_bytes = 0;  // from an expert to the next
  const float* bias = nullptr;   // [experts][rows]
};

enum class ExpertEnd : std::uint8_t {
  store,     // out = value
  activate,  // out = activation(value)
  glu,       // out = activation(value of the first matrix) * value of the second
};

}  // namespace quarrel::cuda
