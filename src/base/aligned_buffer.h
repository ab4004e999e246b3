// Anonymous memory, 64-byte aligned and zero, whose pages cost nothing until they are touched. The one place through
// which large buffers are taken, so that a test can make it fail.
#pragma once

#include <cstddef>
#include <utility>

namespace quarrel {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // Throws Error(out_of_memory) naming what it was for.
  AlignedBuffer(std::size_t bytes, const char* purpose);
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;
  ~AlignedBuffer();

  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  float* floats() const noexcept { return reinterpret_cast<float*>(data_); }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace quarrel
