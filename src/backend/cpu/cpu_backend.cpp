#include "backend/cpu/cpu_backend.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "backend/cpu/digits.h"
#include "backend/host_memory.h"
#include "base/as_size.h"
#include "base/error.h"
#include "quant/decode.h"

namespace quarrel {
std::size_t matmul_scratch_bytes(std::size_t columns) {
  // A panel of 32 rows at most and two at least, each of bytes with a scale and an offset every 16; or two rows of F32.
  const std::size_t stride = padded(std::max<std::size_t>(columns, 1), kRowPadding);
  const std::size_t row = stride + 2 * padded(stride / 16, kGroupPadding) * sizeof(float);
  const std::size_t panel = std::min<std::size_t>(32, std::max<std::size_t>(2, 192 * 1024 / row)) * row;
  return std::max(panel, 2 * padded(columns, kGroupPadding) * sizeof(float)) + 64;
}

std::size_t attend_scratch_bytes(std::size_t group, std::size_t dims) {
  // A block of keys and values in F32, and two numbers a head.
  return (static_cast<std::size_t>(kAttendBlock) * dims + 2 * group) * sizeof(float);
}

CpuDevice::CpuDevice(int threads, IsaLevel level)
    : level_(level), kernels_(kernels_of(level)), pool_(threads > 0 ? threads : usable_threads()) {}

std::string CpuDevice::description() const {
  return fmt::format("cpu ({}, {} thread{})", level_name(level_), pool_.size(), pool_.size() == 1 ? "" : "s");
}

std::size_t CpuDevice::memory_available() const { return host_memory_available(); }

std::unique_ptr<Backend> CpuDevice::make_backend(const BackendOptions& options) {
  return std::make_unique<CpuBackend>(*this, options);
}

CpuBackend::CpuBackend(CpuDevice& device, const BackendOptions& options)
    : HostBackend(options.plan_only), device_(device), kernels_(device.kernels()), options_(options) {}

Weight CpuBackend::prepare_weight(const WeightSource& source) {
  check_weight(source);
  const auto columns = static_cast<std::size_t>(source.columns);
  std::vector<ExpertPlace> places = expert_places(source);
  Prepared weight{.data = places.front().data,
                  .type = source.type,
                  .rows = static_cast<std::size_t>(source.rows),
                  .columns = columns,
                  .row_bytes = row_bytes(type_info(source.type), columns),
                  .row_stride = row_stride(source),
                  .decoded = {},
                  .places = {}};
  if (source.role == WeightRole::vector) {
    prepared_bytes_ += vector_bytes(source);
    if (!plan_only()) weight.decoded = decode_vector(source);
  } else {
    widest_input_ = std::max(widest_input_, columns);
    // Logits have a buffer of their own.
    const bool logits = source.role == WeightRole::embedding || source.role == WeightRole::head;
    if (!logits) widest_output_ = std::max(widest_output_, weight.rows);
  }
  if (source.role == WeightRole::expert_column || source.role == WeightRole::expert_row) {
    weight.places = std::move(places);
    add_experts(source, static_cast<std::int32_t>(weights_.size()), weight);
  }
  weights_.push_back(std::move(weight));
  return {.id = static_cast<std::int32_t>(weights_.size()) - 1,
          .rows = static_cast<std::int32_t>(source.rows),
          .columns = static_cast<std::int32_t>(source.columns),
          .experts = static_cast<std::int32_t>(source.experts)};
}

Activation CpuBackend::make_activation(std::int32_t width, RowSet rows) {
  if (rows == RowSet::all) widest_output_ = std::max(widest_output_, as_size(width));
  return HostBackend::make_activation(width, rows);
}

std::size_t CpuBackend::worker_scratch_bytes() const noexcept {
  // A head's keys and values are parts of projections, and there are no more heads than values in a row.
  const std::size_t attend = attend_scratch_bytes(widest_input_, widest_input_ + widest_output_);
  return std::max(matmul_scratch_bytes(widest_input_), attend);
}

std::size_t CpuBackend::workspace_bytes(const StepLimits& limits, std::int32_t vocabulary) const noexcept {
  const auto rows = static_cast<std::size_t>(std::max(limits.rows, limits.outputs));
  return HostBackend::workspace_bytes(limits, vocabulary) + DigitLayout(widest_input_).bytes(rows) +
         rows * (widest_input_ + 2 * widest_output_) * sizeof(float) +
         as_size(device_.pool().size()) * worker_scratch_bytes() + expert_workspace_bytes(limits);
}

std::size_t CpuBackend::expert_workspace_bytes(const StepLimits& limits) const noexcept {
  const auto rows = static_cast<std::size_t>(std::max(limits.rows, limits.outputs));
  return MoeSpace(moe_).lay_out(nullptr, rows, as_size(device_.pool().size()));
}

void CpuBackend::reserve(const StepLimits& limits, std::int32_t vocabulary) {
  HostBackend::reserve(limits, vocabulary);
  const auto rows = static_cast<std::size_t>(std::max(limits.rows, limits.outputs));
  digit_memory_ = AlignedBuffer(DigitLayout(widest_input_).bytes(rows), "activation digits");
  digits_ = lay_out_digits(digit_memory_.data(), rows, widest_input_);
  normed_ = AlignedBuffer(rows * widest_input_ * sizeof(float), "normed rows");
  first_ = AlignedBuffer(rows * widest_output_ * sizeof(float), "projections");
  second_ = AlignedBuffer(rows * widest_output_ * sizeof(float), "projections");
  scratch_.clear();
  for (int worker = 0; worker < device_.pool().size(); ++worker) {
    scratch_.emplace_back(worker_scratch_bytes(), "a worker's scratch");
  }
  const std::size_t workers = as_size(device_.pool().size());
  step_rows_ = rows;
  moe_memory_ = AlignedBuffer(moe_.lay_out(nullptr, rows, workers), "experts");
  moe_.lay_out(moe_memory_.data(), rows, workers);
  expert_cache_.reset();
  if (caches_experts()) expert_cache_ = std::make_unique<ExpertCache>(expert_sets_, expert_cache_bytes());
}

void CpuBackend::begin_step() {
  device_.turns().take();
  ++step_;
}

void CpuBackend::end_step() { device_.turns().give_back(); }

bool CpuBackend::wants_digits(const Weight& weight) const {
  return options_.activations != ActivationDigits::f32 && kernels_.has_integer_kernel(prepared(weight).type);
}

HostBackend::WeightSize CpuBackend::weight_size(const Weight& weight) const {
  const Prepared& found = prepared(weight);
  return {.bytes = found.rows * found.row_bytes, .quantised = type_info(found.type).block_weights > 1};
}

bool CpuBackend::norm_row(const Norm& norm, const float* in, float* out, std::size_t count) const {
  const float* weight = vector(norm.weight);
  const float squares = norm.kind == NormKind::rms
                            ? kernels_.rms_norm(in, weight, out, count, norm.epsilon)
                            : kernels_.layer_norm(in, weight, vector(norm.bias), out, count, norm.epsilon);
  return std::isfinite(squares);
}

CpuBackend::Input CpuBackend::prepare_input(const Activation& in, std::int32_t first, std::int32_t rows,
                                            const Norm& before, std::int32_t layer, std::span<const Weight> weights) {
  const Timer timer(*this, "norms and digits");
  const std::size_t columns = as_size(weights.front().columns);
  Input input{.plain = row(in, first),
              .stride = as_size(in.width),
              .columns = columns,
              .rows = as_size(rows),
              .two_digits = options_.activations == ActivationDigits::one_for_prompt
                                ? as_size(std::clamp(generated_count(in.rows) - first, 0, rows))
                                : as_size(rows),
              .digits = std::ranges::any_of(weights, [&](const Weight& weight) { return wants_digits(weight); })};
  if (before.kind != NormKind::none) {
    input.plain = normed_.floats();
    input.stride = columns;
  }
  if (input.digits) digits_ = lay_out_digits(digit_memory_.data(), input.rows, columns);
  if (before.kind == NormKind::none && !input.digits) return input;
  for_rows(rows, [&](std::int32_t r) {
    const float* values = row(in, first + r);
    if (before.kind != NormKind::none) {
      float* normed = normed_.floats() + as_size(r) * columns;
      if (!norm_row(before, values, normed, columns)) flag_bad_row(in.rows, first + r, layer);
      values = normed;
    }
    if (input.digits) kernels_.quantize_row(values, columns, digits_, as_size(r), as_size(r) < input.two_digits);
  });
  return input;
}

CpuBackend::Input CpuBackend::prepare_values(const float* values, std::size_t stride, const Weight& weight) {
  const std::size_t rows = as_size(shape().rows());
  const Input input{.plain = values,
                    .stride = stride,
                    .columns = as_size(weight.columns),
                    .rows = rows,
                    .two_digits = options_.activations == ActivationDigits::one_for_prompt
                                      ? as_size(generated_count(RowSet::all))
                                      : rows,
                    .digits = wants_digits(weight)};
  if (!input.digits) return input;
  digits_ = lay_out_digits(digit_memory_.data(), rows, input.columns);
  for_rows(shape().rows(), [&](std::int32_t r) {
    kernels_.quantize_row(values + as_size(r) * stride, input.columns, digits_, as_size(r),
                          as_size(r) < input.two_digits);
  });
  return input;
}

template <typename Finish>
void CpuBackend::multiply(const Input& input, std::span<const Product> products, Finish finish) {
  constexpr std::size_t kGrain = 16;
  device_.pool().run([&](int worker, int workers) {
    for (const Product& product : products) {
      const Prepared& weight = prepared(product.weight);
      const std::size_t grains = (weight.rows + kGrain - 1) / kGrain;
      const std::size_t first = grains * static_cast<std::size_t>(worker) / static_cast<std::size_t>(workers) * kGrain;
      const std::size_t last = std::min(
          weight.rows, grains * static_cast<std::size_t>(worker + 1) / static_cast<std::size_t>(workers) * kGrain);
      if (first >= last) continue;
      kernels_.matmul({.weights = weight.data,
                       .type = weight.type,
                       .columns = weight.columns,
                       .row_bytes = weight.row_bytes,
                       .row_stride = weight.row_stride,
                       .first = first,
                       .last = last,
                       .quantized = input.digits && wants_digits(product.weight) ? &digits_ : nullptr,
                       .plain = input.plain,
                       .plain_stride = input.stride,
                       .two_digit_rows = input.two_digits,
                       .rows = input.rows,
                       .out = product.out,
                       .out_stride = product.stride,
                       .scratch = scratch_[static_cast<std::size_t>(worker)].data()});
      if (&product == &products.back()) finish(first, last);
    }
  });
}

void CpuBackend::multiply(const Input& input, std::span<const Product> products) {
  multiply(input, products, [](std::size_t, std::size_t) {});
}

void CpuBackend::finish_branch(const BranchEnd& end, const Weight& bias, float* values, std::size_t stride,
                               std::int32_t layer) {
  const std::size_t width = as_size(end.x.width);
  for_rows(row_count(end.x.rows), [&](std::int32_t r) {
    float* value = values + as_size(r) * stride;
    float* x = row(end.x, r);
    if (bias.valid()) kernels_.add(value, vector(bias), width);
    if (end.branch.kind != NormKind::none && !norm_row(end.branch, value, value, width)) {
      flag_bad_row(end.x.rows, r, layer);
    }
    kernels_.add_scaled(x, value, end.scale, width);
    if (end.after.kind != NormKind::none && !norm_row(end.after, x, x, width)) flag_bad_row(end.x.rows, r, layer);
  });
}

void CpuBackend::embed(const EmbedOp& op) {
  Timer timer(*this, "embedding");
  timer.embedding(op);
  const Prepared& table = prepared(op.table);
  for_rows(row_count(op.out.rows), [&](std::int32_t r) {
    float* x = row(op.out, r);
    decode_row(table.type, table.data + as_size(tokens()[as_size(r)]) * table.row_stride, x, table.columns);
    kernels_.soft_cap(x, op.scale, 0.0f, table.columns);
    const auto add_table_row = [&](const Weight& weight, std::int32_t index) {
      const Prepared& more = prepared(weight);
      std::vector<float> values(more.columns);
      decode_row(more.type, more.data + as_size(index) * more.row_stride, values.data(), more.columns);
      kernels_.add(x, values.data(), more.columns);
    };
    if (op.positions.valid()) add_table_row(op.positions, rows()[as_size(r)].position);
    if (op.types.valid()) add_table_row(op.types, 0);
    if (op.norm.kind != NormKind::none && !norm_row(op.norm, x, x, table.columns)) flag_bad_row(op.out.rows, r, 0);
  });
}

void CpuBackend::norm(const NormOp& op) {
  const Timer timer(*this, "norms and digits");
  for_rows(row_count(op.in.rows), [&](std::int32_t r) {
    if (!norm_row(op.norm, row(op.in, r), row(op.out, r), as_size(op.in.width))) {
      flag_bad_row(op.in.rows, r, op.layer);
    }
  });
}

void CpuBackend::linear(const LinearOp& op) {
  const Input input = prepare_input(op.in, 0, row_count(op.in.rows), op.before, op.layer, {&op.weight, 1});
  Timer timer(*this, profile_name(op));
  timer.products(input.rows, {op.weight});
  if (op.end.x.valid()) {
    const std::size_t stride = as_size(op.weight.rows);
    const Product product{.weight = op.weight, .out = first_.floats(), .stride = stride};
    multiply(input, {&product, 1});
    finish_branch(op.end, op.bias, first_.floats(), stride, op.layer);
    return;
  }
  const Product product{.weight = op.weight, .out = data(op.out) + op.out_at, .stride = as_size(op.out.width)};
  multiply(input, {&product, 1});
  if (op.bias.valid()) {
    for_rows(row_count(op.out.rows), [&](std::int32_t r) {
      kernels_.add(row(op.out, r) + op.out_at, vector(op.bias), as_size(op.weight.rows));
    });
  }
}

void CpuBackend::activate(ActivationKind kind, float* values, std::size_t count) const {
  switch (kind) {
    case ActivationKind::none: return;
    case ActivationKind::silu: kernels_.silu(values, count); return;
    case ActivationKind::gelu_tanh: kernels_.gelu_tanh(values, count); return;
    case ActivationKind::relu_squared: kernels_.relu_squared(values, count); return;
    case ActivationKind::gelu_erf:
      for (std::size_t i = 0; i < count; ++i) {
        values[i] = 0.5f * values[i] * (1.0f + std::erf(values[i] * 0.70710678118654752f));
      }
      return;
    case ActivationKind::swiglu_clamped: break;
  }
  fail(ErrorKind::internal, "a clamped SwiGLU needs both of its factors");
}

void CpuBackend::glu(const GluOp& op) {
  if (op.activation == ActivationKind::swiglu_clamped) {
    fail(ErrorKind::unsupported, "the cpu backend has no dense feed-forward with a clamped SwiGLU");
  }
  const std::array weights = {op.up, op.gate.valid() ? op.gate : op.up};
  const Input input = prepare_input(op.x, 0, row_count(op.x.rows), op.before, op.layer, weights);
  Timer timer(*this, "glu");
  timer.products(input.rows, {op.gate, op.up});
  multiply_gated(input, {.gate = op.gate,
                         .up = op.up,
                         .gate_bias = op.gate_bias,
                         .up_bias = op.up_bias,
                         .activation = {.kind = op.activation},
                         .out = data(op.out),
                         .stride = as_size(op.out.width)});
}

// Without a gate the product with `up` takes its place.
void CpuBackend::multiply_gated(const Input& input, const GatedProduct& product) {
  const bool gated = product.gate.valid();
  const Product inner{.weight = gated ? product.gate : product.up, .out = product.out, .stride = product.stride};
  const std::array products = {
      gated ? Product{.weight = product.up, .out = second_.floats(), .stride = widest_output_} : inner, inner};
  const Weight& inner_bias = gated ? product.gate_bias : product.up_bias;
  multiply(input, std::span(products).subspan(gated ? 0 : 1), [&](std::size_t first, std::size_t last) {
    const std::size_t count = last - first;
    for (std::size_t r = 0; r < input.rows; ++r) {
      float* out = product.out + r * product.stride + first;
      float* up = gated ? second_.floats() + r * widest_output_ + first : nullptr;
      if (inner_bias.valid()) kernels_.add(out, vector(inner_bias) + first, count);
      if (gated && product.up_bias.valid()) kernels_.add(up, vector(product.up_bias) + first, count);
      gate_values(product.activation, out, up, count);
    }
  });
}

void CpuBackend::gate_values(const Gate& gate, float* values, float* up, std::size_t count) const {
  if (gate.kind == ActivationKind::swiglu_clamped) {
    kernels_.swiglu_clamped(values, up, gate.clamp, gate.alpha, count);
    return;
  }
  activate(gate.kind, values, count);
  if (up != nullptr) kernels_.multiply(values, up, count);
}

void CpuBackend::head(const HeadOp& op) {
  const std::int32_t first = op.slice * kLogitRows;
  const std::int32_t count = std::min(kLogitRows, row_count(op.in.rows) - first);
  const std::size_t width = as_size(op.in.width);
  for (std::int32_t r = 0; r < count; ++r) {
    HostOutput& output = outputs()[as_size(first + r)];
    if (output.embedding == nullptr) continue;
    if (op.norm.kind == NormKind::none) {
      std::copy_n(row(op.in, first + r), width, output.embedding);
    } else if (!norm_row(op.norm, row(op.in, first + r), output.embedding, width)) {
      flag_bad_row(op.in.rows, first + r, op.layer);
    }
  }
  if (!op.weight.valid()) return;
  const Input input = prepare_input(op.in, first, count, op.norm, op.layer, {&op.weight, 1});
  Timer timer(*this, "head");
  timer.products(input.rows, {op.weight});
  const std::size_t vocabulary = as_size(op.weight.rows);
  const Product product{.weight = op.weight, .out = logits_row(0), .stride = vocabulary};
  multiply(input, {&product, 1}, [&](std::size_t begin, std::size_t end) {
    for (std::int32_t r = 0; r < count; ++r) {
      float* logits = logits_row(r) + begin;
      if (op.bias.valid()) kernels_.add(logits, vector(op.bias) + begin, end - begin);
      kernels_.soft_cap(logits, op.scale, op.soft_cap, end - begin);
    }
  });
}

}  // namespace quarrel
