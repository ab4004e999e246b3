#include "backend/cpu/cpu_linear.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/as_size.h"
#include "base/error.h"

namespace quarrel {
namespace {

// A group of a prompt row has a low part if its largest value is so many times the row's root mean square. At 4, one
// group in five is such an outlier, and what int8 alone loses everywhere is halved (docs/numerics.md).
constexpr float kOutlier = 4.0f;

// Up to so many rows memory is the limit of a GEMM, beyond them arithmetic.
constexpr std::size_t kStreamedRows = 8;

}  // namespace

std::size_t gemm_scratch_bytes(std::size_t columns) {
  // A panel has 16 lanes at most. Either a packed one of up to a byte and an eighth a weight, and unpacked ones with
  // two F32 every 16 columns: a cacheful, or a single one that is larger; or two panels of F32 and one weight row.
  const std::size_t groups = int8_groups(std::max<std::size_t>(columns, 1));
  const std::size_t unpacked = groups * (32 * 16 + 4 * 16 * sizeof(float));
  const std::size_t packed = groups * 40 * 16 + 64;
  const std::size_t floats = (2 * 16 + 1) * padded(columns, kVectorFloats) * sizeof(float);
  return std::max(packed + std::max(unpacked, kUnpackedBytes), floats) + 64;
}

// ---- Memory ----

void CpuLinear::widen(std::size_t width) noexcept { widest_activation_ = std::max(widest_activation_, width); }

std::size_t CpuLinear::widest_output() const noexcept { return std::max(weights_.widest_output(), widest_activation_); }

std::size_t CpuLinear::scratch_bytes() const noexcept {
  const std::size_t columns = weights_.widest_input();
  const std::size_t amx = kernels_.amx_scratch_bytes != nullptr ? kernels_.amx_scratch_bytes(columns) : 0;
  return std::max(gemm_scratch_bytes(columns), amx);
}

std::size_t CpuLinear::workspace_bytes(std::size_t rows) const noexcept {
  const std::size_t columns = weights_.widest_input();
  return int8_bytes(rows, columns) + (has_bf16() ? bf16_bytes(rows, columns) : 0) +
         rows * (columns + 2 * widest_output()) * sizeof(float) + device_.workers() * scratch_bytes();
}

void CpuLinear::reserve(std::size_t rows) {
  const std::size_t columns = weights_.widest_input();
  int8_memory_ = AlignedBuffer(int8_bytes(rows, columns), "int8 activations");
  if (has_bf16()) bf16_memory_ = AlignedBuffer(bf16_bytes(rows, columns), "bf16 activations");
  normed_ = AlignedBuffer(rows * columns * sizeof(float), "normed rows");
  first_ = AlignedBuffer(rows * widest_output() * sizeof(float), "projections");
  second_ = AlignedBuffer(rows * widest_output() * sizeof(float), "projections");
  scratch_.clear();
  for (std::size_t worker = 0; worker < device_.workers(); ++worker) {
    scratch_.emplace_back(scratch_bytes(), "a worker's scratch");
  }
}

void CpuLinear::grow_scratch(std::size_t bytes) {
  for (AlignedBuffer& scratch : scratch_) {
    if (scratch.size() < bytes) scratch = AlignedBuffer(bytes, "a worker's scratch");
  }
}

// ---- The forms of activations ----

bool CpuLinear::wants_int8(const PreparedWeight& weight) const noexcept {
  return options_.activations != ActivationPrecision::f32 && weight.kernels->gemm_int8 != nullptr;
}

bool CpuLinear::has_bf16() const noexcept {
  return kernels_.to_bf16_row != nullptr && (options_.activations == ActivationPrecision::outlier_groups ||
                                             options_.activations == ActivationPrecision::int8_split);
}

bool CpuLinear::wants_bf16(const PreparedWeight& weight) const noexcept {
  if (!has_bf16() || weight.kernels->gemm_bf16_amx == nullptr) return false;
  return options_.activations == ActivationPrecision::outlier_groups || weight.type == QuantType::f16 ||
         weight.type == QuantType::bf16;
}

bool CpuLinear::wants_bf16_pairs(const PreparedWeight& weight) const noexcept {
  return weight.type == QuantType::f16 ||
         (weight.type == QuantType::bf16 && options_.activations == ActivationPrecision::int8_split);
}

GemmInput CpuLinear::forms_for(std::span<const Weight> weights) const {
  GemmInput input{.columns = as_size(weights.front().columns)};
  for (const Weight& handle : weights) {
    const PreparedWeight& weight = weights_[handle];
    input.has_int8 |= wants_int8(weight);
    input.has_bf16 |= wants_bf16(weight);
    input.bf16_pairs |= wants_bf16_pairs(weight);
  }
  return input;
}

void CpuLinear::lay_out(GemmInput& input) const noexcept {
  if (input.has_int8) input.int8 = lay_out_int8(int8_memory_.data(), input.columns);
  if (input.has_bf16) input.bf16 = lay_out_bf16(bf16_memory_.data(), input.rows, input.columns);
}

void CpuLinear::convert_row(const float* values, const GemmInput& input, std::size_t row) const {
  const bool generated = row < input.generated;
  if (input.has_bf16 && !generated) {
    kernels_.to_bf16_row(values, input.columns, input.bf16, row, input.bf16_pairs);
    return;
  }
  if (!input.has_int8) return;
  float threshold = 0.0f;
  if (!generated && options_.activations == ActivationPrecision::outlier_groups) threshold = kOutlier;
  if (!generated && options_.activations == ActivationPrecision::int8) {
    threshold = std::numeric_limits<float>::infinity();
  }
  kernels_.quantize_row(values, input.columns, input.int8, row, threshold);
}

GemmInput CpuLinear::prepare(const Activation& in, std::int32_t first, std::int32_t rows, const Norm& before,
                             std::int32_t layer, std::span<const Weight> weights) {
  const HostBackend::Timer timer(host_, "norms and int8");
  const bool normed = before.kind != NormKind::none;
  GemmInput input = forms_for(weights);
  input.values = normed ? normed_.floats() : host_.row(in, first);
  input.stride = normed ? input.columns : as_size(in.width);
  input.rows = as_size(rows);
  input.generated = as_size(std::clamp(host_.generated_count(in.rows) - first, 0, rows));
  lay_out(input);
  if (!normed && !input.has_int8 && !input.has_bf16) return input;
  device_.for_rows(rows, [&](std::int32_t r) {
    const float* values = host_.row(in, first + r);
    if (normed) {
      float* out = normed_.floats() + as_size(r) * input.columns;
      if (!weights_.norm_row(before, values, out, input.columns)) host_.flag_bad_row(in.rows, first + r, layer);
      values = out;
    }
    convert_row(values, input, as_size(r));
  });
  return input;
}

GemmInput CpuLinear::prepare(const float* values, std::size_t stride, std::size_t rows, std::size_t generated,
                             const Weight& weight) {
  GemmInput input = forms_for({&weight, 1});
  input.values = values;
  input.stride = stride;
  input.rows = rows;
  input.generated = generated;
  lay_out(input);
  if (!input.has_int8 && !input.has_bf16) return input;
  device_.for_rows(static_cast<std::int64_t>(rows),
                   [&](std::int32_t r) { convert_row(values + as_size(r) * stride, input, as_size(r)); });
  return input;
}

// ---- GEMM ----

template <typename Task>
void CpuLinear::share_weights(const GemmInput& input, std::span<const std::size_t> weight_rows, const Task& task) {
  share_rows(device_.pool(), weight_rows, input.rows <= kStreamedRows, task);
}

void CpuLinear::gemm(const GemmInput& input, std::span<const Projection> projections) {
  std::array<std::size_t, 3> weight_rows = {};
  for (std::size_t i = 0; i < projections.size(); ++i) weight_rows.at(i) = weights_[projections[i].weight].rows;
  share_weights(input, std::span(weight_rows).first(projections.size()),
                [&](std::size_t i, const Share& share, std::size_t worker) {
                  const auto& [handle, out] = projections[i];
                  const PreparedWeight& weight = weights_[handle];
                  gemm_share(input, weight, weight.data, share, {out.data + share.first, out.stride}, worker);
                });
}

void CpuLinear::gemm_share(const GemmInput& input, const PreparedWeight& weight, const std::byte* matrix,
                           const Share& share, const GemmOutput& out, std::size_t worker) const {
  const WeightRows weights = weight.rows_of(matrix, share);
  std::size_t rows = input.rows;
  if (input.has_bf16 && wants_bf16(weight)) {
    if (rows > input.generated) {
      weight.kernels->gemm_bf16_amx({.weights = weights,
                                     .x = &input.bf16,
                                     .first_row = input.first_row,
                                     .skipped = input.generated,
                                     .rows = rows,
                                     .pairs = wants_bf16_pairs(weight),
                                     .out = out,
                                     .scratch = scratch(worker)});
    }
    rows = std::min(rows, input.generated);
  }
  if (rows == 0) return;
  if (!input.has_int8 || !wants_int8(weight)) {
    weight.kernels->gemm_f32({.weights = weights,
                              .x = input.values,
                              .x_stride = input.stride,
                              .row_index = input.row_index,
                              .rows = rows,
                              .out = out,
                              .scratch = scratch(worker)});
    return;
  }
  const bool split_prompts = options_.activations == ActivationPrecision::int8_split;
  const std::size_t generated = std::min(input.generated, rows);
  Int8Gemm task{.weights = weights,
                .x = &input.int8,
                .first_row = input.first_row,
                .rows = rows,
                .split = split_prompts || generated > 0,
                .out = out,
                .scratch = scratch(worker)};
  // The classes differ in how many groups have a low part, and so in what is quickest. AMX tiles begin where the rows
  // do, so there they stay together.
  const bool apart = weight.kernels->gemm_int8_amx == nullptr && !split_prompts && generated > 0 && generated < rows;
  if (apart) {
    task.rows = generated;
    gemm_int8(task, *weight.kernels);
    task.first_row += generated;
    task.out.data += generated * out.stride;
    task.rows = rows - generated;
    task.split = false;
  }
  gemm_int8(task, *weight.kernels);
}

// Whole tiles of rows on AMX, where there is any; a small rest is for vectors.
void CpuLinear::gemm_int8(Int8Gemm task, const TypeKernels& kernels) const {
  if (kernels.gemm_int8_amx != nullptr) {
    const std::size_t rows = task.rows;
    const std::size_t rest = rows % kInt8TileRows;
    task.rows = rest <= kStreamedRows ? rows - rest : rows;
    if (task.rows > 0) kernels.gemm_int8_amx(task);
    task.first_row += task.rows;
    task.out.data += task.rows * task.out.stride;
    task.rows = rows - task.rows;
  }
  if (task.rows > 0) kernels.gemm_int8(task);
}

void CpuLinear::gated_gemm(const GemmInput& input, const GatedProjection& projection) {
  const bool gated = projection.gate.valid();
  const PreparedWeight& inner = weights_[gated ? projection.gate : projection.up];
  const PreparedWeight& up = weights_[projection.up];
  const float* inner_bias = weights_.vector(gated ? projection.gate_bias : projection.up_bias);
  const float* up_bias = gated ? weights_.vector(projection.up_bias) : nullptr;
  const GemmOutput factors{second_.floats(), widest_output()};
  share_weights(input, {&inner.rows, 1}, [&](std::size_t, const Share& share, std::size_t worker) {
    const auto [first, last] = share;
    const auto from_first = [first = first](const GemmOutput& out) { return GemmOutput{out.data + first, out.stride}; };
    if (gated) gemm_share(input, up, up.data, share, from_first(factors), worker);
    gemm_share(input, inner, inner.data, share, from_first(projection.out), worker);
    for (std::size_t r = 0; r < input.rows; ++r) {
      float* out = projection.out.data + r * projection.out.stride + first;
      float* factor = gated ? factors.data + r * factors.stride + first : nullptr;
      if (inner_bias != nullptr) kernels_.add(out, inner_bias + first, last - first);
      if (up_bias != nullptr) kernels_.add(factor, up_bias + first, last - first);
      activate(projection.activation, out, factor, last - first);
    }
  });
}

void CpuLinear::activate(const Gate& gate, float* values, const float* up, std::size_t count) const {
  const bool gated = up != nullptr;
  const auto run = [&](auto alone, auto combined) {
    if (gated) {
      combined(values, up, count);
    } else {
      alone(values, count);
    }
  };
  switch (gate.kind) {
    case ActivationKind::none:
      if (gated) kernels_.multiply(values, up, count);
      return;
    case ActivationKind::silu: return run(kernels_.silu, kernels_.swiglu);
    case ActivationKind::gelu_tanh: return run(kernels_.gelu_tanh, kernels_.geglu_tanh);
    case ActivationKind::gelu_erf: return run(kernels_.gelu_erf, kernels_.geglu_erf);
    case ActivationKind::relu_squared: return run(kernels_.relu_squared, kernels_.reglu_squared);
    case ActivationKind::swiglu_clamped:
      if (!gated) fail(ErrorKind::internal, "a clamped SwiGLU needs both of its factors");
      kernels_.swiglu_clamped(values, up, gate.clamp, gate.alpha, count);
      return;
  }
}

void CpuLinear::finish_branch(const BranchEnd& end, const Weight& bias, float* values, std::size_t stride,
                              std::int32_t layer) {
  const std::size_t width = as_size(end.x.width);
  device_.for_rows(host_.row_count(end.x.rows), [&](std::int32_t r) {
    float* value = values + as_size(r) * stride;
    float* x = host_.row(end.x, r);
    if (bias.valid()) kernels_.add(value, weights_.vector(bias), width);
    if (!weights_.norm_row(end.branch, value, value, width)) host_.flag_bad_row(end.x.rows, r, layer);
    kernels_.add_scaled(x, value, end.scale, width);
    if (!weights_.norm_row(end.after, x, x, width)) host_.flag_bad_row(end.x.rows, r, layer);
  });
}

// ---- Ops ----

void CpuLinear::linear(const LinearOp& op) {
  const GemmInput input = prepare(op.in, 0, host_.row_count(op.in.rows), op.before, op.layer, {&op.weight, 1});
  HostBackend::Timer timer(host_, profile_name(op));
  timer.gemm(input.rows, {op.weight});
  if (op.end.x.valid()) {
    const GemmOutput out{first_.floats(), as_size(op.weight.rows)};
    const Projection projection{op.weight, out};
    gemm(input, {&projection, 1});
    finish_branch(op.end, op.bias, out.data, out.stride, op.layer);
    return;
  }
  const Projection projection{op.weight, {host_.data(op.out) + op.out_at, as_size(op.out.width)}};
  gemm(input, {&projection, 1});
  if (op.bias.valid()) {
    device_.for_rows(host_.row_count(op.out.rows), [&](std::int32_t r) {
      kernels_.add(host_.row(op.out, r) + op.out_at, weights_.vector(op.bias), as_size(op.weight.rows));
    });
  }
}

void CpuLinear::glu(const GluOp& op) {
  if (op.activation == ActivationKind::swiglu_clamped) {
    fail(ErrorKind::unsupported, "the cpu backend has no dense feed-forward with a clamped SwiGLU");
  }
  const std::array weights = {op.up, op.gate.valid() ? op.gate : op.up};
  const GemmInput input = prepare(op.x, 0, host_.row_count(op.x.rows), op.before, op.layer, weights);
  HostBackend::Timer timer(host_, "glu");
  timer.gemm(input.rows, {op.gate, op.up});
  gated_gemm(input, {.gate = op.gate,
                     .up = op.up,
                     .gate_bias = op.gate_bias,
                     .up_bias = op.up_bias,
                     .activation = {.kind = op.activation},
                     .out = {host_.data(op.out), as_size(op.out.width)}});
}

void CpuLinear::head(const HeadOp& op) {
  const std::int32_t first = op.slice * HostBackend::kLogitRows;
  const std::int32_t count = std::min(HostBackend::kLogitRows, host_.row_count(op.in.rows) - first);
  const std::size_t width = as_size(op.in.width);
  host_.begin_vectors(op.in.width);
  for (std::int32_t r = 0; r < count; ++r) {
    const HostOutput& output = host_.outputs()[as_size(first + r)];
    if (output.wanted == nullptr || output.wanted->kind != OutputKind::vector) continue;
    float* vector = host_.output_vector(output);
    if (op.norm.kind == NormKind::none) {
      std::copy_n(host_.row(op.in, first + r), width, vector);
    } else if (!weights_.norm_row(op.norm, host_.row(op.in, first + r), vector, width)) {
      host_.flag_bad_row(op.in.rows, first + r, op.layer);
    }
  }
  if (!op.weight.valid() || !host_.wants_logits(op.slice)) return;
  const GemmInput input = prepare(op.in, first, count, op.norm, op.layer, {&op.weight, 1});
  HostBackend::Timer timer(host_, "head");
  timer.gemm(input.rows, {op.weight});
  const PreparedWeight& weight = weights_[op.weight];
  const float* bias = weights_.vector(op.bias);
  share_weights(input, {&weight.rows, 1}, [&](std::size_t, const Share& share, std::size_t worker) {
    const auto [begin, end] = share;
    gemm_share(input, weight, weight.data, share, {host_.logits_row(0) + begin, weight.rows}, worker);
    for (std::int32_t r = 0; r < count; ++r) {
      float* logits = host_.logits_row(r) + begin;
      if (bias != nullptr) kernels_.add(logits, bias + begin, end - begin);
      kernels_.soft_cap(logits, op.scale, op.soft_cap, end - begin);
    }
  });
}

}  // namespace quarrel
