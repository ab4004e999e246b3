// What is computed row by row where no GEMV has it fused: norms, ends of sublayers, gates, the way in and out of a
// step. All launches; one thread block a row, so a row's bits do not depend on its neighbours.
#pragma once

#include <cstdint>

#include "backend/cuda/device_memory.h"
#include "backend/cuda/gate_function.h"
#include "backend/ops.h"

namespace quarrel::cuda {

// A norm with its vectors in device memory. `first_bad` has an entry a row: see SplitInput::first_bad_layer.
struct DeviceNorm {
  NormKind kind = NormKind::none;
  float epsilon = 0.0f;
  const float* weight = nullptr;
  const float* bias = nullptr;
  std::int32_t* first_bad = nullptr;
  int layer = 0;
};

// Rows of F32 numbers, `stride` apart.
struct RowSpan {
  float* data = nullptr;
  int stride = 0;
  int width = 0;
  int count = 0;

  RowSpan from(int first, int rows) const {
    return {
        .data = data + static_cast<std::ptrdiff_t>(first) * stride, .stride = stride, .width = width, .count = rows};
  }
};

// out = norm(in), in F32 or (for the 16-bit tensor cores; too large becomes the largest half) in F16. `out` may be
// `in`.
void norm_rows(const LaunchContext& context, const RowSpan& in, const DeviceNorm& norm, float* out, int out_stride);
void norm_rows(const LaunchContext& context, const RowSpan& in, const DeviceNorm& norm, std::uint16_t* out,
               int out_stride);

// x = after(x + scale * branch(value + bias)); `value` is used up.
struct FinishBranchOp {
  RowSpan x = {};
  RowSpan value = {};
  const float* bias = nullptr;
  DeviceNorm branch = {};
  float scale = 1.0f;
  DeviceNorm after = {};
};
void finish_branch(const LaunchContext& context, const FinishBranchOp& op);

// out = activation(gate + gate_bias) * (up + up_bias), or activation(up + up_bias) without a gate.
struct GluRowsOp {
  const float* gate = nullptr;
  const float* gate_bias = nullptr;
  RowSpan up = {};  // the gate's rows have the same stride
  const float* up_bias = nullptr;
  GateFunction function = {};
};
// `halves`, unless it is null, gets the same in F16, rows one after the other.
void glu_rows(const LaunchContext& context, const GluRowsOp& op, float* out, int out_stride, std::uint16_t* halves);

// The same with gate and up in F16, as a GEMM leaves them; the width is a multiple of eight.
struct GluHalvesOp {
  const std::uint16_t* gate = nullptr;
  const float* gate_bias = nullptr;
  const std::uint16_t* up = nullptr;
  const float* up_bias = nullptr;
  int stride = 0;  // from a row to the next, of both
  int width = 0;
  int count = 0;
  GateFunction function = {};
  float* out = nullptr;
  int out_stride = 0;
  std::uint16_t* halves = nullptr;
};
void glu_halves(const LaunchContext& context, const GluHalvesOp& op);

// rows += bias
void add_bias(const LaunchContext& context, const RowSpan& rows, const float* bias);

// rows += other rows, `stride` apart; 0: the same for all.
void add_rows(const LaunchContext& context, const RowSpan& rows, const float* others, int stride);

// rows = norm of (rows * silu(gate)), each of `groups` parts of a row for itself; zeros where the row is padding.
struct GateGroupsOp {
  RowSpan rows = {};
  const float* gate = nullptr;  // null: the rows are gated already
  int gate_stride = 0;
  int groups = 1;
  DeviceNorm norm = {};  // its weights are those of the whole row
  const std::int32_t* sequences = nullptr;
};
void gate_groups(const LaunchContext& context, const GateGroupsOp& op);

// logits = cap(scale * logits)
void finish_logits(const LaunchContext& context, const RowSpan& logits, float scale, float soft_cap);

// out[o] = in[rows[o]], zeros where that is below zero.
void gather_rows(const LaunchContext& context, const RowSpan& in, const std::int32_t* rows, const RowSpan& out);

// ids[r] = tokens[r], or what output ~tokens[r] of the step before sampled; 0 where that sampled none.
void resolve_tokens(const LaunchContext& context, const std::int32_t* tokens, const std::int32_t* sampled, int count,
                    std::int32_t* ids);

// Rows of a table of F16 or F32 numbers, looked up by id and scaled.
void look_up_rows(const LaunchContext& context, const void* table, bool is_f16, int table_rows, const std::int32_t* ids,
                  float scale, const RowSpan& out);

}  // namespace quarrel::cuda
