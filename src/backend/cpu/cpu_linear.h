// Everything that multiplies activations with a weight matrix on the CPU: rows are normed and brought into the form
// that their class and the weights ask for, a matrix's weight rows are split among the workers, and the GEMM that fits
// is called. A split is the same every time, so a worker reads the same weights again at the next token. The ops
// `linear`, `glu` and `head` are here; attention, experts and the scan are made of the same pieces.
//
// Called by the engine's thread within a step; gemm_share and convert_row by every worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/bf16_rows.h"
#include "backend/cpu/cpu_weights.h"
#include "backend/cpu/int8_rows.h"
#include "backend/host_backend.h"

namespace quarrel {

// Rows of activations, in each of the forms that some weight asks for.
struct GemmInput {
  const float* values = nullptr;  // F32: [rows][stride]
  std::size_t stride = 0;
  const std::uint32_t* row_index = nullptr;  // which row of `values` each row is; null: one after the other
  std::size_t columns = 0;
  std::size_t rows = 0;
  std::size_t generated = 0;  // how many of them, from the first, are of that class
  bool has_int8 = false;      // `int8` holds all rows, or with bf16 the generated ones
  bool has_bf16 = false;      // `bf16` holds the prompt rows, for the weights that want them
  bool bf16_pairs = false;    // as two numbers, because a weight wants them
  Int8Rows int8 = {};
  Bf16Rows bf16 = {};
  std::size_t first_row = 0;  // where row 0 lies in `int8` and `bf16`
};

// A weight that rows are multiplied with, and where the results go.
struct Projection {
  Weight weight;
  GemmOutput out;
};

// An activation, with the parameters of the one that has any.
struct Gate {
  ActivationKind kind = ActivationKind::silu;
  float clamp = 0.0f;
  float alpha = 0.0f;
};

// The gated projection of a feed-forward. Without a gate `up` takes its place.
struct GatedProjection {
  Weight gate = {}, up = {};
  Weight gate_bias = {}, up_bias = {};
  Gate activation = {};
  GemmOutput out = {};
};

class CpuLinear {
 public:
  CpuLinear(HostBackend& host, CpuDevice& device, const CpuWeights& weights, const BackendOptions& options)
      : host_(host), device_(device), kernels_(device.kernels()), weights_(weights), options_(options) {}

  // ---- Memory ----
  // Notes that there is an activation of this width.
  void widen(std::size_t width) noexcept;
  std::size_t workspace_bytes(std::size_t rows) const noexcept;
  void reserve(std::size_t rows);
  // Two buffers, [rows][the widest output or activation], for what an op computes on the way.
  float* first_buffer() noexcept { return first_.floats(); }
  float* second_buffer() noexcept { return second_.floats(); }
  // A worker's own, at least as large as any GEMM asks for.
  std::byte* scratch(std::size_t worker) const noexcept { return scratch_[worker].data(); }
  void grow_scratch(std::size_t bytes);

  // ---- Ops ----
  void linear(const LinearOp& op);
  void glu(const GluOp& op);
  void head(const HeadOp& op);

  // ---- What other ops are made of ----
  // Rows [first, first + rows) of `in`, normed and in the forms that these weights want.
  GemmInput prepare(const Activation& in, std::int32_t first, std::int32_t rows, const Norm& before, std::int32_t layer,
                    std::span<const Weight> weights);
  // The same for rows that lie elsewhere, [rows][stride], and need no norm.
  GemmInput prepare(const float* values, std::size_t stride, std::size_t rows, std::size_t generated,
                    const Weight& weight);
  // Nothing but the forms: `columns` and the flags.
  GemmInput forms_for(std::span<const Weight> weights) const;
  bool has_bf16() const noexcept;
  // One row of `input`, in the form that its class asks for.
  void convert_row(const float* values, const GemmInput& input, std::size_t row) const;

  // Up to three projections of one input, in one region of the pool.
  void gemm(const GemmInput& input, std::span<const Projection> projections);
  void gated_gemm(const GemmInput& input, const GatedProjection& projection);
  // The input with some weight rows of `matrix`, the weight's own or an expert's, in the arithmetic that the class of
  // the input's rows and the weight's type ask for. `out` begins with the first of those weight rows.
  void gemm_share(const GemmInput& input, const PreparedWeight& weight, const std::byte* matrix, const Share& share,
                  const GemmOutput& out, std::size_t worker) const;

  // values = act(values) * up; `up` null: act(values).
  void activate(const Gate& gate, float* values, const float* up, std::size_t count) const;
  void finish_branch(const BranchEnd& end, const Weight& bias, float* values, std::size_t stride, std::int32_t layer);

 private:
  bool wants_int8(const PreparedWeight& weight) const noexcept;
  // Whether prompt rows are multiplied with this weight in bf16.
  bool wants_bf16(const PreparedWeight& weight) const noexcept;
  // Whether those are two numbers each: where weights have more bits than one, or the hi/lo split was asked for.
  bool wants_bf16_pairs(const PreparedWeight& weight) const noexcept;
  void lay_out(GemmInput& input) const noexcept;
  void gemm_int8(Int8Gemm task, const TypeKernels& kernels) const;
  std::size_t scratch_bytes() const noexcept;
  std::size_t widest_output() const noexcept;
  // task(matrix, share, worker) for all weight rows of the matrices, of which `weight_rows` are the numbers.
  template <typename Task>
  void share_weights(const GemmInput& input, std::span<const std::size_t> weight_rows, const Task& task);

  HostBackend& host_;
  CpuDevice& device_;
  const CpuKernels& kernels_;
  const CpuWeights& weights_;
  const BackendOptions& options_;
  std::size_t widest_activation_ = 0;

  AlignedBuffer int8_memory_;
  AlignedBuffer bf16_memory_;
  AlignedBuffer normed_;  // [rows][widest input]
  AlignedBuffer first_, second_;
  std::vector<AlignedBuffer> scratch_;  // one a worker
};

}  // namespace quarrel
