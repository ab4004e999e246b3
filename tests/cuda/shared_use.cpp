#include "cuda/shared_use.h"

#include <cuda_runtime_api.h>

namespace quarrel::cuda {
namespace {

SharedUse& use() {
  static SharedUse known;
  return known;
}

}  // namespace

const SharedUse& largest_shared_use() { return use(); }

}  // namespace quarrel::cuda

extern "C" {

cudaError_t __real_cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void** arguments);

cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void** arguments) {
  cudaFuncAttributes attributes{};
  ++quarrel::cuda::use().launches;
  if (cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess) {
    const std::size_t bytes = attributes.sharedSizeBytes + config->dynamicSmemBytes;
    quarrel::cuda::SharedUse& largest = quarrel::cuda::use();
    if (bytes > largest.bytes) {
      const char* name = nullptr;
      largest.bytes = bytes;
      largest.kernel = cudaFuncGetName(&name, kernel) == cudaSuccess && name != nullptr ? name : "a kernel";
    }
  }
  return __real_cudaLaunchKernelExC(config, kernel, arguments);
}

}  // extern "C"
