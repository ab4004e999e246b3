// What a GPU can do at best, measured: how fast a kernel of ours copies its memory, and how fast cuBLASLt multiplies.
// Benchmarks measure both in the run whose shares they tell.
#pragma once

#include <cstddef>

#include "backend/backend.h"
#include "backend/cuda/device_memory.h"

namespace quarrel::cuda {

// Faster than cudaMemcpyAsync within a device, so it is the measure. `bytes` is a multiple of 16.
void copy_on_device(const LaunchContext& context, std::byte* to, const std::byte* from, std::size_t bytes);

// The best of several passes each, on the device that is current: two gigabytes, less where there is less. Throws
// Error(out_of_memory).
DeviceSpeed measure_device(int device);

}  // namespace quarrel::cuda
