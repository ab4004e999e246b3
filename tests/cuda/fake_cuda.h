// A CUDA without a GPU, linked in the place of the runtime and of cuBLASLt: device memory is the host's, so that
// AddressSanitizer looks at every copy, copies are made at once, graphs are lists of what was captured, and kernels do
// nothing. For tests of what the host does around kernels: memory, order, graphs, and every call that may fail.
//
// Any thread; `fails` is set while nothing runs.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

namespace quarrel::test {

struct FakeCuda {
  // What a call, by the runtime's own name, is to return before it has done anything; cudaSuccess: it goes on. A call
  // of cuBLASLt that "fails" says that the device did not run it.
  std::function<cudaError_t(std::string_view call)> fails = {};
  std::size_t memory = std::size_t{8} << 30;  // of the device
  int multiprocessors = 132;
  int shared_kib = 227;  // a thread block
  int capability = 90;   // of the device, and of the code

  // What there is at the moment.
  std::size_t device_bytes = 0;
  std::size_t pinned_bytes = 0;
  int objects = 0;  // streams, events, graphs, descriptions
  // What has happened so far.
  std::uint64_t launches = 0;  // of kernels, those of graphs included
  std::uint64_t captures = 0;
  std::uint64_t replays = 0;
};

// The one there is; reset_fake_cuda() makes it what it was at first, but for what still is.
FakeCuda& fake_cuda();
void reset_fake_cuda();

}  // namespace quarrel::test
