#include "backend/cuda_loader.h"

#include <array>

#include "backend/cuda/cuda_module.h"
#include "base/error.h"
#include "base/loadable_module.h"

namespace quarrel {
namespace {

constexpr LoadableModule kModule = {.file = "libquarrel_cuda.so", .part = "CUDA backend", .remedy = ""};

}  // namespace

bool has_cuda_module() { return has_module(kModule); }

std::unique_ptr<Device> open_cuda_device(int ordinal) {
  const auto open = reinterpret_cast<OpenCudaDevice>(module_function(kModule, kOpenCudaDevice));
  std::array<char, 512> reason{};
  std::unique_ptr<Device> device(open(kCudaModuleVersion, ordinal, reason.data(), reason.size()));
  if (device == nullptr) fail(ErrorKind::unsupported, "{}", reason.data());
  return device;
}

}  // namespace quarrel
