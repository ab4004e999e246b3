// Attention, norms and dense feed-forwards, as kernels on the backend's stream.
#include <algorithm>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_error.h"
#include "backend/cuda/decode_attention.h"
#include "backend/cuda/general_attention.h"
#include "backend/cuda/prefill_attention.h"
#include "backend/cuda/register_gemm.h"
#include "backend/cuda/row_image.h"
#include "backend/cuda/rowwise.h"
#include "base/as_size.h"
#include "base/error.h"

namespace quarrel::cuda {
namespace {

constexpr int kMaxHeadDim = 256;  // of rope_store

bool is_plain(const BranchEnd& end) { return end.branch.kind == NormKind::none && end.after.kind == NormKind::none; }

[[noreturn]] void refuse(const char* what, const char* op) {
  fail(ErrorKind::unsupported, "the cuda backend has no kernels for {} yet (op {})", what, op);
}

}  // namespace

void CudaBackend::norm(const NormOp& op) {
  const Timed timed(*this, "norms");
  RowSpan in = row_span(op.in);
  const RowSpan out = row_span(op.out);
  in.width = std::min(in.width, out.width);
  norm_rows(context_, in, device_norm(op.norm, in.width, op.in.rows, 0, op.layer), out.data, out.stride);
  after_small_kernel_ = true;
  forget_halves(out);
}

// ---- Attention ----

const float* CudaBackend::angles_of(const Rope& rope) {
  if (!rope.valid()) return nullptr;
  RopeTable& table = ropes_[as_size(rope.id)];
  if (table.frequencies.empty()) return nullptr;
  if (!table.is_ready) {
    StepRows rows = tables_.rows(0);
    rows.count = shape_.rows();
    rope_angles(context_, rows, table.device.as<double>(), static_cast<int>(table.frequencies.size()),
                static_cast<float>(table.magnitude), table.angles);
    table.is_ready = true;
    after_small_kernel_ = true;
  }
  return table.angles;
}

// Pairs that a rotation turns are neighbours, or lie apart by a power of two of whole tiles.
bool CudaBackend::can_fuse(const RopeTable& rope, int dim) {
  if (rope.kind == RopeKind::interleaved) return true;
  return std::cmp_equal(rope.frequencies.size() * 2, dim) && dim >= 2 * kTileRows &&
         std::has_single_bit(static_cast<unsigned>(dim));
}

// All of it in one GEMV.
bool CudaBackend::can_fuse(const QkvOp& op) const {
  return (!op.rope.valid() || can_fuse(ropes_[as_size(op.rope.id)], op.key_dim)) && op.q_norm.kind == NormKind::none &&
         op.k_norm.kind == NormKind::none && op.key_dim == op.value_dim && op.key_dim % 2 == 0 &&
         cache_.kv_type == KvType::f16 && have_gemv({op.q, op.k, op.v});
}

void CudaBackend::fused_qkv(const QkvOp& op, const Input& input) {
  const float* angles = angles_of(op.rope);
  const int pairs = angles == nullptr ? 0 : static_cast<int>(ropes_[as_size(op.rope.id)].frequencies.size());
  const RowSpan q = row_span(op.q_out);
  for (int first = 0; first < input.rows.count; first += kMaxSplitRows) {
    const int count = std::min(kMaxSplitRows, input.rows.count - first);
    const int row = input.rows.first + first;
    GemvOp gemv{.name = "qkv",
                .input = split_input(input, first, count),
                .matrix_count = 3,
                .output = GemvOutput::qkv,
                .qkv = {.rows = tables_.rows(op.kv_group).from(row, count),
                        .kv = paged_kv(op.kv_group, op.kv_layer),
                        .angles = angles == nullptr ? nullptr : angles + static_cast<std::ptrdiff_t>(row) * pairs * 2,
                        .pairs = pairs,
                        .half_split = angles != nullptr && ropes_[as_size(op.rope.id)].kind == RopeKind::half,
                        .saturated = tables_.saturated()}};
    gemv.matrices[0] = gemv_matrix(op.q, op.q_bias, q.from(row, count).data, q.stride);
    gemv.matrices[1] = gemv_matrix(op.k, op.k_bias);
    gemv.matrices[2] = gemv_matrix(op.v, op.v_bias);
    run_gemv(gemv);
  }
}

// All three in one launch, for rotations that this GEMV has not fused.
void CudaBackend::store_qkv(const QkvOp& op, const Input& input, const RowSpan& q, const RowSpan& k, const RowSpan& v) {
  for (int first = 0; first < input.rows.count; first += kMaxSplitRows) {
    const int count = std::min(kMaxSplitRows, input.rows.count - first);
    GemvOp gemv{.name = "qkv", .input = split_input(input, first, count), .matrix_count = 3};
    const auto set = [&](int i, const Weight& weight, const Weight& bias, const RowSpan& out) {
      gemv.matrices[i] = gemv_matrix(weight, bias, out.from(first, count).data, out.stride);
    };
    set(0, op.q, op.q_bias, q);
    set(1, op.k, op.k_bias, k);
    set(2, op.v, op.v_bias, v);
    run_gemv(gemv);
  }
}

void CudaBackend::separate_qkv(const QkvOp& op, Input& input) {
  const RowSpan q = row_span(op.q_out);
  const Segment rows = input.rows;
  const int width = op.q.rows + op.k.rows + op.v.rows;
  RowSpan in_q = q.from(rows.first, rows.count);
  RowSpan in_k{.data = first_value_, .stride = op.k.rows, .width = op.k.rows, .count = rows.count};
  RowSpan in_v{.data = second_value_, .stride = op.v.rows, .width = op.v.rows, .count = rows.count};
  const bool fits = width <= 2 * weights_.widest_output();
  // What rope_store() is to do of a GEMM's end.
  JoinPartsOp left;
  const float* q_bias = nullptr;
  const float* k_bias = nullptr;
  const float* v_bias = nullptr;
  const bool multiplied =
      fits && multiply_few(input, {op.q, op.k, op.v}, {.out = first_value_, .out_stride = width}, &left);
  const std::uint16_t* joined =
      fits && !multiplied && rows.tier == Tier::many ? joined_halves({op.q, op.k, op.v}) : nullptr;
  if (multiplied || joined != nullptr) {
    if (!multiplied) multiply_joined(input, joined, width, first_value_);
    float* first = left.parts != nullptr ? parts_ : first_value_;
    in_q = {.data = first, .stride = width, .width = op.q.rows, .count = rows.count};
    in_k = {.data = first + op.q.rows, .stride = width, .width = op.k.rows, .count = rows.count};
    in_v = {.data = in_k.data + op.k.rows, .stride = width, .width = op.v.rows, .count = rows.count};
    q_bias = weights_.vector_of(op.q_bias, op.q.rows);
    k_bias = weights_.vector_of(op.k_bias, op.k.rows);
    v_bias = weights_.vector_of(op.v_bias, op.v.rows);
  } else if (rows.tier == Tier::gemv && have_gemv({op.q, op.k, op.v})) {
    store_qkv(op, input, in_q, in_k, in_v);
  } else {
    const auto store = [&](const Weight& weight, const Weight& bias, const RowSpan& out) {
      multiply(input, {.weight = weight, .bias = bias, .out = out.data, .out_first = rows.first, .stride = out.stride});
    };
    store(op.q, op.q_bias, in_q);
    store(op.k, op.k_bias, in_k);
    store(op.v, op.v_bias, in_v);
  }
  const float* angles = angles_of(op.rope);
  const RopeTable* rope = angles == nullptr ? nullptr : &ropes_[as_size(op.rope.id)];
  const int pairs = rope == nullptr ? 0 : static_cast<int>(rope->frequencies.size());
  const Norm& head_norm = op.q_norm.kind != NormKind::none ? op.q_norm : op.k_norm;
  rope_store(context_,
             {.rows = tables_.rows(op.kv_group).from(rows.first, rows.count),
              .kv = paged_kv(op.kv_group, op.kv_layer),
              .q = q.from(rows.first, rows.count).data,
              .q_stride = q.stride,
              .q_in = in_q.data,
              .q_in_stride = in_q.stride,
              .k = in_k.data,
              .k_stride = in_k.stride,
              .v = in_v.data,
              .v_stride = in_v.stride,
              .parts = left.parts != nullptr ? left.slabs : 1,
              .part_stride = as_size(rows.count) * as_size(width),
              .q_bias = q_bias,
              .k_bias = k_bias,
              .v_bias = v_bias,
              .heads = op.heads,
              .angles = angles == nullptr ? nullptr : angles + static_cast<std::ptrdiff_t>(rows.first) * pairs * 2,
              .pairs = pairs,
              .interleaved = rope != nullptr && rope->kind == RopeKind::interleaved,
              .q_norm = weights_.vector_of(op.q_norm.weight, op.key_dim),
              .k_norm = weights_.vector_of(op.k_norm.weight, op.key_dim),
              .epsilon = head_norm.epsilon,
              .first_bad = tables_.bad_rows() + rows.first,
              .layer = op.layer,
              .saturated = tables_.saturated()});
  after_small_kernel_ = true;
}

void CudaBackend::qkv(const QkvOp& op) {
  if (op.key_dim > kMaxHeadDim || op.value_dim > kMaxHeadDim) refuse("heads of more than 256 values", "qkv");
  for (const Norm* norm : {&op.q_norm, &op.k_norm}) {
    if (norm->kind == NormKind::layer || norm->bias.valid()) refuse("layer norms of heads", "qkv");
    if (norm->kind == NormKind::rms && !norm->weight.valid()) refuse("norms of heads without weights", "qkv");
  }
  if (op.q_norm.kind == NormKind::rms && op.k_norm.kind == NormKind::rms && op.q_norm.epsilon != op.k_norm.epsilon) {
    refuse("norms of queries and keys with different epsilons", "qkv");
  }
  const Timed timed(*this, "qkv");
  for (const Segment& rows : segments(op.x.rows)) {
    Input input = input_of(op.x, op.q.columns, op.before, op.layer, rows);
    if (rows.tier == Tier::gemv && can_fuse(op)) {
      fused_qkv(op, input);
    } else {
      separate_qkv(op, input);
    }
  }
}

// Whether it has left `hidden_image_` beside its results: what follows may be register_gemm().
bool CudaBackend::attend_segment(const AttendOp& op, const Segment& segment) {
  const RowSpan q = row_span(op.q);
  const RowSpan out = row_span(op.out);
  const PagedKv kv = paged_kv(op.kv_group, op.kv_layer);
  const StepRows rows = tables_.rows(op.kv_group);
  const float* sinks = weights_.vector_of(op.sinks, op.heads);
  const bool usual = !kv.is_f32 && op.key_dim == op.value_dim;
  const bool long_prompt = segment.is_prompt && segment.count > kMaxSplitRows && !options_.deterministic;
  if (usual && long_prompt && can_prefill(op.heads, op.kv_heads, op.key_dim)) {
    if (tiles_ == 0) return false;
    prefill_attention(context_, {.rows = rows,
                                 .tiles = tables_.tiles(),
                                 .tile_count = tiles_,
                                 .kv = kv,
                                 .q = q.data,
                                 .out = out.data,
                                 .q_stride = q.stride,
                                 .out_stride = out.stride,
                                 .heads = op.heads,
                                 .scale = op.scale,
                                 .soft_cap = op.soft_cap,
                                 .window = op.window,
                                 .causal = op.causal,
                                 .sinks = sinks});
    return false;
  }
  const bool by_rows = usual && op.causal && can_attend(context_, op.heads, op.kv_heads, op.key_dim) &&
                       kAttentionRows * op.kv_heads <= kMaxArrivals;
  const bool leaves_image = by_rows && context_.has_wgmma && segment.tier != Tier::gemv && segment.count == out.count &&
                            out.count <= kMaxRegisterGemmRows && out.width <= kMaxImageColumns;
  const int most = by_rows ? kAttentionRows : segment.count;
  for (int first = 0; first < segment.count; first += most) {
    const int row = segment.first + first;
    const int count = std::min(most, segment.count - first);
    if (by_rows) {
      decode_attention(context_, {.rows = rows.from(row, count),
                                  .kv = kv,
                                  .q = q.from(row, count).data,
                                  .out = out.from(row, count).data,
                                  .q_stride = q.stride,
                                  .out_stride = out.stride,
                                  .image = leaves_image ? hidden_image_ : nullptr,
                                  .image_rows = image_rows(out.count),
                                  .image_first = row,
                                  .heads = op.heads,
                                  .scale = op.scale,
                                  .soft_cap = op.soft_cap,
                                  .window = op.window,
                                  .context = limits_.context,
                                  .sinks = sinks,
                                  .workspace = attention_workspace_,
                                  .arrivals = arrivals_});
    } else {
      general_attention(context_, {.rows = rows.from(row, count),
                                   .kv = kv,
                                   .q = q.from(row, count).data,
                                   .out = out.from(row, count).data,
                                   .q_stride = q.stride,
                                   .out_stride = out.stride,
                                   .heads = op.heads,
                                   .scale = op.scale,
                                   .soft_cap = op.soft_cap,
                                   .window = op.window,
                                   .causal = op.causal,
                                   .sinks = sinks});
    }
  }
  return leaves_image;
}

void CudaBackend::attend(const AttendOp& op) {
  const Timed timed(*this, "attend");
  bool leaves_image = false;
  for (const Segment& rows : segments(op.q.rows, true)) leaves_image = attend_segment(op, rows);
  const RowSpan out = row_span(op.out);
  forget_halves(out);
  if (leaves_image) halved_ = {.rows = out.data, .count = out.count, .width = out.width, .is_image = true};
  after_small_kernel_ = true;
}

// ---- Feed-forwards and projections ----

// The norm that the op's rows still lack, if its GEMV can do it; else there is none left to do.
CudaBackend::DeferredNorm CudaBackend::take_deferred_norm(const LinearOp& op) {
  if (deferred_norm_.rows.id < 0 || deferred_norm_.rows.id != op.in.id) return {};
  const bool fits = op.before.kind == NormKind::none && is_packed(op.weight) && op.weight.columns == op.in.width;
  if (fits) return std::exchange(deferred_norm_, {});
  settle_norm();
  return {};
}

void CudaBackend::linear(const LinearOp& op) {
  const Timed timed(*this, timed_as(op));
  const DeferredNorm deferred = take_deferred_norm(op);
  for (const Segment& rows : segments(op.in.rows)) {
    Input input = input_of(op.in, op.weight.columns, op.before, op.layer, rows);
    if (deferred.rows.id >= 0) input.before = deferred.norm;
    if (!op.end.x.valid()) {
      const RowSpan out = row_span(op.out);
      multiply(input, {.weight = op.weight, .bias = op.bias, .out = out.data + op.out_at, .stride = out.stride});
      continue;
    }
    const RowSpan x = row_span(op.end.x);
    const bool gemm = rows.tier != Tier::gemv && can_multiply_halves(op.weight);
    if (is_plain(op.end) && !(gemm && op.bias.valid())) {
      multiply(input, {.weight = op.weight,
                       .bias = op.bias,
                       .out = x.data,
                       .stride = x.stride,
                       .is_added = true,
                       .scale = op.end.scale,
                       .may_wait = rows.count == x.count && rows.count <= kMaxRegisterGemmRows});
      continue;
    }
    const int stride = stride_of(op.weight.rows);
    multiply(input, {.weight = op.weight, .out = first_value_, .out_first = rows.first, .stride = stride});
    finish_branch(context_, {.x = x.from(rows.first, rows.count),
                             .value = {.data = first_value_, .stride = stride, .width = x.width, .count = rows.count},
                             .bias = weights_.vector_of(op.bias, op.weight.rows),
                             .branch = device_norm(op.end.branch, x.width, op.end.x.rows, rows.first, op.layer),
                             .scale = op.end.scale,
                             .after = device_norm(op.end.after, x.width, op.end.x.rows, rows.first, op.layer)});
    after_small_kernel_ = true;
  }
  forget_halves(unsettled_rows(op.end.x.valid() ? op.end.x : op.out));
}

void CudaBackend::glu(const GluOp& op) {
  if (op.activation == ActivationKind::swiglu_clamped) refuse("clamped gates", "glu");
  const Timed timed(*this, "glu");
  const RowSpan out = row_span(op.out);
  for (const Segment& rows : segments(op.x.rows)) {
    Input input = input_of(op.x, op.up.columns, op.before, op.layer, rows);
    glu_segment(op, input, out.from(rows.first, rows.count));
  }
}

// `out` has the segment's rows.
void CudaBackend::glu_segment(const GluOp& op, Input& input, const RowSpan& out) {
  const Segment& rows = input.rows;
  const bool fused = rows.tier == Tier::gemv && op.gate.valid() && have_gemv({op.gate, op.up}) &&
                     weights_[op.gate].packed.format == weights_[op.up].packed.format;
  if (!fused) return glu_by_gemms(op, input, out);
  for (int first = 0; first < rows.count; first += kMaxSplitRows) {
    const int count = std::min(kMaxSplitRows, rows.count - first);
    GemvOp gemv{.name = "glu",
                .input = split_input(input, first, count),
                .matrix_count = 2,
                .output = GemvOutput::glu,
                .activation = op.activation};
    gemv.matrices[0] = gemv_matrix(op.gate, op.gate_bias, out.from(first, count).data, out.stride);
    gemv.matrices[1] = gemv_matrix(op.up, op.up_bias);
    run_gemv(gemv);
  }
}

void CudaBackend::glu_by_gemms(const GluOp& op, Input& input, const RowSpan& out) {
  const Segment rows = input.rows;
  const int width = op.up.rows;
  std::uint16_t* halves = rows.tier != Tier::gemv && width == out.width ? halves_ : nullptr;
  halved_ = {};
  const JoinPartsOp end{.end = PartsEnd::glu,
                        .bias = weights_.vector_of(op.gate_bias, width),
                        .second_bias = weights_.vector_of(op.up_bias, width),
                        .activation = op.activation,
                        .out = out.data,
                        .out_stride = out.stride,
                        .halves = halves};
  if (op.gate.valid() && multiply_few(input, {op.gate, op.up}, end)) return;
  const Halved halved =
      halves == nullptr ? Halved{} : Halved{.rows = out.data, .count = rows.count, .width = width, .is_image = false};
  if (halves != nullptr && glu_by_halves(op, input, out)) {
    halved_ = halved;
    return;
  }
  const int stride = stride_of(width);
  float* gate = first_value_;
  float* up = second_value_;
  if (op.gate.valid()) {
    multiply(input, {.weight = op.gate, .out = gate, .out_first = rows.first, .stride = stride});
  }
  multiply(input, {.weight = op.up, .out = up, .out_first = rows.first, .stride = stride});
  glu_rows(context_,
           {.gate = op.gate.valid() ? gate : nullptr,
            .gate_bias = weights_.vector_of(op.gate_bias, width),
            .up = {.data = up, .stride = stride, .width = width, .count = rows.count},
            .up_bias = weights_.vector_of(op.up_bias, width),
            .function = {.kind = op.activation}},
           out.data, out.stride, halves);
  halved_ = halved;
  after_small_kernel_ = true;
}

// Gate and up leave their GEMM in F16: of all that a prompt's step writes they are the most. Into `halves_` too.
bool CudaBackend::glu_by_halves(const GluOp& op, Input& input, const RowSpan& out) {
  const auto fits = [&](const Weight& weight) {
    return weights_[weight].f16 != nullptr && can_multiply_halves(weight);
  };
  if (input.rows.tier != Tier::many || !fits(op.up) || (op.gate.valid() && !fits(op.gate))) return false;
  const int width = op.up.rows;
  auto* first = reinterpret_cast<std::uint16_t*>(first_value_);
  auto* second = reinterpret_cast<std::uint16_t*>(second_value_);
  GluHalvesOp glu{.gate = op.gate.valid() ? first : nullptr,
                  .gate_bias = weights_.vector_of(op.gate_bias, width),
                  .up = second,
                  .up_bias = weights_.vector_of(op.up_bias, width),
                  .stride = width,
                  .width = width,
                  .count = input.rows.count,
                  .function = {.kind = op.activation},
                  .out = out.data,
                  .out_stride = out.stride,
                  .halves = halves_};
  const std::uint16_t* in = halves_of(input);
  const auto run = [&](const std::uint16_t* matrix, int rows, std::uint16_t* target) {
    const GemmShape shape{.tokens = input.rows.count, .rows = rows, .columns = input.in.width, .f32_out = false};
    gemm_->run(context_, shape, matrix, in, target);
  };
  // Both in one GEMM where they lie one below the other, in either order.
  const std::uint16_t* gate_first = op.gate.valid() ? joined_halves({op.gate, op.up}) : nullptr;
  const std::uint16_t* up_first = op.gate.valid() ? joined_halves({op.up, op.gate}) : nullptr;
  if (gate_first != nullptr || up_first != nullptr) {
    run(gate_first != nullptr ? gate_first : up_first, 2 * width, first);
    glu.gate = gate_first != nullptr ? first : first + width;
    glu.up = gate_first != nullptr ? first + width : first;
    glu.stride = 2 * width;
  } else {
    if (op.gate.valid()) run(weights_[op.gate].f16, width, first);
    run(weights_[op.up].f16, width, second);
  }
  glu_halves(context_, glu);
  after_small_kernel_ = true;
  return true;
}

}  // namespace quarrel::cuda
