// Experts behind a router. Files hold them stacked in one tensor, one tensor an expert (old ones), or gate and up
// stacked together with their rows alternating; each becomes views, and the op sees one form.
#include "model/blocks/sublayer.h"

namespace quarrel {
namespace {

class MoeBlock final : public Sublayer {
 public:
  explicit MoeBlock(const MoeOp& op) : op_(op) {}

  void apply(Backend& backend) const override { backend.moe(op_); }

 private:
  MoeOp op_;
};

void bind_gate_and_up(MoeOp& op, const MoeSpec& spec, BlockContext& context) {
  WeightBinder& weights = context.weights;
  constexpr auto kRole = WeightRole::expert_column;
  const ExpertShape shape{.rows = spec.length,
                          .columns = context.width,
                          .experts = spec.experts,
                          .used = spec.used,
                          .layer = context.layer};
  const std::string joined = context.prefix + "ffn_gate_up_exps";
  if (spec.gated && weights.has(joined + ".weight")) {
    op.gate = weights.experts_alternating(joined + ".weight", kRole, 0, 2, shape);
    op.up = weights.experts_alternating(joined + ".weight", kRole, 1, 2, shape);
    if (weights.has(joined + ".bias")) {
      op.gate_bias = weights.alternating_bias(joined + ".bias", 0, 2, shape);
      op.up_bias = weights.alternating_bias(joined + ".bias", 1, 2, shape);
    }
    return;
  }
  const auto bind = [&](const char* name, Weight& weight, Weight& bias) {
    weight = weights.experts(context.prefix + name, kRole, shape);
    bias = weights.expert_bias(context.prefix + name + "_exps.bias", shape);
  };
  if (spec.gated) bind("ffn_gate", op.gate, op.gate_bias);
  bind("ffn_up", op.up, op.up_bias);
}

}  // namespace

std::unique_ptr<Sublayer> make_moe(const SublayerSpec& sublayer, const MoeSpec& spec, BlockContext& context) {
  WeightBinder& weights = context.weights;
  const std::string& prefix = context.prefix;
  MoeOp op{.layer = context.layer,
           .x = context.shared.x,
           .before = weights.norm(sublayer.before, prefix, context.width),
           .router =
               weights.matrix(prefix + "ffn_gate_inp.weight", WeightRole::column_parallel, spec.experts, context.width),
           .router_bias = weights.optional_vector(prefix + "ffn_gate_inp.bias", spec.experts),
           .selection_bias = weights.optional_vector(
               weights.present({prefix + "exp_probs_b.bias", prefix + "exp_probs_b"}), spec.experts),
           .used = spec.used,
           .gating = spec.gating,
           .normalise = spec.normalise,
           .weight_scale = spec.weight_scale,
           .activation = spec.activation,
           .clamp = spec.clamp,
           .alpha = spec.alpha,
           .end = branch_end(sublayer, context)};
  bind_gate_and_up(op, spec, context);
  const ExpertShape down{.rows = context.width,
                         .columns = spec.length,
                         .experts = spec.experts,
                         .used = spec.used,
                         .layer = context.layer};
  op.down = weights.experts(prefix + "ffn_down", WeightRole::expert_row, down);
  op.down_bias = weights.expert_bias(prefix + "ffn_down_exps.bias", down);
  if (spec.shared_length > 0) {
    constexpr auto kColumns = WeightRole::column_parallel;
    if (spec.gated) {
      op.shared_gate = weights.matrix(prefix + "ffn_gate_shexp.weight", kColumns, spec.shared_length, context.width);
    }
    op.shared_up = weights.matrix(prefix + "ffn_up_shexp.weight", kColumns, spec.shared_length, context.width);
    op.shared_down =
        weights.matrix(prefix + "ffn_down_shexp.weight", WeightRole::row_parallel, context.width, spec.shared_length);
  }
  return std::make_unique<MoeBlock>(op);
}

}  // namespace quarrel
