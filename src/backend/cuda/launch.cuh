// One way to launch a kernel, with its error checked and, where the device can, started before its predecessor ends.
#pragma once

#include <cuda_runtime.h>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/device_memory.h"

namespace quarrel::cuda {

// `cluster`: so many thread blocks that follow each other form a cluster; more than one on Hopper alone.
template <typename... Parameters, typename... Arguments>
void launch_clusters(const char* op, const LaunchContext& context, int cluster, void (*kernel)(Parameters...),
                     dim3 grid, dim3 block, int shared_bytes, const Arguments&... arguments) {
  // All of a multiprocessor's memory is to be shared, whoever runs: it would have to run dry to divide it anew.
  cudaLaunchAttribute attributes[3] = {};
  unsigned count = 0;
  attributes[count].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
  attributes[count++].val.sharedMemCarveout = cudaSharedmemCarveoutMaxShared;
  if (context.dependent_launch) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count].val.clusterDim.x = static_cast<unsigned>(cluster);
    attributes[count].val.clusterDim.y = 1;
    attributes[count++].val.clusterDim.z = 1;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = context.stream;
  config.attrs = attributes;
  config.numAttrs = count;
  check(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...), op);
}

template <typename... Parameters, typename... Arguments>
void launch(const char* op, const LaunchContext& context, void (*kernel)(Parameters...), dim3 grid, dim3 block,
            int shared_bytes, const Arguments&... arguments) {
  launch_clusters(op, context, 1, kernel, grid, block, shared_bytes, arguments...);
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
