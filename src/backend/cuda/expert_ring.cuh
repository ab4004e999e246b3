// What the kernels for few rows of experts share: warps that take the items of a block in turn, a few chunks of a tile
// of 16 weight rows each, through rings in shared memory that each warp fills itself, across the ends of items.
#pragma once

#include <cstdint>

#include "backend/cuda/gemv_chunk.cuh"
#include "backend/cuda/primitives.cuh"

namespace quarrel::cuda {

// One item: its first chunk of weights, how many it has, and the activations of the first one.
struct ItemWork {
  const std::byte* weights;
  const std::byte* activations;
  int chunks;
};

// How a block's rings lie, and which one is this warp's.
struct RingPlace {
  std::byte* ring;
  int stages;
  int warp;
  int warps;
  int lane;
};

// Fills a warp's ring, chunk after chunk of its items: `warp`, `warp` + `warps` … `Job` says what they are:
//   int items;
//   bool item(int number, ItemWork& work) const;   // false: the item has nothing to do
template <WeightFormat F, typename Job>
class ItemRingFiller {
 public:
  __device__ ItemRingFiller(const Job& job, const RingPlace& place)
      : job_(job),
        place_(place),
        ring_(shared_address(place.ring) + place.lane * 16),
        number_(place.warp - place.warps) {
    next_item();
  }

  // An empty group when there is nothing left, so that groups can be counted.
  __device__ void fill_next() {
    if (source_ != nullptr) {
      const std::uint32_t to = ring_ + stage_ * chunk_bytes(F);
#pragma unroll
      for (int at = 0; at < chunk_bytes(F); at += 512) {
        if (at + 512 <= chunk_bytes(F) || place_.lane * 16 < chunk_bytes(F) - at) {
          copy_async(to + at, source_ + at, policy_);
        }
      }
      stage_ = stage_ + 1 == place_.stages ? 0 : stage_ + 1;
      source_ += chunk_bytes(F);
      if (--left_ == 0) next_item();
    }
    commit_copies();
  }

 private:
  __device__ void next_item() {
    source_ = nullptr;
    for (number_ += place_.warps; number_ < job_.items; number_ += place_.warps) {
      ItemWork work;
      if (!job_.item(number_, work)) continue;
      source_ = work.weights + place_.lane * 16;
      left_ = work.chunks;
      return;
    }
  }

  const Job& job_;
  const RingPlace& place_;
  std::uint32_t ring_;
  std::uint64_t policy_ = evict_first_policy();
  const std::byte* source_ = nullptr;
  int number_;
  int left_ = 0;  // chunks of the item
  int stage_ = 0;
};

// Goes through the block's items, `batch_items` at a time: store(item of the batch, row of its tile, sum) keeps what
// they give, and after each batch, when all warps have theirs, all threads call finish(first item, end). The rings have
// been filled once.
template <WeightFormat F, typename Job, typename Store, typename Finish>
__device__ inline void consume_items(const Job& job, const RingPlace& place, ItemRingFiller<F, Job>& filler,
                                     int batch_items, const Store& store, const Finish& finish) {
  const ColumnPlan<1> plan(place.lane);
  int stage = 0;
  int number = place.warp;
#pragma unroll 1
  for (int batch = 0; batch < job.items; batch += batch_items) {
    const int end = min(batch + batch_items, job.items);
#pragma unroll 1
    for (; number < end; number += place.warps) {
      ItemWork work;
      if (!job.item(number, work)) continue;
      Sums<1> parts;
#pragma unroll 1
      for (int chunk = 0; chunk < work.chunks; ++chunk) {
        wait_for_copies(place.stages - 1);
        __syncwarp();
        consume_chunk<F, 1>(place.ring + stage * chunk_bytes(F), work.activations + chunk * split_chunk_bytes(1), plan,
                            place.lane, parts);
        stage = stage + 1 == place.stages ? 0 : stage + 1;
        __syncwarp();
        filler.fill_next();
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float sum = parts.whole(0, h);
        if (place.lane % 4 == 0) store(number - batch, place.lane / 4 + 8 * h, sum);
      }
    }
    __syncthreads();
    finish(batch, end);
    if (end < job.items) __syncthreads();
  }
}

// The value of a tile's row: its items' sums in ascending order.
__device__ inline float sum_of_parts(const float* sums, int parts) {
  float sum = 0.0f;
  for (int part = 0; part < parts; ++part) sum += sums[part * kTileRows];
  return sum;
}

}  // namespace quarrel::cuda
