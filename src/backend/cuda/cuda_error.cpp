#include "backend/cuda/cuda_error.h"

#include "base/error.h"

namespace quarrel::cuda {

void check(cudaError_t status, const char* op) {
  if (status == cudaSuccess) return;
  const ErrorKind kind = status == cudaErrorMemoryAllocation ? ErrorKind::out_of_memory : ErrorKind::internal;
  fail(kind, "CUDA, {}: {} ({})", op, cudaGetErrorString(status), cudaGetErrorName(status));
}

void fail_launch(const char* op, const char* reason) { fail(ErrorKind::internal, "CUDA, {}: {}", op, reason); }

}  // namespace quarrel::cuda
