// The meaning of every op, in plain loops: activations are F32, sums are double, weights are decoded row by row and
// never as a whole. It is what the other backends are tested against, so it prefers being obvious to being fast; it is
// just fast enough to run small real models. Threads split outputs, never sums: results do not depend on their number.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/device_lock.h"
#include "backend/host_backend.h"
#include "base/thread_pool.h"

namespace quarrel {

std::unique_ptr<Device> make_reference_device(const ThreadOptions& threads);

class ReferenceDevice final : public Device {
 public:
  explicit ReferenceDevice(const ThreadOptions& threads) : pool_(threads) {}
  std::string_view name() const noexcept override { return "reference"; }
  std::string description() const override;
  KvType default_kv_type() const noexcept override { return KvType::f32; }
  bool supports(ActivationPrecision activations) const noexcept override {
    return activations == ActivationPrecision::f32;
  }
  std::string_view activations_used(ActivationPrecision) const noexcept override { return "f32"; }
  std::size_t memory_available() const override;
  std::size_t memory_total() const override;
  std::unique_ptr<Backend> make_backend(const BackendOptions& options) override;

  ThreadPool& pool() noexcept { return pool_; }
  DeviceLock& lock() noexcept { return lock_; }

 private:
  ThreadPool pool_;
  DeviceLock lock_;
};

class ReferenceBackend : public HostBackend {
 public:
  ReferenceBackend(ReferenceDevice& device, const BackendOptions& options)
      : HostBackend(device.lock(), options.plan_only), device_(device) {}
  std::string_view name() const noexcept override { return "reference"; }
  Weight prepare_weight(const WeightSource& source) override;
  std::size_t prepared_bytes() const noexcept override { return prepared_bytes_; }

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
  struct PreparedWeight {
    QuantType type;
    std::vector<ExpertPlace> places;  // one an expert
    std::size_t row_stride;
    bool is_vector;
    std::vector<float> values;  // of vectors alone: all of them
  };
  struct SequenceRows;  // the rows of one sequence in this step
  struct SsmStep;       // what the stages of one `ssm` hand on
  struct Routing;       // which experts the rows of one `moe` go to

  bool norm_row(const Norm& norm, const float* in, float* out, std::size_t count) const override {
    return normalise(norm, {in, count}, out);
  }
  WeightSize weight_size(const Weight& weight) const override;
  std::span<const float> vector_values(const Weight& weight) const override { return prepared(weight).values; }

  // ---- Weights ----
  const PreparedWeight& prepared(const Weight& weight) const;
  // A vector's values; null when there is none. `count` is how many the op needs.
  const float* vector_of(const Weight& weight, std::size_t count) const;
  void decode(const Weight& weight, std::int32_t expert, std::int32_t row, std::span<float> values) const;

  // ---- Pieces that several ops are made of ----
  // False, and a row of NaNs, when the sum of squares is not finite. `out` may be `in`; `offset` is into norm's
  // weights.
  bool normalise(const Norm& norm, std::span<const float> in, float* out, std::size_t offset = 0) const;
  // Rows of `in`, the first `width` values of each, normed and rounded to F32; a bad row is flagged with `layer`.
  std::vector<double> input_rows(const Activation& in, const Norm& before, std::int32_t width, std::int32_t layer);
  // out[r][o] = W[o] · in[r] + bias[o]. `in` is [rows][columns], `out` [rows][W.rows].
  void multiply(const Weight& weight, std::int32_t expert, std::span<const double> in, const float* bias,
                std::vector<float>& out);
  // out = act(gate h + gate_bias) * (up h + up_bias), or act(up h + up_bias) where there is no gate.
  struct GluWeights {
    Weight gate, up;
    const float* gate_bias = nullptr;
    const float* up_bias = nullptr;
    ActivationKind activation = ActivationKind::silu;
    float clamp = 0.0f;
    float alpha = 0.0f;
  };
  std::vector<float> glu_rows(const GluWeights& weights, std::int32_t expert, std::span<const double> in);
  // x = after(x + scale * branch(value)) for all rows; `values` is [rows][x.width].
  void finish(const BranchEnd& end, std::vector<float>& values, std::int32_t layer);

  std::vector<SequenceRows> sequence_rows() const;

  // ---- Attention ----
  void rotate(const Rope& rope, std::int32_t position, std::span<float> head) const;
  void finish_heads(const Norm& norm, const Rope& rope, std::int32_t dim, std::int32_t layer,
                    std::vector<float>& values);
  void store_kv(std::byte* place, std::span<const float> values);
  void load_kv(const std::byte* place, std::span<double> values) const;
  void attend_head(const AttendOp& op, const SequenceRows& sequence, std::int32_t kv_head);

  // ---- Mixture of experts ----
  Routing route(const MoeOp& op, std::span<const double> in);
  std::vector<float> expert_outputs(const MoeOp& op, const Routing& routing, std::span<const double> in);

  // ---- Recurrent layers ----
  void convolve(const SsmOp& op, SsmStep& step);
  void project_scan_inputs(const SsmOp& op, SsmStep& step);
  void scan_head(const SsmOp& op, const SequenceRows& sequence, std::int32_t head, SsmStep& step);
  void gate_rows(const SsmOp& op, SsmStep& step);

  ReferenceDevice& device_;
  std::vector<PreparedWeight> weights_;
  std::size_t prepared_bytes_ = 0;
};

// The rows of one sequence in this step, by ascending position.
struct ReferenceBackend::SequenceRows {
  std::int32_t sequence;
  std::vector<std::int32_t> rows;
};

}  // namespace quarrel
