// The two attention ops of the CPU backend: `qkv`, the projections with rotation and the way into the cache, and
// `attend`, the weighted sum over it. Owns the angles of the step's positions and the memory that attention works in.
// Called by the engine's thread within a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/cpu/cpu_linear.h"

namespace quarrel {

class CpuAttention {
 public:
  CpuAttention(HostBackend& host, CpuDevice& device, const CpuWeights& weights, CpuLinear& linear)
      : host_(host), device_(device), kernels_(device.kernels()), weights_(weights), linear_(linear) {}

  void begin_step() noexcept { ++step_; }
  std::size_t workspace_bytes() const noexcept;
  void reserve();

  void qkv(const QkvOp& op);
  void attend(const AttendOp& op);

 private:
  // Consecutive rows of one sequence that attend together.
  struct Tile {
    std::int32_t first = 0;
    std::int32_t rows = 0;
    std::int32_t begin = 0, end = 0;  // positions that any of them sees
  };

  // Cosines and sines of every row's position.
  struct RopeRows {
    std::uint64_t step = 0;
    std::vector<float> cosines, sines;  // [rows][pairs]
  };

  const RopeRows& rope_rows(const Rope& rope);
  void rotate(const QkvOp& op, std::int32_t row, float* heads, std::int32_t count, const RopeRows& angles) const;
  // Returns how many values were clamped.
  std::uint64_t store(const QkvOp& op, std::int32_t row, const float* keys, const float* values);

  // Where each row of the step begins and ends to see, and the tiles of rows; sets begins_, ends_ and tiles_.
  void plan(const AttendOp& op);
  AttendTask task_of(const AttendOp& op, const Tile& tile, std::int32_t head, float* scratch);
  // By partitions of the positions; false if there is no room for their sums.
  bool attend_split(const AttendOp& op, std::int64_t units, std::int32_t partitions);

  HostBackend& host_;
  CpuDevice& device_;
  const CpuKernels& kernels_;
  const CpuWeights& weights_;
  CpuLinear& linear_;

  std::uint64_t step_ = 0;
  std::vector<RopeRows> ropes_;
  std::vector<std::int32_t> begins_, ends_;
  std::vector<Tile> tiles_;
  AlignedBuffer memory_;            // [workers]: scratch, then sums of partitions
  std::size_t scratch_floats_ = 0;  // of a worker's scratch
};

}  // namespace quarrel
