#include "backend/cuda/launch.cuh"

namespace quarrel::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kUnroll = 4;

__global__ void __launch_bounds__(kThreads) copy_kernel(uint4* to, const uint4* from, std::size_t count) {
  const std::size_t first = static_cast<std::size_t>(blockIdx.x) * kThreads * kUnroll + threadIdx.x;
  uint4 values[kUnroll];
#pragma unroll
  for (int i = 0; i < kUnroll; ++i) {
    if (first + i * kThreads < count) values[i] = __ldcs(from + first + i * kThreads);
  }
#pragma unroll
  for (int i = 0; i < kUnroll; ++i) {
    if (first + i * kThreads < count) __stcs(to + first + i * kThreads, values[i]);
  }
}

}  // namespace

void copy_on_device(const LaunchContext& context, std::byte* to, const std::byte* from, std::size_t bytes) {
  const std::size_t count = bytes / sizeof(uint4);
  LaunchContext plain = context;
  plain.dependent_launch = false;
  launch("copy", plain, copy_kernel,
         dim3(static_cast<unsigned>((count + kThreads * kUnroll - 1) / (kThreads * kUnroll))), dim3(kThreads), 0,
         reinterpret_cast<uint4*>(to), reinterpret_cast<const uint4*>(from), count);
}

}  // namespace quarrel::cuda
