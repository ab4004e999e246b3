#include "backend/cuda/cuda_module.h"

#include <algorithm>
#include <exception>
#include <string_view>

#include "backend/cuda/cuda_device.h"

namespace {

void put_reason(std::string_view reason, char* place, std::size_t capacity) {
  if (capacity == 0) return;
  const std::size_t length = std::min(reason.size(), capacity - 1);
  std::copy_n(reason.begin(), length, place);
  place[length] = '\0';
}

}  // namespace

extern "C" __attribute__((visibility("default"))) quarrel::Device* quarrel_open_cuda_device(int version, int ordinal,
                                                                                            char* reason,
                                                                                            std::size_t capacity) {
  try {
    if (version == quarrel::kCudaModuleVersion) return new quarrel::cuda::CudaDevice(ordinal);
    put_reason("libquarrel_cuda.so belongs to another build of quarrel", reason, capacity);
  } catch (const std::exception& error) {
    put_reason(error.what(), reason, capacity);
  }
  return nullptr;
}
