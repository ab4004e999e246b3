#include "backend/cpu/cpu_backend.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "backend/cpu/digits.h"
#include "backend/cpu/float_mode.h"
#include "backend/host_memory.h"
#include "base/as_size.h"
#include "base/error.h"
#include "quant/decode.h"

namespace quarrel {
namespace {

// A group of a prompt row has a second digit if its largest value is so many times the row's root mean square. At 4,
// one group in five has one, and what one digit loses everywhere is halved (docs/numerics.md).
constexpr float kOutlier = 4.0f;

}  // namespace

std::size_t matmul_scratch_bytes(std::size_t columns) {
  // Rows are 16 at most. Either a packed panel of up to a byte and an eighth a weight, and plain ones with two F32
  // every 16 columns: a cacheful, or a single one that is larger; or two panels of F32 and one row.
  const std::size_t groups = digit_columns(std::max<std::size_t>(columns, 1));
  const std::size_t plain = groups * (32 * 16 + 4 * 16 * sizeof(float));
  const std::size_t packed = groups * 40 * 16 + 64;
  const std::size_t floats = (2 * 16 + 1) * padded(columns, kGroupPadding) * sizeof(float);
  return std::max(packed + std::max(plain, kPlainBytes), floats) + 64;
}

CpuDevice::CpuDevice(const ThreadOptions& threads, IsaLevel level, CpuTopology topology)
    : level_(level),
      kernels_(kernels_of(level)),
      pool_(ThreadOptions{.count = threads.count, .pin = threads.pin, .mode = kFloatThreadMode}, std::move(topology)) {}

std::string CpuDevice::description() const {
  return fmt::format("cpu ({}, {} thread{}{})", level_name(level_), pool_.size(), pool_.size() == 1 ? "" : "s",
                     pool_.pinned() ? ", pinned" : "");
}

std::size_t CpuDevice::memory_available() const { return host_memory_available(); }
std::size_t CpuDevice::memory_total() const { return host_memory_total(); }

std::unique_ptr<Backend> CpuDevice::make_backend(const BackendOptions& options) {
  return std::make_unique<CpuBackend>(*this, options);
}

CpuBackend::CpuBackend(CpuDevice& device, const BackendOptions& options)
    : HostBackend(device.lock(), options.plan_only), device_(device), kernels_(device.kernels()), options_(options) {}

Weight CpuBackend::prepare_weight(const WeightSource& source) {
  check_weight(source);
  const auto columns = static_cast<std::size_t>(source.columns);
  std::vector<ExpertPlace> places = expert_places(source);
  Prepared weight{.data = places.front().data,
                  .type = source.type,
                  .packed = false,
                  .rows = static_cast<std::size_t>(source.rows),
                  .columns = columns,
                  .row_bytes = row_bytes(type_info(source.type), columns),
                  .row_stride = row_stride(source),
                  .memory = {},
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
  if (wants_packing(source)) pack(source, places, weight);
  if (is_expert(source.role)) {
    if (!weight.packed) weight.places = std::move(places);
    add_experts(source, static_cast<std::int32_t>(weights_.size()), weight);
  }
  weights_.push_back(std::move(weight));
  return {.id = static_cast<std::int32_t>(weights_.size()) - 1,
          .rows = static_cast<std::int32_t>(source.rows),
          .columns = static_cast<std::int32_t>(source.columns),
          .experts = static_cast<std::int32_t>(source.experts)};
}

bool CpuBackend::wants_packing(const WeightSource& source) const {
  if (!options_.cpu.repack || kernels_.panel_bytes(source.type, static_cast<std::size_t>(source.columns)) == 0)
    return false;
  switch (source.role) {
    case WeightRole::embedding:  // one row a token is read of it
    case WeightRole::vector: return false;
    case WeightRole::expert_column:
    case WeightRole::expert_row: return !options_.cpu.expert_memory.has_value();
    default: return true;
  }
}

// Each worker packs, and so is the first to touch, the rows that it or its team will multiply.
void CpuBackend::pack(const WeightSource& source, std::span<const ExpertPlace> places, Prepared& weight) {
  const std::size_t panel_rows = kernels_.panel_rows;
  const std::size_t panel_bytes = kernels_.panel_bytes(weight.type, weight.columns);
  const std::size_t matrix_bytes = (weight.rows + panel_rows - 1) / panel_rows * panel_bytes;
  prepared_bytes_ += padded(matrix_bytes * places.size(), 64);
  released_bytes_ += weight.rows * weight.row_bytes * places.size();
  weight.packed = true;
  if (is_expert(source.role)) weight.places.resize(places.size());
  if (plan_only()) return;
  weight.memory = AlignedBuffer(matrix_bytes * places.size(), "repacked weights");
  weight.data = weight.memory.data();
  const auto pack_share = [&](int worker, int workers) {
    const Share share = share_of(weight.rows, worker, workers);
    for (std::size_t place = 0; place < places.size(); ++place) {
      for (std::size_t row = share.first; row < share.last; row += panel_rows) {
        kernels_.pack({.type = weight.type,
                       .rows = places[place].data + row * weight.row_stride,
                       .row_stride = weight.row_stride,
                       .count = std::min(panel_rows, weight.rows - row),
                       .columns = weight.columns,
                       .out = weight.memory.data() + place * matrix_bytes + row / panel_rows * panel_bytes});
      }
    }
  };
  {
    const DeviceLock::Hold hold(device_.lock());
    device_.pool().run(pack_share);
  }
  // Without the device lock: whoever is told of progress may wait for another model's answer.
  if (options_.cpu.on_repacked) options_.cpu.on_repacked(released_bytes_);
  for (std::size_t place = 0; place < weight.places.size(); ++place) {
    weight.places[place] = {.data = weight.memory.data() + place * matrix_bytes};
  }
}

Activation CpuBackend::make_activation(std::int32_t width, RowSet rows) {
  if (rows == RowSet::all) widest_output_ = std::max(widest_output_, as_size(width));
  return HostBackend::make_activation(width, rows);
}

std::size_t CpuBackend::worker_scratch_bytes() const noexcept {
  const std::size_t tiles = kernels_.tiles.scratch_bytes != nullptr ? kernels_.tiles.scratch_bytes(widest_input_) : 0;
  return std::max(matmul_scratch_bytes(widest_input_), tiles);
}

std::size_t CpuBackend::workspace_bytes(const StepLimits& limits, std::int32_t vocabulary) const noexcept {
  const auto rows = static_cast<std::size_t>(std::max(limits.rows, limits.outputs));
  return HostBackend::workspace_bytes(limits, vocabulary) + digit_bytes(rows, widest_input_) +
         (has_bfloats() ? bfloat_bytes(rows, widest_input_) : 0) +
         rows * (widest_input_ + 2 * widest_output_) * sizeof(float) +
         as_size(device_.pool().size()) * worker_scratch_bytes() + attend_workspace_bytes() +
         expert_workspace_bytes(limits);
}

std::size_t CpuBackend::expert_workspace_bytes(const StepLimits& limits) const noexcept {
  const auto rows = static_cast<std::size_t>(std::max(limits.rows, limits.outputs));
  return MoeSpace(moe_).lay_out(nullptr, rows, as_size(device_.pool().size()));
}

void CpuBackend::reserve(const StepLimits& limits, std::int32_t vocabulary) {
  HostBackend::reserve(limits, vocabulary);
  const auto rows = static_cast<std::size_t>(std::max(limits.rows, limits.outputs));
  digit_memory_ = AlignedBuffer(digit_bytes(rows, widest_input_), "activation digits");
  if (has_bfloats()) bfloat_memory_ = AlignedBuffer(bfloat_bytes(rows, widest_input_), "activations in bf16");
  normed_ = AlignedBuffer(rows * widest_input_ * sizeof(float), "normed rows");
  first_ = AlignedBuffer(rows * widest_output_ * sizeof(float), "projections");
  second_ = AlignedBuffer(rows * widest_output_ * sizeof(float), "projections");
  scratch_.clear();
  for (int worker = 0; worker < device_.pool().size(); ++worker) {
    scratch_.emplace_back(worker_scratch_bytes(), "a worker's scratch");
  }
  attend_memory_ = AlignedBuffer(attend_workspace_bytes(), "attention");
  const std::size_t workers = as_size(device_.pool().size());
  step_rows_ = rows;
  moe_memory_ = AlignedBuffer(moe_.lay_out(nullptr, rows, workers), "experts");
  moe_.lay_out(moe_memory_.data(), rows, workers);
  expert_cache_.reset();
  if (caches_experts()) expert_cache_ = std::make_unique<ExpertCache>(expert_sets_, expert_cache_bytes());
}

void CpuBackend::enter_device() { caller_.emplace(device_.pool()); }

void CpuBackend::leave_device() { caller_.reset(); }

bool CpuBackend::wants_digits(const Weight& weight) const {
  return options_.activations != ActivationPrecision::f32 && kernels_.has_integer_kernel(prepared(weight).type);
}

bool CpuBackend::has_bfloats() const noexcept {
  return kernels_.tiles.matmul_bfloats != nullptr && (options_.activations == ActivationPrecision::outlier_groups ||
                                                      options_.activations == ActivationPrecision::int8_split);
}

bool CpuBackend::wants_bfloats(const Weight& weight) const {
  const QuantType type = prepared(weight).type;
  if (!has_bfloats() || !kernels_.tiles.has_bfloat_kernel(type)) return false;
  return options_.activations == ActivationPrecision::outlier_groups || type == QuantType::f16 ||
         type == QuantType::bf16;
}

bool CpuBackend::wants_bfloat_pairs(const Weight& weight) const {
  const QuantType type = prepared(weight).type;
  return type == QuantType::f16 || (type == QuantType::bf16 && options_.activations == ActivationPrecision::int8_split);
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

void CpuBackend::quantize(const float* values, const Input& input, const DigitRows& to, std::size_t row) const {
  float threshold = 0.0f;
  if (row >= input.generated) {
    if (options_.activations == ActivationPrecision::outlier_groups) threshold = kOutlier;
    if (options_.activations == ActivationPrecision::int8) threshold = std::numeric_limits<float>::infinity();
  }
  kernels_.quantize_row(values, input.columns, to, row, threshold);
}

void CpuBackend::lay_out(const Input& input) {
  if (input.digits) digits_ = lay_out_digits(digit_memory_.data(), input.columns);
  if (input.bfloats) bfloats_ = lay_out_bfloats(bfloat_memory_.data(), input.rows, input.columns);
}

void CpuBackend::convert(const float* values, const Input& input, const DigitRows& digits, const BfloatRows& bfloats,
                         std::size_t row) const {
  if (input.bfloats && row >= input.generated) {
    kernels_.tiles.convert_row(values, input.columns, bfloats, row, input.bfloat_pairs);
  } else if (input.digits) {
    quantize(values, input, digits, row);
  }
}

// Cuts the first rows of digits off a product and gives them back as one of their own.
static MatmulTask take_digit_rows(MatmulTask& task, std::size_t rows) {
  MatmulTask first = task;
  first.rows = rows;
  task.first_row += rows;
  task.out += rows * task.out_stride;
  task.rows -= rows;
  return first;
}

// Whole tiles of rows in tiles, where there are any; a small rest is for vectors.
void CpuBackend::multiply_digits(MatmulTask task) const {
  if (task.digits != nullptr && kernels_.tiles.matmul_digits != nullptr) {
    const std::size_t rest = task.rows % kDigitRows;
    const MatmulTask tiles = take_digit_rows(task, rest <= kStreamedRows ? task.rows - rest : task.rows);
    if (tiles.rows > 0) kernels_.tiles.matmul_digits(tiles);
  }
  if (task.rows > 0) kernels_.matmul(task);
}

void CpuBackend::multiply_rows(MatmulTask task, std::size_t generated) const {
  const bool in_prompts = options_.activations == ActivationPrecision::int8_split;
  if (task.bfloats == nullptr) {
    // Tiles of digits begin where the rows do, so those stay together.
    const bool apart = task.digits != nullptr && kernels_.tiles.matmul_digits == nullptr && !in_prompts;
    if (apart && generated > 0 && generated < task.rows) {
      MatmulTask first = take_digit_rows(task, generated);
      first.both_digits = true;
      multiply_digits(first);
      generated = 0;
    }
    task.both_digits = in_prompts || generated > 0;
    return multiply_digits(task);
  }
  if (task.rows > generated) {
    MatmulTask prompt = task;
    prompt.digit_rows = generated;
    kernels_.tiles.matmul_bfloats(prompt);
  }
  task.rows = std::min(task.rows, generated);
  task.both_digits = true;
  multiply_digits(task);
}

CpuBackend::Input CpuBackend::prepare_input(const Activation& in, std::int32_t first, std::int32_t rows,
                                            const Norm& before, std::int32_t layer, std::span<const Weight> weights) {
  const Timer timer(*this, "norms and digits");
  const std::size_t columns = as_size(weights.front().columns);
  Input input{
      .plain = row(in, first),
      .stride = as_size(in.width),
      .columns = columns,
      .rows = as_size(rows),
      .generated = as_size(std::clamp(generated_count(in.rows) - first, 0, rows)),
      .digits = std::ranges::any_of(weights, [&](const Weight& weight) { return wants_digits(weight); }),
      .bfloats = std::ranges::any_of(weights, [&](const Weight& weight) { return wants_bfloats(weight); }),
      .bfloat_pairs = std::ranges::any_of(weights, [&](const Weight& weight) { return wants_bfloat_pairs(weight); })};
  if (before.kind != NormKind::none) {
    input.plain = normed_.floats();
    input.stride = columns;
  }
  lay_out(input);
  if (before.kind == NormKind::none && !input.digits && !input.bfloats) return input;
  for_rows(rows, [&](std::int32_t r) {
    const float* values = row(in, first + r);
    if (before.kind != NormKind::none) {
      float* normed = normed_.floats() + as_size(r) * columns;
      if (!norm_row(before, values, normed, columns)) flag_bad_row(in.rows, first + r, layer);
      values = normed;
    }
    convert(values, input, digits_, bfloats_, as_size(r));
  });
  return input;
}

CpuBackend::Input CpuBackend::prepare_values(const float* values, std::size_t stride, const Weight& weight) {
  const std::size_t rows = as_size(shape().rows());
  const Input input{.plain = values,
                    .stride = stride,
                    .columns = as_size(weight.columns),
                    .rows = rows,
                    .generated = as_size(generated_count(RowSet::all)),
                    .digits = wants_digits(weight),
                    .bfloats = wants_bfloats(weight),
                    .bfloat_pairs = wants_bfloat_pairs(weight)};
  if (!input.digits && !input.bfloats) return input;
  lay_out(input);
  for_rows(shape().rows(),
           [&](std::int32_t r) { convert(values + as_size(r) * stride, input, digits_, bfloats_, as_size(r)); });
  return input;
}

void CpuBackend::multiply_part(const Input& input, const Product& product, std::size_t first, std::size_t last,
                               std::size_t worker) {
  const Prepared& weight = prepared(product.weight);
  MatmulTask task = weight.task(weight.data, first, last);
  task.digits = input.digits && wants_digits(product.weight) ? &digits_ : nullptr;
  task.plain = input.plain;
  task.plain_stride = input.stride;
  task.rows = input.rows;
  task.bfloats = input.bfloats && wants_bfloats(product.weight) ? &bfloats_ : nullptr;
  task.bfloat_pairs = wants_bfloat_pairs(product.weight);
  task.out = product.out + first;
  task.out_stride = product.stride;
  task.scratch = scratch_[worker].data();
  multiply_rows(task, input.generated);
}

void CpuBackend::multiply(const Input& input, std::span<const Product> products) {
  std::array<std::size_t, 3> rows = {};
  for (std::size_t i = 0; i < products.size(); ++i) rows.at(i) = prepared(products[i].weight).rows;
  for_parts(input, std::span(rows).first(products.size()), [&](std::size_t i, const Share& part, std::size_t worker) {
    multiply_part(input, products[i], part.first, part.last, worker);
  });
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

void CpuBackend::decode_table_row(const Prepared& table, std::size_t row, float* values) const {
  if (!table.packed) return decode_row(table.type, table.data + row * table.row_stride, values, table.columns);
  const std::size_t panel = row / kernels_.panel_rows * kernels_.panel_bytes(table.type, table.columns);
  kernels_.decode_packed(table.type, table.data + panel, row % kernels_.panel_rows, table.columns, values);
}

void CpuBackend::embed(const EmbedOp& op) {
  Timer timer(*this, "embedding");
  timer.embedding(op);
  const Prepared& table = prepared(op.table);
  for_rows(row_count(op.out.rows), [&](std::int32_t r) {
    float* x = row(op.out, r);
    decode_table_row(table, as_size(tokens()[as_size(r)]), x);
    kernels_.soft_cap(x, op.scale, 0.0f, table.columns);
    const auto add_table_row = [&](const Weight& weight, std::int32_t index) {
      const Prepared& more = prepared(weight);
      std::vector<float> values(more.columns);
      decode_table_row(more, as_size(index), values.data());
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
  give_way();
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
    case ActivationKind::gelu_erf: kernels_.gelu_erf(values, count); return;
    case ActivationKind::swiglu_clamped: break;
  }
  fail(ErrorKind::internal, "a clamped SwiGLU needs both of its factors");
}

void CpuBackend::glu(const GluOp& op) {
  give_way();
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
  const Product up{.weight = product.up, .out = second_.floats(), .stride = widest_output_};
  const Weight& inner_bias = gated ? product.gate_bias : product.up_bias;
  const std::size_t rows = prepared(inner.weight).rows;
  for_parts(input, {&rows, 1}, [&](std::size_t, const Share& part, std::size_t worker) {
    const auto [first, last] = part;
    if (gated) multiply_part(input, up, first, last, worker);
    multiply_part(input, inner, first, last, worker);
    for (std::size_t r = 0; r < input.rows; ++r) {
      float* out = inner.out + r * inner.stride + first;
      float* factors = gated ? up.out + r * up.stride + first : nullptr;
      if (inner_bias.valid()) kernels_.add(out, vector(inner_bias) + first, last - first);
      if (gated && product.up_bias.valid()) kernels_.add(factors, vector(product.up_bias) + first, last - first);
      gate_values(product.activation, out, factors, last - first);
    }
  });
}

void CpuBackend::gate_values(const Gate& gate, float* values, float* up, std::size_t count) const {
  if (up == nullptr) return activate(gate.kind, values, count);
  switch (gate.kind) {
    case ActivationKind::none: kernels_.multiply(values, up, count); return;
    case ActivationKind::silu: kernels_.swiglu(values, up, count); return;
    case ActivationKind::gelu_tanh: kernels_.geglu_tanh(values, up, count); return;
    case ActivationKind::gelu_erf: kernels_.geglu_erf(values, up, count); return;
    case ActivationKind::relu_squared: kernels_.reglu_squared(values, up, count); return;
    case ActivationKind::swiglu_clamped: kernels_.swiglu_clamped(values, up, gate.clamp, gate.alpha, count); return;
  }
}

void CpuBackend::head(const HeadOp& op) {
  give_way();
  const std::int32_t first = op.slice * kLogitRows;
  const std::int32_t count = std::min(kLogitRows, row_count(op.in.rows) - first);
  const std::size_t width = as_size(op.in.width);
  begin_vectors(op.in.width);
  for (std::int32_t r = 0; r < count; ++r) {
    const HostOutput& output = outputs()[as_size(first + r)];
    if (output.wanted == nullptr || output.wanted->kind != OutputKind::vector) continue;
    float* vector = output_vector(output);
    if (op.norm.kind == NormKind::none) {
      std::copy_n(row(op.in, first + r), width, vector);
    } else if (!norm_row(op.norm, row(op.in, first + r), vector, width)) {
      flag_bad_row(op.in.rows, first + r, op.layer);
    }
  }
  if (!op.weight.valid() || !wants_logits(op.slice)) return;
  const Input input = prepare_input(op.in, first, count, op.norm, op.layer, {&op.weight, 1});
  Timer timer(*this, "head");
  timer.products(input.rows, {op.weight});
  const std::size_t vocabulary = as_size(op.weight.rows);
  const Product product{.weight = op.weight, .out = logits_row(0), .stride = vocabulary};
  for_parts(input, {&vocabulary, 1}, [&](std::size_t, const Share& part, std::size_t worker) {
    const auto [begin, end] = part;
    multiply_part(input, product, begin, end, worker);
    for (std::int32_t r = 0; r < count; ++r) {
      float* logits = logits_row(r) + begin;
      if (op.bias.valid()) kernels_.add(logits, vector(op.bias) + begin, end - begin);
      kernels_.soft_cap(logits, op.scale, op.soft_cap, end - begin);
    }
  });
}

}  // namespace quarrel
