#include "backend/cuda/upload.h"

#include <algorithm>
#include <cstring>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/repack.h"
#include "base/as_size.h"
#include "base/error.h"

namespace quarrel::cuda {

WeightUploader::WeightUploader(int device, std::size_t piece_bytes)
    : context_(launch_context(device, stream_)), piece_bytes_(piece_bytes) {
  context_.dependent_launch = false;  // a repack must not run ahead of the copy before it
  for (int i = 0; i < kPieces; ++i) {
    pinned_[i] = PinnedBuffer(piece_bytes, "staging of weights");
    device_[i] = DeviceBuffer(piece_bytes, "staging of weights");
    free_[i].record(stream_);
  }
}

int WeightUploader::stage(const std::byte* source, std::size_t bytes) {
  const int piece = next_;
  next_ = (next_ + 1) % kPieces;
  free_[piece].synchronize();
  std::memcpy(pinned_[piece].data(), source, bytes);
  return piece;
}

void WeightUploader::upload(const PackedMatrix& target, const std::byte* rows, std::size_t row_bytes) {
  const std::size_t fitting = piece_bytes_ / row_bytes / kTileRows * kTileRows;
  if (fitting == 0) fail(ErrorKind::internal, "16 rows of {} bytes do not fit a piece of {}", row_bytes, piece_bytes_);
  const std::size_t total = as_size(target.rows);
  for (std::size_t first = 0; first < total; first += fitting) {
    const std::size_t count = std::min(fitting, total - first);
    const int piece = stage(rows + first * row_bytes, count * row_bytes);
    check(cudaMemcpyAsync(device_[piece].data(), pinned_[piece].data(), count * row_bytes, cudaMemcpyHostToDevice,
                          stream_.get()),
          "upload of weights");
    repack(context_, target, device_[piece].data(), static_cast<int>(first), static_cast<int>(count));
    free_[piece].record(stream_);
  }
}

void WeightUploader::upload(std::byte* target, const std::byte* source, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += piece_bytes_) {
    const std::size_t count = std::min(piece_bytes_, bytes - at);
    const int piece = stage(source + at, count);
    check(cudaMemcpyAsync(target + at, pinned_[piece].data(), count, cudaMemcpyHostToDevice, stream_.get()),
          "upload of weights");
    free_[piece].record(stream_);
  }
}

void WeightUploader::finish() { stream_.synchronize(); }

}  // namespace quarrel::cuda
