// State-space layers of the CPU backend (Mamba 1 and 2), as a few regions of the pool: the convolution over strips of
// channels, in version 1 the projections to dt, B and C, then scan and gate over heads or strips of channels, and the
// norm over rows. All workspace is that of the projections: a row of the input holds as many values as the convolution
// and dt give. Called by the engine's thread within a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/cpu_linear.h"
#include "backend/ssm_shape.h"

namespace quarrel {

class CpuScan {
 public:
  CpuScan(HostBackend& host, CpuDevice& device, const CpuWeights& weights, CpuLinear& linear)
      : host_(host), device_(device), kernels_(device.kernels()), weights_(weights), linear_(linear) {}

  void begin_step() noexcept { ++step_; }

  void ssm(const SsmOp& op);

 private:
  // The step's rows by sequence and position, and its snapshots: made once a step, for all recurrent layers.
  struct StateRows {
    struct Sequence {
      std::span<const std::int32_t> rows;
      std::span<const StateSnapshot> snapshots;  // ascending; `row` is a place in `rows`
    };
    std::uint64_t step = 0;
    std::vector<std::int32_t> order;
    std::vector<StateSnapshot> snapshots;
    std::vector<Sequence> sequences;
  };

  // What the stages of one `ssm` hand on.
  struct Stage {
    const SsmOp& op;
    const SsmShape& shape;
    const StateRows& state_rows;
    float* mixed = nullptr;    // [rows][channels]: after convolution and SiLU
    float* dt = nullptr;       // [rows][heads]: after softplus in version 2, before bias and softplus in version 1
    const float* b = nullptr;  // of row 0: [ssm_groups][state]
    const float* c = nullptr;
    std::size_t shared_stride = 0;  // of b and c
  };

  const StateRows& state_rows();
  void convolve(const Stage& stage);
  void convolve_strip(const Stage& stage, const StateRows::Sequence& sequence, std::size_t first, float* scratch);
  void project_scan_inputs(Stage& stage);
  void scan(const Stage& stage);
  void scan_unit(const Stage& stage, const StateRows::Sequence& sequence, std::size_t first, float* values);

  HostBackend& host_;
  CpuDevice& device_;
  const CpuKernels& kernels_;
  const CpuWeights& weights_;
  CpuLinear& linear_;
  std::uint64_t step_ = 0;
  StateRows state_rows_;
};

}  // namespace quarrel
