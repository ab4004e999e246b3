// Attention: projections and cache store, the weighted sum over the cache, and the output projection into the residual.
#include "base/error.h"
#include "model/blocks/sublayer.h"
#include "model/rope.h"

namespace quarrel {
namespace {

class AttentionBlock final : public Sublayer {
 public:
  AttentionBlock(const QkvOp& qkv, const AttendOp& attend, const LinearOp& output)
      : qkv_(qkv), attend_(attend), output_(output) {}

  void apply(Backend& backend) const override {
    backend.qkv(qkv_);
    backend.attend(attend_);
    backend.linear(output_);
  }

 private:
  QkvOp qkv_;
  AttendOp attend_;
  LinearOp output_;
};

Rope make_rope(const RopeSpec& spec, std::int32_t key_dim, BlockContext& context) {
  if (!spec.enabled) return {};
  if (spec.dimensions < 2 || spec.dimensions > key_dim || spec.dimensions % 2 != 0) {
    fail(ErrorKind::bad_file, "layer {} would rotate {} of {} dimensions (key rope.dimension_count)", context.layer,
         spec.dimensions, key_dim);
  }
  std::vector<double> divisors;
  if (!spec.factors_tensor.empty()) divisors = context.weights.values(spec.factors_tensor, spec.dimensions / 2);
  const RopeFrequencies frequencies = rope_frequencies(spec, divisors);
  return context.backend.prepare_rope(
      {.kind = spec.kind, .frequencies = frequencies.radians, .magnitude = frequencies.magnitude});
}

// Three tensors, or one whose rows are q, then k, then v.
void bind_projections(QkvOp& op, const AttentionSpec& spec, BlockContext& context) {
  WeightBinder& weights = context.weights;
  const std::int64_t q = std::int64_t{spec.heads} * spec.key_dim;
  const std::int64_t k = std::int64_t{spec.kv_heads} * spec.key_dim;
  const std::int64_t v = std::int64_t{spec.kv_heads} * spec.value_dim;
  const std::string fused = context.prefix + "attn_qkv";
  constexpr auto kRole = WeightRole::column_parallel;
  if (weights.has(fused + ".weight")) {
    const std::int64_t total = q + k + v;
    op.q = weights.rows(fused + ".weight", kRole, 0, q, total, context.width);
    op.k = weights.rows(fused + ".weight", kRole, q, k, total, context.width);
    op.v = weights.rows(fused + ".weight", kRole, q + k, v, total, context.width);
    if (weights.has(fused + ".bias")) {
      op.q_bias = weights.vector_part(fused + ".bias", 0, q, total);
      op.k_bias = weights.vector_part(fused + ".bias", q, k, total);
      op.v_bias = weights.vector_part(fused + ".bias", q + k, v, total);
    }
    return;
  }
  op.q = weights.matrix(context.prefix + "attn_q.weight", kRole, q, context.width);
  op.k = weights.matrix(context.prefix + "attn_k.weight", kRole, k, context.width);
  op.v = weights.matrix(context.prefix + "attn_v.weight", kRole, v, context.width);
  op.q_bias = weights.optional_vector(context.prefix + "attn_q.bias", q);
  op.k_bias = weights.optional_vector(context.prefix + "attn_k.bias", k);
  op.v_bias = weights.optional_vector(context.prefix + "attn_v.bias", v);
}

}  // namespace

std::unique_ptr<Sublayer> make_attention(const SublayerSpec& sublayer, const AttentionSpec& spec,
                                         BlockContext& context) {
  WeightBinder& weights = context.weights;
  QkvOp qkv{.layer = context.layer,
            .kv_group = context.kv_group,
            .kv_layer = context.kv_layer,
            .x = context.shared.x,
            .before = weights.norm(sublayer.before, context.prefix, context.width),
            .q_norm = weights.norm(spec.q_norm, context.prefix, spec.key_dim),
            .k_norm = weights.norm(spec.k_norm, context.prefix, spec.key_dim),
            .rope = make_rope(spec.rope, spec.key_dim, context),
            .heads = spec.heads,
            .kv_heads = spec.kv_heads,
            .key_dim = spec.key_dim,
            .value_dim = spec.value_dim,
            .q_out = context.shared.q};
  bind_projections(qkv, spec, context);

  AttendOp attend{.layer = context.layer,
                  .kv_group = context.kv_group,
                  .kv_layer = context.kv_layer,
                  .q = context.shared.q,
                  .out = context.shared.attention,
                  .heads = spec.heads,
                  .kv_heads = spec.kv_heads,
                  .key_dim = spec.key_dim,
                  .value_dim = spec.value_dim,
                  .scale = spec.scale,
                  .soft_cap = spec.soft_cap,
                  .window = spec.window,
                  .causal = spec.causal};
  if (spec.sinks) {
    attend.sinks = weights.vector(
        weights.present({context.prefix + "attn_sinks.weight", context.prefix + "attn_sinks"}), spec.heads);
  }

  const std::string joint = context.prefix + "attn_out";
  const std::string output = weights.has(joint + ".weight") ? joint : context.prefix + "attn_output";
  LinearOp linear{.layer = context.layer,
                  .sublayer = SublayerKind::attention,
                  .in = context.shared.attention,
                  .weight = weights.matrix(output + ".weight", WeightRole::row_parallel, context.width,
                                           std::int64_t{spec.heads} * spec.value_dim),
                  .bias = weights.optional_vector(output + ".bias", context.width),
                  .end = branch_end(sublayer, context)};
  return std::make_unique<AttentionBlock>(qkv, attend, linear);
}

}  // namespace quarrel
