// GEMVs and GEMMs: which rows take which kernel, and in what form.
#include <algorithm>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/half_gemv.h"
#include "backend/cuda/mixed_gemm.h"
#include "backend/cuda/register_gemm.h"
#include "backend/cuda/repack.h"
#include "backend/cuda/row_image.h"
#include "base/as_size.h"
#include "base/error.h"

namespace quarrel::cuda {
namespace {

constexpr std::int64_t kSmallMatrix = std::int64_t{1} << 24;

}  // namespace

CudaBackend::Tier CudaBackend::tier_of(int rows) const noexcept {
  // Where all matrices are small, it is the number of kernels that counts, and a GEMV has most of them fused.
  const bool small = std::int64_t{weights_.widest_input()} * weights_.widest_output() < kSmallMatrix;
  const int most = small ? 2 * kMaxGemvRows : kMaxGemvRows;
  if (options_.deterministic) return Tier::gemv;
  if (options_.activations != ActivationPrecision::f16 && rows <= most) return Tier::gemv;
  return rows <= kMaxPackedGemmRows ? Tier::few : Tier::many;
}

CudaBackend::Segments CudaBackend::segments(RowSet rows, bool by_class) const {
  const bool all = rows == RowSet::all;
  const int generated = all ? shape_.generated_rows : shape_.generated_outputs;
  const int prompt = all ? shape_.prompt_rows : shape_.prompt_outputs;
  Segments result;
  const auto add = [&result](const Segment& segment) {
    if (segment.count > 0) result.parts[as_size(result.count++)] = segment;
  };
  if (tier_of(generated) == Tier::gemv && tier_of(prompt) == Tier::gemv) {
    add({.first = 0, .count = generated + prompt, .is_prompt = generated == 0});
  } else if (!by_class && tier_of(generated) != Tier::gemv && tier_of(prompt) != Tier::gemv) {
    add({.first = 0, .count = generated + prompt, .tier = tier_of(generated + prompt)});
  } else {
    add({.first = 0, .count = generated, .tier = tier_of(generated)});
    add({.first = generated, .count = prompt, .tier = tier_of(prompt), .is_prompt = true});
  }
  return result;
}

// Norms rows that the next op was to norm, where that is another one than was expected.
void CudaBackend::settle_norm() {
  const DeferredNorm deferred = std::exchange(deferred_norm_, {});
  if (deferred.rows.id < 0) return;
  const RowSpan rows = row_span(deferred.rows);
  gate_groups(context_, {.rows = rows,
                         .norm = device_norm(deferred.norm, rows.width, deferred.rows.rows, 0, deferred.layer),
                         .sequences = tables_.rows(0).sequences});
  after_small_kernel_ = true;
}

// Adds up the parts that the op which reads the results was to add up, where that is another one than was expected.
void CudaBackend::settle_join() {
  const JoinPartsOp join = std::exchange(pending_join_, {});
  if (join.parts == nullptr) return;
  join_parts(context_, join);
  after_small_kernel_ = true;
}

RowSpan CudaBackend::row_span(const Activation& activation) {
  const RowSpan rows = unsettled_rows(activation);
  if (rows.data == pending_join_.out) settle_join();
  return rows;
}

RowSpan CudaBackend::unsettled_rows(const Activation& activation) {
  if (activation.id >= 0 && activation.id == deferred_norm_.rows.id) settle_norm();
  if (activation.id < 0 || as_size(activation.id) >= activations_.size()) {
    fail(ErrorKind::internal, "an op lacks an activation");
  }
  return {.data = activations_[as_size(activation.id)].data,
          .stride = stride_of(activation.width),
          .width = activation.width,
          .count = row_count(activation.rows)};
}

std::int32_t* CudaBackend::bad_of(RowSet rows) const {
  return rows == RowSet::all ? tables_.bad_rows() : tables_.bad_outputs();
}

DeviceNorm CudaBackend::device_norm(const Norm& norm, int width, RowSet rows, int first, int layer) const {
  if (norm.kind == NormKind::none) return {};
  return {.kind = norm.kind,
          .epsilon = norm.epsilon,
          .weight = weights_.vector_of(norm.weight, width),
          .bias = weights_.vector_of(norm.bias, width),
          .first_bad = bad_of(rows) + first,
          .layer = layer};
}

CudaBackend::Input CudaBackend::input_of(const Activation& in, int width, const Norm& before, int layer,
                                         const Segment& rows) {
  if (width > in.width) fail(ErrorKind::internal, "an op of layer {} reads {} of {} values", layer, width, in.width);
  // A GEMM may add the parts that are pending itself (image_of()); whoever else reads the rows settles them.
  RowSpan span = (rows.tier == Tier::gemv ? row_span(in) : unsettled_rows(in)).from(rows.first, rows.count);
  span.width = width;
  return {.in = span, .set = in.rows, .before = before, .layer = layer, .rows = rows};
}

CudaBackend::Input CudaBackend::input_of(const RowSpan& in, const Segment& rows) const {
  return {.in = in, .rows = rows};
}

// Before an op reads its rows as they are.
void CudaBackend::settle(const Input& input) {
  const JoinPartsOp& join = pending_join_;
  if (join.parts == nullptr) return;
  const float* end = join.out + static_cast<std::ptrdiff_t>(join.rows) * join.out_stride;
  if (input.in.data >= join.out && input.in.data < end) settle_join();
}

RowSpan CudaBackend::floats_of(Input& input) {
  if (input.floats.data != nullptr) return input.floats;
  settle(input);
  if (input.before.kind == NormKind::none) return input.floats = input.in;
  const int width = input.in.width;
  const DeviceNorm norm = device_norm(input.before, width, input.set, input.rows.first, input.layer);
  input.floats = {.data = normed_, .stride = stride_of(width), .width = width, .count = input.rows.count};
  norm_rows(context_, input.in, norm, normed_, input.floats.stride);
  after_small_kernel_ = true;
  return input.floats;
}

const std::uint16_t* CudaBackend::halves_of(Input& input) {
  if (input.halves != nullptr) return input.halves;
  settle(input);
  const Halved wanted{.rows = input.in.data, .count = input.in.count, .width = input.in.width, .is_image = false};
  if (halved_ != wanted || input.before.kind != NormKind::none) {
    norm_rows(context_, input.in, device_norm(input.before, input.in.width, input.set, input.rows.first, input.layer),
              halves_, input.in.width);
    halved_ = {};
    after_small_kernel_ = true;
  }
  return input.halves = halves_;
}

const std::uint16_t* CudaBackend::image_of(Input& input) {
  // Whatever takes the image overwrites the parts.
  const bool is_joined = pending_join_.out == input.in.data && pending_join_.rows == input.in.count &&
                         pending_join_.width == input.in.width;
  if (!is_joined) settle_join();
  if (input.image != nullptr) return input.image;
  const Halved wanted{.rows = input.in.data, .count = input.in.count, .width = input.in.width, .is_image = true};
  if (halved_ == wanted && input.before.kind == NormKind::none) return input.image = hidden_image_;
  make_row_image(context_, {.rows = input.in,
                            .join = std::exchange(pending_join_, {}),
                            .norm = device_norm(input.before, input.in.width, input.set, input.rows.first, input.layer),
                            .image = row_image_,
                            .image_rows = image_rows(input.in.count)});
  after_small_kernel_ = true;
  return input.image = row_image_;
}

// After rows were written that `halves_` may hold as they were.
void CudaBackend::forget_halves(const RowSpan& rows) {
  const float* end = rows.data + static_cast<std::ptrdiff_t>(rows.count) * rows.stride;
  if (halved_.rows >= rows.data && halved_.rows < end) halved_ = {};
}

SplitInput CudaBackend::split_input(const Input& input, int first, int count) const {
  const RowSpan rows = input.in.from(first, count);
  const DeviceNorm norm = device_norm(input.before, rows.width, input.set, input.rows.first + first, input.layer);
  return {.rows = rows.data,
          .stride = rows.stride,
          .columns = rows.width,
          .count = count,
          .norm = norm.kind,
          .epsilon = norm.epsilon,
          .norm_weight = norm.weight,
          .norm_bias = norm.bias,
          .first_bad_layer = norm.first_bad,
          .layer = input.layer};
}

bool CudaBackend::is_packed(const Weight& weight) const { return weights_[weight].form == StoredWeight::Form::packed; }

bool CudaBackend::have_gemv(std::initializer_list<Weight> weights) const {
  const auto is_half = [&](const Weight& weight) {
    return weights_[weight].experts == 1 && can_run_half_gemv(weights_[weight].dense);
  };
  return std::ranges::all_of(weights, [&](const Weight& weight) { return is_packed(weight); }) ||
         std::ranges::all_of(weights, is_half);
}

GemvMatrix CudaBackend::gemv_matrix(const Weight& weight, const Weight& bias, float* out, int stride) const {
  const StoredWeight& stored = weights_[weight];
  return {.weight = stored.packed,
          .halves = stored.dense,
          .bias = weights_.vector_of(bias, weight.rows),
          .out = out,
          .stride = stride};
}

bool CudaBackend::can_multiply_halves(const Weight& weight) const {
  const StoredWeight& stored = weights_[weight];
  return (stored.f16 != nullptr || stored.form == StoredWeight::Form::packed) &&
         DenseGemm::can_multiply(weight.rows, weight.columns);
}

void CudaBackend::run_gemv(GemvOp op) {
  op.follows_small_kernel = after_small_kernel_;
  if (op.matrices[0].weight.data != nullptr) {
    gemv_in_parts(context_, op, split_);
  } else {
    half_gemv(context_, op);
  }
  after_small_kernel_ = false;
}

void CudaBackend::multiply_by_gemv(const Input& input, const Gemm& wanted) {
  settle(input);
  for (int first = 0; first < input.rows.count; first += kMaxSplitRows) {
    const int count = std::min(kMaxSplitRows, input.rows.count - first);
    GemvOp op{.name = "gemv",
              .input = split_input(input, first, count),
              .output = wanted.is_added ? GemvOutput::add : GemvOutput::store,
              .scale = wanted.scale};
    float* out = wanted.out + static_cast<std::ptrdiff_t>(input.rows.first + first - wanted.out_first) * wanted.stride;
    op.matrices[0] = gemv_matrix(wanted.weight, wanted.bias, out, wanted.stride);
    run_gemv(op);
  }
}

const std::uint16_t* CudaBackend::joined_halves(std::initializer_list<Weight> weights) const {
  const std::uint16_t* first = nullptr;
  const std::uint16_t* next = nullptr;
  for (const Weight& weight : weights) {
    const std::uint16_t* matrix = weights_[weight].f16;
    if (matrix == nullptr || !can_multiply_halves(weight) || (next != nullptr && matrix != next)) return nullptr;
    if (first == nullptr) first = matrix;
    next = matrix + static_cast<std::ptrdiff_t>(weight.rows) * weight.columns;
  }
  return first;
}

void CudaBackend::multiply_joined(Input& input, const std::uint16_t* matrix, int rows, float* out) {
  const std::uint16_t* in = halves_of(input);
  gemm_->run(context_, {.tokens = input.rows.count, .rows = rows, .columns = input.in.width}, matrix, in, out);
  after_small_kernel_ = true;
}

bool CudaBackend::multiply_few(Input& input, std::initializer_list<Weight> weights, JoinPartsOp end,
                               JoinPartsOp* left) {
  if (input.rows.tier == Tier::gemv) return false;
  PackedGemmOp op{.rows = input.rows.count, .columns = input.in.width, .matrix_count = 0, .parts = parts_};
  const bool are_packed = std::ranges::all_of(weights, [&](const Weight& weight) { return is_packed(weight); });
  if (are_packed) {
    for (const Weight& weight : weights) op.matrices[op.matrix_count++] = weights_[weight].packed;
  }
  const auto plan = are_packed ? plan_register_gemm(context_, op, end, part_floats_) : std::nullopt;
  if (!plan) settle_join();
  if (!are_packed) return false;
  std::optional<JoinPartsOp> join;
  if (plan) {
    op.in = image_of(input);
    if (end.halves != nullptr) {
      end.halves = hidden_image_;
      end.image_rows = image_rows(op.rows);
    }
    join = register_gemm(context_, op, *plan, end);
  } else {
    const int slabs =
        input.rows.tier == Tier::many ? multiply_without_mirror(input, weights, op) : multiply_in_slabs(input, op);
    if (slabs == 0) return false;
    join = end;
    join->parts = parts_;
    join->slabs = slabs;
    join->rows = op.rows;
    join->width = op.width();
  }
  if (join && left != nullptr) {
    *left = *join;
  } else if (join) {
    join_parts(context_, *join);
  }
  after_small_kernel_ = true;
  note_halves(end, op);
  return true;
}

// What a gate has left beside its results.
void CudaBackend::note_halves(const JoinPartsOp& end, const PackedGemmOp& op) {
  if (end.halves == nullptr) return;
  halved_ = {.rows = end.out, .count = op.rows, .width = op.width() / 2, .is_image = end.image_rows > 0};
}

int CudaBackend::multiply_in_slabs(Input& input, PackedGemmOp& op) {
  const auto plan = plan_packed_gemm(context_, op, part_floats_);
  if (!plan) return 0;
  op.in = halves_of(input);
  packed_gemm(context_, op, *plan);
  return plan->slabs;
}

// What would have to be decoded to 16 bits before each GEMM, where the rows are too few to be worth that.
int CudaBackend::multiply_without_mirror(Input& input, std::initializer_list<Weight> weights, PackedGemmOp& op) {
  const auto has_mirror = [&](const Weight& weight) { return weights_[weight].f16 != nullptr; };
  if (op.rows > kMostMixedRows || std::ranges::any_of(weights, has_mirror)) return 0;
  const auto plan = plan_mixed_gemm(context_, op, part_floats_);
  if (!plan) return 0;
  op.in = halves_of(input);
  mixed_gemm(context_, op, *plan, image_);
  return plan->slabs;
}

// After a GEMM of cuBLASLt.
void CudaBackend::add_bias_of(const Gemm& wanted, float* out, int count) {
  after_small_kernel_ = true;
  if (!wanted.bias.valid()) return;
  if (wanted.is_added) fail(ErrorKind::internal, "a bias that would be added to a residual without its scale");
  const int rows = wanted.weight.rows;
  add_bias(context_, {.data = out, .stride = wanted.stride, .width = rows, .count = count},
           weights_.vector_of(wanted.bias, rows));
}

void CudaBackend::multiply(Input& input, const Gemm& wanted) {
  const StoredWeight& weight = weights_[wanted.weight];
  const int rows = wanted.weight.rows;
  float* out = wanted.out + static_cast<std::ptrdiff_t>(input.rows.first - wanted.out_first) * wanted.stride;
  const JoinPartsOp end{.end = wanted.is_added ? PartsEnd::add : PartsEnd::store,
                        .bias = weights_.vector_of(wanted.bias, rows),
                        .scale = wanted.scale,
                        .out = out,
                        .out_stride = wanted.stride};
  if (multiply_few(input, {wanted.weight}, end, wanted.may_wait ? &pending_join_ : nullptr)) return;
  if (input.rows.tier != Tier::gemv && can_multiply_halves(wanted.weight) && wanted.stride % 4 == 0) {
    const std::uint16_t* in = halves_of(input);
    const std::uint16_t* matrix = weight.f16;
    if (matrix == nullptr) {
      decode_to_f16(context_, weight.packed, decoded_);
      matrix = decoded_;
    }
    gemm_->run(context_,
               {.tokens = input.rows.count,
                .rows = rows,
                .columns = wanted.weight.columns,
                .out_stride = wanted.stride,
                .is_added = wanted.is_added},
               matrix, in, out, wanted.is_added ? wanted.scale : 1.0f);
    return add_bias_of(wanted, out, input.rows.count);
  }
  const bool adds_bias = wanted.is_added && wanted.bias.valid();
  if (input.rows.tier == Tier::many && weights_.can_multiply_floats(weight) && wanted.stride % 4 == 0 && !adds_bias) {
    const RowSpan in = floats_of(input);
    gemm_->run(context_,
               {.tokens = in.count,
                .rows = rows,
                .columns = wanted.weight.columns,
                .in_stride = in.stride,
                .out_stride = wanted.stride,
                .f32_in = true,
                .is_added = wanted.is_added},
               weight.dense.data, in.data, out, wanted.is_added ? wanted.scale : 1.0f);
    return add_bias_of(wanted, out, input.rows.count);
  }
  const bool few = input.rows.tier == Tier::gemv && have_gemv({wanted.weight});
  if (few || weight.form == StoredWeight::Form::packed) return multiply_by_gemv(input, wanted);
  if (weight.form != StoredWeight::Form::dense) fail(ErrorKind::internal, "a vector is not a matrix");
  dense_gemv(context_, {.weight = weight.dense,
                        .in = floats_of(input),
                        .bias = weights_.vector_of(wanted.bias, rows),
                        .out = out,
                        .out_stride = wanted.stride,
                        .add = wanted.is_added,
                        .scale = wanted.scale});
  after_small_kernel_ = true;
}

}  // namespace quarrel::cuda
