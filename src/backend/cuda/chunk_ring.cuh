// A warp's ring of packed weights in shared memory, filled by Hopper's copy engine some chunks ahead.
#pragma once

#include "backend/cuda/primitives.cuh"
#include "backend/cuda/weight_format.h"
#include "backend/cuda/wgmma.cuh"

namespace quarrel::cuda {

// The packed weights of a warp: one tile, chunk after chunk. Those that are read once shall not push anything else out
// of the L2 cache.
template <WeightFormat F, bool kReadOnce = false>
class ChunkRing {
 public:
  // A barrier for each chunk of the ring.
  __device__ ChunkRing(const std::byte* source, int chunks, int ring, std::byte* shared, std::uint32_t barriers)
      : source_(source), left_(source == nullptr ? 0 : chunks), ring_(ring), shared_(shared), barriers_(barriers) {}

  // All lanes are done with the chunk that lay where this one goes.
  __device__ void fetch_next() {
    if (left_-- <= 0) return;
    if (is_elected()) {
      announce_bytes(barriers_ + filled_ * 8, chunk_bytes(F));
      const std::uint32_t to = shared_address(shared_ + filled_ * chunk_bytes(F));
      if constexpr (kReadOnce) {
        copy_bulk(to, source_, chunk_bytes(F), barriers_ + filled_ * 8, policy_);
      } else {
        copy_bulk(to, source_, chunk_bytes(F), barriers_ + filled_ * 8);
      }
    }
    source_ += chunk_bytes(F);
    filled_ = filled_ + 1 == ring_ ? 0 : filled_ + 1;
  }
  // Fills the ring, of which one chunk was asked for: each chunk when the one before is there, so that what others ask
  // for has not to wait behind it, but all that are left at once when `hurries()`.
  template <typename Condition>
  __device__ void fill(const Condition& hurries) {
#pragma unroll 1
    for (int i = 1; i < ring_ && left_ > 0; ++i) {
      if (!hurries()) wait_for_barrier(barriers_ + (i - 1) * 8, 0);
      fetch_next();
    }
  }
  __device__ const std::byte* take_next() {
    wait_for_barrier(barriers_ + taken_ * 8, phase_);
    const std::byte* chunk = shared_ + taken_ * chunk_bytes(F);
    if (++taken_ == ring_) {
      taken_ = 0;
      phase_ ^= 1;
    }
    return chunk;
  }

 private:
  const std::byte* source_;
  int left_;
  int ring_;
  std::byte* shared_;
  std::uint32_t barriers_;
  std::uint64_t policy_ = kReadOnce ? evict_first_policy() : 0;
  int filled_ = 0;
  int taken_ = 0;
  int phase_ = 0;
};

}  // namespace quarrel::cuda
