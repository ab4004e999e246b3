#include "backend/cuda/cuda_device.h"

#include <array>

#include "backend/cuda/counted_backend.h"
#include "backend/cuda/cuda_error.h"
#include "backend/cuda/decode_attention.h"
#include "backend/cuda/device_speed.h"
#include "backend/cuda/expert_gemv.h"
#include "backend/cuda/fused_experts.h"
#include "backend/cuda/gemv.h"
#include "backend/cuda/grouped_gemm.h"
#include "backend/cuda/half_gemv.h"
#include "backend/cuda/mixed_gemm.h"
#include "backend/cuda/packed_gemm.h"
#include "backend/cuda/prefill_attention.h"
#include "backend/cuda/register_gemm.h"
#include "backend/cuda/ssm.h"
#include "base/error.h"

namespace quarrel::cuda {
namespace {

constexpr int kLeastCapability = 80;  // the PTX that is embedded

int device_count() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  switch (status) {
    case cudaSuccess: break;
    case cudaErrorInsufficientDriver: {
      int driver = 0;
      cudaDriverGetVersion(&driver);
      if (driver == 0) fail(ErrorKind::unsupported, "this machine has no NVIDIA driver");
      fail(ErrorKind::unsupported, "the NVIDIA driver is too old: it is made for CUDA {}.{}, and {}.{} is needed",
           driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    }
    case cudaErrorNoDevice: count = 0; break;
    default: fail(ErrorKind::unsupported, "CUDA cannot be used: {}", cudaGetErrorString(status));
  }
  if (count == 0) fail(ErrorKind::unsupported, "this machine has no CUDA device");
  return count;
}

}  // namespace

CudaDevice::CudaDevice(int ordinal) : ordinal_(ordinal) {
  const int count = device_count();
  if (ordinal < 0 || ordinal >= count) {
    fail(ErrorKind::unsupported, "there is no device cuda:{}; this machine has {}", ordinal, count);
  }
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, ordinal), "device properties");
  if (properties.major * 10 + properties.minor < kLeastCapability) {
    fail(ErrorKind::unsupported, "cuda:{} ({}) has compute capability {}.{}, and 8.0 is the least", ordinal,
         properties.name, properties.major, properties.minor);
  }
  make_current();
  memory_total_ = properties.totalGlobalMem;
  description_ =
      fmt::format("cuda:{} ({}, {:.0f} GiB)", ordinal, properties.name, static_cast<double>(memory_total_) / (1 << 30));
  const Stream stream;
  const LaunchContext context = launch_context(ordinal, stream);
  prepare_gemv(context);
  prepare_half_gemv(context);
  prepare_decode_attention(context);
  prepare_packed_gemm(context);
  prepare_expert_gemv(context);
  prepare_fused_experts(context);
  prepare_grouped_gemm(context);
  prepare_mixed_gemm(context);
  prepare_register_gemm(context);
  prepare_prefill_attention();
  prepare_scan_few(context);
}

void CudaDevice::make_current() const { check(cudaSetDevice(ordinal_), "choice of the device"); }

std::size_t CudaDevice::memory_available() const {
  make_current();
  std::size_t available = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&available, &total), "memory");
  return available;
}

std::unique_ptr<Backend> CudaDevice::make_backend(const BackendOptions& options) {
  make_current();
  return std::make_unique<CountedBackend>(*this, options);
}

std::optional<DeviceSpeed> CudaDevice::measure_speed() {
  make_current();
  return measure_device(ordinal_);
}

std::optional<DeviceState> CudaDevice::state() const {
  make_current();
  DeviceState state;
  std::size_t available = 0;
  check(cudaMemGetInfo(&available, &state.memory_total), "memory");
  state.memory_used = state.memory_total - available;
  const std::scoped_lock lock(nvml_mutex_);
  if (nvml_ == nullptr) {
    std::array<char, 32> bus_id{};
    check(cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), ordinal_), "place of the device");
    nvml_ = std::make_unique<Nvml>(bus_id.data());
  }
  nvml_->read(state);
  return state;
}

}  // namespace quarrel::cuda
