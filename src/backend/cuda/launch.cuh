// One way to launch a kernel, with its error checked and, where the device can, started before its predecessor ends.
#pragma once

#include <cuda_runtime.h>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/device_memory.h"

namespace quarrel::cuda {

template <typename... Parameters, typename... Arguments>
void launch(const char* op, const LaunchContext& context, void (*kernel)(Parameters...), dim3 grid, dim3 block,
            int shared_bytes, const Arguments&... arguments) {
  // All of a multiprocessor's memory is to be shared, whoever runs: it would have to run dry to divide it anew.
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
  attributes[0].val.sharedMemCarveout = cudaSharedmemCarveoutMaxShared;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = context.stream;
  config.attrs = attributes;
  config.numAttrs = context.dependent_launch ? 2 : 1;
  check(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...), op);
}

// More than 48 KiB of shared memory must be asked for, once a kernel and process; and that a multiprocessor gives all
// of its memory to be shared: otherwise it keeps as much as one kernel needs, and the next one finds no room beside it.
template <typename... Parameters>
void allow_shared_bytes(const char* op, void (*kernel)(Parameters...), int bytes) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), op);
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared),
        op);
}

}  // namespace quarrel::cuda
