// CUDA's return codes as `Error`: the message names the op that asked. Light enough for CUDA sources, which the
// formatting library would slow down.
#pragma once

#include <cuda_runtime_api.h>

namespace quarrel::cuda {

// Throws Error(out_of_memory) for a failed allocation, Error(device_lost) for what every later call would fail with
// too, and Error(internal) for everything else that is no success.
void check(cudaError_t status, const char* op);

// Throws Error(internal): who called a backend did not keep to its contract.
void require(bool condition, const char* what);

// Whether the process's context on the device is of no use after it.
bool is_lasting(cudaError_t status) noexcept;

// Throws Error(internal): a launch that makes no sense.
[[noreturn]] void fail_launch(const char* op, const char* reason);

}  // namespace quarrel::cuda
