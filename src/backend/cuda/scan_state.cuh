// What the kernels of a scan share: which channels a thread block has, and how its threads hold their state. A
// channel's state lies in the registers of eight lanes.
#pragma once

#include <cstdint>

#include "backend/cuda/ssm.h"

namespace quarrel::cuda {

inline constexpr int kScanChannels = 32;  // of a thread block, all of one group
inline constexpr int kScanLanes = 8;      // of a channel: each has every eighth four of its state

__device__ inline float softplus(float value) { return value > 20.0f ? value : log1pf(expf(value)); }

struct ScanPlace {
  int group;
  int first_channel;
  int channels;  // that exist

  __device__ explicit ScanPlace(const ScanOp& op) {
    const int of_group = op.inner / op.groups;
    const int blocks = (of_group + kScanChannels - 1) / kScanChannels;
    group = blockIdx.x / blocks;
    const int first = blockIdx.x % blocks * kScanChannels;
    first_channel = group * of_group + first;
    channels = min(kScanChannels, of_group - first);
  }
};

// A thread's part of a channel's state: numbers 32 j + 4 lane … + 3.
template <int kShare>
struct StatePart {
  float h[kShare];

  __device__ static int index(int lane, int k) { return k / 4 * 4 * kScanLanes + lane * 4 + k % 4; }
  __device__ void load(const float* state, int size, int lane) {
#pragma unroll
    for (int k = 0; k < kShare; ++k) {
      h[k] = state != nullptr && index(lane, k) < size ? state[index(lane, k)] : 0.0f;
    }
  }
  __device__ void store(float* state, int size, int lane) const {
#pragma unroll
    for (int k = 0; k < kShare; ++k) {
      if (index(lane, k) < size) state[index(lane, k)] = h[k];
    }
  }
};

// Which channel a thread has a part of.
struct ScanThread {
  int lane = 0;
  int own = 0;  // of the block's channels
  int channel = 0;
  bool exists = false;
  float d = 0.0f;

  ScanThread() = default;
  __device__ ScanThread(const ScanOp& op, const ScanPlace& place, int number)
      : lane(threadIdx.x % kScanLanes), own(number), exists(number < place.channels) {
    channel = place.first_channel + min(own, place.channels - 1);
    d = op.d == nullptr ? 0.0f : op.d[channel / (op.inner / op.heads)];
  }
  __device__ float* state_at(const ScanOp& op, int slot) const {
    return op.state.scan + slot * op.state.slot_stride + static_cast<std::int64_t>(channel) * op.state_size;
  }
  // Of the run's segments: 0 is what the run begins with, number i what segment i - 1 ends with.
  __device__ float* segment_state(const ScanOp& op, int number) const {
    const std::int64_t place = (static_cast<std::int64_t>(blockIdx.y) * op.segments + number) * op.inner + channel;
    return op.segment_states + place * op.state_size;
  }
  // The sum of dt over a segment.
  __device__ float* segment_dt(const ScanOp& op, int number) const {
    const std::int64_t states = static_cast<std::int64_t>(op.runs.count) * op.segments * op.inner * op.state_size;
    return op.segment_states + states + (static_cast<std::int64_t>(blockIdx.y) * op.segments + number) * op.inner +
           channel;
  }
};

}  // namespace quarrel::cuda
