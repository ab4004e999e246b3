// What a CUDA device owns: memory, streams, events. Every object belongs to one thread at a time; destructors never
// throw.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string_view>
#include <utility>

namespace quarrel::cuda {

// Where pieces of one allocation begin.
inline constexpr std::size_t kPieceAlignment = 256;
constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + kPieceAlignment - 1) / kPieceAlignment * kPieceAlignment;
}

// Throws Error(out_of_memory): what asked, how much of the device's memory that is (0: unknown), and how much is free.
[[noreturn]] void fail_for_memory(std::string_view purpose, std::size_t bytes);

// Memory on the device. Asking for more than there is throws Error(out_of_memory) with figures.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(std::size_t bytes, const char* purpose);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return bytes_; }
  template <typename T>
  T* as() const noexcept {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Host memory that the device copies from and to without the processor's help. Asking for more than there is throws
// Error(out_of_memory) with figures.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(std::size_t bytes, const char* purpose);
  ~PinnedBuffer();
  PinnedBuffer(PinnedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Pieces of one buffer, handed out once and never returned: a step's activations, whose places a captured graph keeps.
class Arena {
 public:
  Arena() = default;
  Arena(std::size_t bytes, const char* purpose) : buffer_(bytes, purpose) {}

  // Aligned to 256 bytes. Throws Error(internal) when the arena was planned too small.
  std::byte* take(std::size_t bytes);
  template <typename T>
  T* take_array(std::size_t count) {
    return reinterpret_cast<T*>(take(count * sizeof(T)));
  }

 private:
  DeviceBuffer buffer_;
  std::size_t used_ = 0;
};

class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t get() const noexcept { return stream_; }
  void synchronize() const;

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  explicit Event(bool timed = false);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t get() const noexcept { return event_; }
  void record(const Stream& stream) const;
  void synchronize() const;
  // Milliseconds from this event to a later one; both are over.
  float until(const Event& later) const;

 private:
  cudaEvent_t event_ = nullptr;
};

// What a launch needs to know of the device it runs on.
struct LaunchContext {
  cudaStream_t stream = nullptr;
  int multiprocessors = 1;
  int shared_bytes = 48 * 1024;  // the most a thread block may have
  // Kernels may start while the one before them drains; they wait themselves before they read its results. Only for
  // code compiled for compute capability 9.0 or later: older code has no such wait.
  bool dependent_launch = false;
  bool has_wgmma = false;  // code made for Hopper, and a Hopper to run it
};

LaunchContext launch_context(int device, const Stream& stream);

}  // namespace quarrel::cuda
