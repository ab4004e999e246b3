// GEMV with matrices of F16 or F32 numbers, one warp an output: for weights that are not quantised, of any width. A
// row's sums are made in an order that depends on the matrix's columns alone.
#pragma once

#include "backend/cuda/device_memory.h"
#include "backend/cuda/row_ops.h"

namespace quarrel::cuda {

struct DenseMatrix {
  const void* data = nullptr;  // [rows][columns]
  bool is_f16 = false;
  int rows = 0;
  int columns = 0;
};

struct DenseGemvOp {
  DenseMatrix weight = {};
  RowSpan in = {};              // its width is the matrix's columns
  const float* bias = nullptr;  // [rows]
  float* out = nullptr;         // [in.count][out_stride]
  int out_stride = 0;
  bool add = false;    // out += scale * value instead of out = value
  float scale = 1.0f;  // of `add`
};

void dense_gemv(const LaunchContext& context, const DenseGemvOp& op);

}  // namespace quarrel::cuda
