#include "backend/cuda/cuda_error.h"

#include "base/error.h"

namespace quarrel::cuda {

namespace {

// Lasting errors that not every toolkit has a name for; their numbers never change.
constexpr int kContained = 226;
constexpr int kTensorMemoryLeak = 721;
constexpr int kMpsClientTerminated = 810;
constexpr int kExternalDevice = 911;

}  // namespace

bool is_lasting(cudaError_t status) noexcept {
  switch (static_cast<int>(status)) {
    case kContained:
    case kTensorMemoryLeak:
    case kMpsClientTerminated:
    case kExternalDevice:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorContextIsDestroyed:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure: return true;
    default: return false;
  }
}

namespace {

ErrorKind kind_of(cudaError_t status) noexcept {
  if (status == cudaErrorMemoryAllocation) return ErrorKind::out_of_memory;
  return is_lasting(status) ? ErrorKind::device_lost : ErrorKind::internal;
}

}  // namespace

void check(cudaError_t status, const char* op) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // else the runtime tells it of the next op, too
  fail(kind_of(status), "CUDA, {}: {} ({})", op, cudaGetErrorString(status), cudaGetErrorName(status));
}

void require(bool condition, const char* what) {
  if (!condition) fail(ErrorKind::internal, "a backend was called wrongly: {}", what);
}

void fail_launch(const char* op, const char* reason) { fail(ErrorKind::internal, "CUDA, {}: {}", op, reason); }

}  // namespace quarrel::cuda
