// GEMV with matrices of F16 numbers as the file has them: what generated rows take where weights are not quantised.
//
// Weights are read once for up to four rows; products and sums are F32, made in an order that depends on the matrix's
// shape alone: a row's bits do not depend on how many rows there are. Norms and ends are those of gemv.h, fused.
#pragma once

#include "backend/cuda/gemv.h"

namespace quarrel::cuda {

// Rows must begin at multiples of 16 bytes.
constexpr bool can_run_half_gemv(const DenseMatrix& matrix) {
  return matrix.data != nullptr && matrix.is_f16 && matrix.columns % 8 == 0;
}

// Once a process and device, before the first half_gemv().
void prepare_half_gemv(const LaunchContext& context);

// With the matrices' `halves`; op.split is not used.
void half_gemv(const LaunchContext& context, const GemvOp& op);

}  // namespace quarrel::cuda
