#include "backend/cuda/device_memory.h"

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/rowwise.h"
#include "backend/host_memory.h"
#include "base/error.h"

namespace quarrel::cuda {
namespace {

constexpr double kGigabyte = 1e9;

double gigabytes(std::size_t bytes) { return static_cast<double>(bytes) / kGigabyte; }

}  // namespace

void fail_for_memory(std::string_view purpose, std::size_t bytes) {
  cudaGetLastError();  // a failed allocation is no reason to fail the next call
  std::size_t available = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&available, &total), "memory");
  const std::string size = bytes > 0 ? fmt::format("takes {:.2f} GB", gigabytes(bytes)) : "lacks memory";
  fail(ErrorKind::out_of_memory, "{} {}, and {:.2f} of the device's {:.2f} GB are free", purpose, size,
       gigabytes(available), gigabytes(total));
}

DeviceBuffer::DeviceBuffer(std::size_t bytes, const char* purpose) : bytes_(bytes) {
  if (bytes == 0) return;
  void* place = nullptr;
  const cudaError_t status = cudaMalloc(&place, bytes);
  if (status == cudaErrorMemoryAllocation) fail_for_memory(purpose, bytes);
  check(status, purpose);
  data_ = static_cast<std::byte*>(place);
}

DeviceBuffer::~DeviceBuffer() { cudaFree(data_); }

PinnedBuffer::PinnedBuffer(std::size_t bytes, const char* purpose) : bytes_(bytes) {
  if (bytes == 0) return;
  void* place = nullptr;
  const cudaError_t status = cudaMallocHost(&place, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    const double mebibyte = 1024.0 * 1024.0;
    fail(ErrorKind::out_of_memory,
         "{} takes {:.1f} MiB of main memory that cannot be paged out, and {:.0f} MiB are free", purpose,
         static_cast<double>(bytes) / mebibyte, static_cast<double>(host_memory_available()) / mebibyte);
  }
  check(status, purpose);
  data_ = static_cast<std::byte*>(place);
}

PinnedBuffer::~PinnedBuffer() { cudaFreeHost(data_); }

std::byte* Arena::take(std::size_t bytes) {
  const std::size_t rounded = aligned(bytes);
  if (rounded > buffer_.size() - used_) {
    fail(ErrorKind::internal, "an arena of {} bytes has no room for {} more", buffer_.size(), rounded);
  }
  std::byte* place = buffer_.data() + used_;
  used_ += rounded;
  return place;
}

Stream::Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream"); }
Stream::~Stream() { cudaStreamDestroy(stream_); }
void Stream::synchronize() const { check(cudaStreamSynchronize(stream_), "wait for a stream"); }

Event::Event(bool timed) {
  check(cudaEventCreateWithFlags(&event_, timed ? cudaEventDefault : cudaEventDisableTiming), "event");
}
Event::~Event() { cudaEventDestroy(event_); }
void Event::record(const Stream& stream) const { check(cudaEventRecord(event_, stream.get()), "record an event"); }
void Event::synchronize() const { check(cudaEventSynchronize(event_), "wait for an event"); }

float Event::until(const Event& later) const {
  float milliseconds = 0.0f;
  check(cudaEventElapsedTime(&milliseconds, event_, later.event_), "time between events");
  return milliseconds;
}

LaunchContext launch_context(int device, const Stream& stream) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "device properties");
  return {.stream = stream.get(),
          .multiprocessors = properties.multiProcessorCount,
          .shared_bytes = static_cast<int>(properties.sharedMemPerBlockOptin),
          .dependent_launch = properties.major >= 9 && kernels_wait_for_previous(),
          .has_wgmma = properties.major == 9 && kernels_wait_for_previous()};
}

}  // namespace quarrel::cuda
