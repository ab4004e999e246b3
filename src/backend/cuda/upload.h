// Weights from the mapped file to the device: the processor copies a piece into pinned memory while the one before
// travels and is repacked, one after the other on one stream, so that a load takes as long as the slower of the two.
#pragma once

#include <cstddef>

#include "backend/cuda/device_memory.h"
#include "backend/cuda/weight_format.h"

namespace quarrel::cuda {

class WeightUploader {
 public:
  // Made for one load: two pieces of pinned and two of device memory.
  explicit WeightUploader(int device, std::size_t piece_bytes = kPieceBytes);

  // Rows as they lie in the file, `row_bytes` each, into the packed order. Returns when all bytes have been read; the
  // matrix is ready after finish().
  void upload(const PackedMatrix& target, const std::byte* rows, std::size_t row_bytes);
  // Bytes as they are.
  void upload(std::byte* target, const std::byte* source, std::size_t bytes);
  void finish();

 private:
  static constexpr std::size_t kPieceBytes = std::size_t{32} << 20;
  static constexpr int kPieces = 2;

  // Copies to the next pinned piece once it is free; the piece's number.
  int stage(const std::byte* source, std::size_t bytes);

  Stream stream_;
  LaunchContext context_;
  std::size_t piece_bytes_;
  PinnedBuffer pinned_[kPieces];
  DeviceBuffer device_[kPieces];
  Event free_[kPieces];
  int next_ = 0;
};

}  // namespace quarrel::cuda
