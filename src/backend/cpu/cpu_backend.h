// The CPU backend: one model on a CpuDevice. It binds the weights and hands each op to the class that owns it:
// CpuLinear (GEMM and what is made of it), CpuAttention, CpuExperts and CpuScan. An op is one or two regions of the
// device's thread pool.
#pragma once

#include <optional>

#include "backend/cpu/cpu_attention.h"
#include "backend/cpu/cpu_device.h"
#include "backend/cpu/cpu_experts.h"
#include "backend/cpu/cpu_linear.h"
#include "backend/cpu/cpu_scan.h"
#include "backend/cpu/cpu_weights.h"
#include "backend/host_backend.h"

namespace quarrel {

class CpuBackend : public HostBackend {
 public:
  CpuBackend(CpuDevice& device, const BackendOptions& options);

  std::string_view name() const noexcept override { return "cpu"; }
  Weight prepare_weight(const WeightSource& source) override;
  Activation make_activation(std::int32_t width, RowSet rows) override;
  void reserve(const StepLimits& limits, std::int32_t vocabulary) override;
  std::size_t prepared_bytes() const noexcept override { return weights_.prepared_bytes(); }
  std::size_t released_bytes() const noexcept override { return weights_.released_bytes(); }
  std::size_t expert_cache_bytes() const noexcept override { return experts_.cache_bytes(); }
  std::size_t workspace_bytes(const StepLimits& limits, std::int32_t vocabulary) const noexcept override;
  std::size_t expert_workspace_bytes(const StepLimits& limits) const noexcept override;
  BackendCounters counters() const noexcept override;

  void embed(const EmbedOp& op) override;
  void norm(const NormOp& op) override;
  void qkv(const QkvOp& op) override;
  void attend(const AttendOp& op) override;
  void linear(const LinearOp& op) override;
  void glu(const GluOp& op) override;
  void moe(const MoeOp& op) override;
  void ssm(const SsmOp& op) override;
  void head(const HeadOp& op) override;

 private:
  void begin_step() override;
  void enter_device() override;
  void leave_device() override;
  WeightSize weight_size(const Weight& weight) const override;
  bool norm_row(const Norm& norm, const float* in, float* out, std::size_t count) const override {
    return weights_.norm_row(norm, in, out, count);
  }
  std::span<const float> vector_values(const Weight& weight) const override { return weights_[weight].decoded; }
  const SamplingKernels& sampling_kernels() const noexcept override { return device_.kernels().sampling; }
  void run_for_each(std::size_t count, const std::function<void(std::size_t)>& task) override {
    device_.for_rows(static_cast<std::int64_t>(count), [&](std::int32_t i) { task(static_cast<std::size_t>(i)); });
  }

  CpuDevice& device_;
  const BackendOptions options_;
  CpuWeights weights_;
  CpuLinear linear_;
  CpuAttention attention_;
  CpuExperts experts_;
  CpuScan scan_;
  std::optional<ThreadPool::Caller> caller_;  // while a step has the device
};

}  // namespace quarrel
