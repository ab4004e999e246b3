#include "backend/cuda/device_speed.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/dense_gemm.h"
#include "base/as_size.h"

namespace quarrel::cuda {
namespace {

constexpr int kPasses = 10;
constexpr std::size_t kCopyBytes = std::size_t{1} << 30;  // far more than any cache
constexpr std::size_t kLeastCopyBytes = std::size_t{64} << 20;
constexpr int kGemmSide = 8192;
constexpr int kLeastGemmSide = 2048;

// The seconds of the fastest of several passes, after one that loads what has to be loaded.
template <typename Pass>
double fastest(const Stream& stream, const Pass& pass) {
  const Event begin(true);
  const Event end(true);
  pass();
  double best = 0.0;
  for (int i = 0; i < kPasses; ++i) {
    begin.record(stream);
    pass();
    end.record(stream);
    end.synchronize();
    const double seconds = static_cast<double>(begin.until(end)) * 1e-3;
    if (i == 0 || seconds < best) best = seconds;
  }
  return std::max(best, 1e-9);
}

std::size_t free_memory() {
  std::size_t available = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&available, &total), "memory");
  return available;
}

double copy_rate(const LaunchContext& context, const Stream& stream) {
  const std::size_t available = free_memory();
  std::size_t bytes = kCopyBytes;
  while (bytes > kLeastCopyBytes && bytes > available / 4) bytes /= 2;
  const DeviceBuffer from(bytes, "measuring the copy bandwidth");
  const DeviceBuffer to(bytes, "measuring the copy bandwidth");
  check(cudaMemsetAsync(from.data(), 0x5a, bytes, stream.get()), "measuring the copy bandwidth");
  const double seconds = fastest(stream, [&] { copy_on_device(context, to.data(), from.data(), bytes); });
  return 2.0 * static_cast<double>(bytes) / seconds;
}

// Normal numbers of both signs between 1/8 and 2: zeros would be multiplied faster.
std::vector<std::uint16_t> some_halves(std::size_t count) {
  std::vector<std::uint16_t> halves(count);
  std::uint32_t state = 1;
  for (std::uint16_t& half : halves) {
    state = state * 1664525u + 1013904223u;
    half = static_cast<std::uint16_t>((state >> 8 & 0x83ffu) | (12u + (state >> 24) % 4u) << 10);
  }
  return halves;
}

double gemm_rate(const LaunchContext& context, const Stream& stream) {
  const std::size_t available = free_memory();
  int side = kGemmSide;
  while (side > kLeastGemmSide && 6 * as_size(side) * as_size(side) > available / 2) side /= 2;
  const std::size_t count = as_size(side) * as_size(side);
  const std::vector<std::uint16_t> numbers = some_halves(count);
  const DeviceBuffer weight(2 * count, "measuring the GEMM rate");
  const DeviceBuffer in(2 * count, "measuring the GEMM rate");
  const DeviceBuffer out(2 * count, "measuring the GEMM rate");
  for (const DeviceBuffer* operand : {&weight, &in}) {
    check(cudaMemcpyAsync(operand->data(), numbers.data(), 2 * count, cudaMemcpyHostToDevice, stream.get()),
          "measuring the GEMM rate");
  }
  stream.synchronize();
  DenseGemm gemm;
  const GemmShape shape{.tokens = side, .rows = side, .columns = side, .f32_out = false};
  const double seconds = fastest(stream, [&] { gemm.run(context, shape, weight.data(), in.data(), out.data()); });
  return 2.0 * side * static_cast<double>(count) / seconds;
}

// What its clock and the width of its bus make of it; 0 where the driver does not say.
double memory_peak(int device) {
  int kilohertz = 0;
  int bits = 0;
  if (cudaDeviceGetAttribute(&kilohertz, cudaDevAttrMemoryClockRate, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, device) != cudaSuccess) {
    cudaGetLastError();
    return 0.0;
  }
  return 2.0 * 1e3 * kilohertz * bits / 8.0;
}

std::size_t cache_bytes(int device) {
  int bytes = 0;
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device), "device properties");
  return static_cast<std::size_t>(bytes);
}

}  // namespace

DeviceSpeed measure_device(int device) {
  const Stream stream;
  const LaunchContext context = launch_context(device, stream);
  return {.copy_bytes_per_s = copy_rate(context, stream),
          .gemm_flops_per_s = gemm_rate(context, stream),
          .peak_bytes_per_s = memory_peak(device),
          .cache_bytes = cache_bytes(device)};
}

}  // namespace quarrel::cuda
