// The dense feed-forward, gated or plain.
#include "model/blocks/sublayer.h"

namespace quarrel {
namespace {

class FfnBlock final : public Sublayer {
 public:
  FfnBlock(const GluOp& glu, const LinearOp& down) : glu_(glu), down_(down) {}

  void apply(Backend& backend) const override {
    backend.glu(glu_);
    backend.linear(down_);
  }

 private:
  GluOp glu_;
  LinearOp down_;
};

}  // namespace

std::unique_ptr<Sublayer> make_ffn(const SublayerSpec& sublayer, const FfnSpec& spec, BlockContext& context) {
  WeightBinder& weights = context.weights;
  constexpr auto kColumns = WeightRole::column_parallel;
  const std::string up = context.prefix + "ffn_up";
  const std::string gate = context.prefix + "ffn_gate";
  const std::string down = context.prefix + "ffn_down";
  GluOp glu{.layer = context.layer,
            .x = context.shared.x,
            .before = weights.norm(sublayer.before, context.prefix, context.width),
            .activation = spec.activation,
            .out = context.shared.hidden};
  if (spec.gated && weights.rows_of(up + ".weight") == 2 * std::int64_t{spec.length}) {
    // One tensor with the gate's rows before those of the up projection.
    glu.gate = weights.rows(up + ".weight", kColumns, 0, spec.length, 2 * std::int64_t{spec.length}, context.width);
    glu.up =
        weights.rows(up + ".weight", kColumns, spec.length, spec.length, 2 * std::int64_t{spec.length}, context.width);
  } else {
    glu.up = weights.matrix(up + ".weight", kColumns, spec.length, context.width);
    glu.up_bias = weights.optional_vector(up + ".bias", spec.length);
    if (spec.gated) {
      glu.gate = weights.matrix(gate + ".weight", kColumns, spec.length, context.width);
      glu.gate_bias = weights.optional_vector(gate + ".bias", spec.length);
    }
  }
  LinearOp linear{.layer = context.layer,
                  .sublayer = SublayerKind::feed_forward,
                  .in = context.shared.hidden,
                  .weight = weights.matrix(down + ".weight", WeightRole::row_parallel, context.width, spec.length),
                  .bias = weights.optional_vector(down + ".bias", context.width),
                  .end = branch_end(sublayer, context)};
  return std::make_unique<FfnBlock>(glu, linear);
}

}  // namespace quarrel
