#include "backend/cuda/cuda_module.h"

#include <exception>

#include "backend/cuda/cuda_device.h"
#include "base/module_reason.h"

extern "C" __attribute__((visibility("default"))) quarrel::Device* quarrel_open_cuda_device(int version, int ordinal,
                                                                                            char* reason,
                                                                                            std::size_t capacity) {
  try {
    if (version == quarrel::kCudaModuleVersion) return new quarrel::cuda::CudaDevice(ordinal);
    quarrel::put_reason("libquarrel_cuda.so belongs to another build of quarrel", reason, capacity);
  } catch (const std::exception& error) {
    quarrel::put_reason(error.what(), reason, capacity);
  }
  return nullptr;
}
