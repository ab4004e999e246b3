#include "model/blocks/sublayer.h"

namespace quarrel {

BranchEnd branch_end(const SublayerSpec& spec, BlockContext& context) {
  return {.x = context.shared.x,
          .branch = context.weights.norm(spec.branch, context.prefix, context.width),
          .scale = spec.residual_scale,
          .after = context.weights.norm(spec.after, context.prefix, context.width)};
}

std::unique_ptr<Sublayer> make_sublayer(const SublayerSpec& spec, BlockContext& context) {
  if (const auto* attention = std::get_if<AttentionSpec>(&spec.function))
    return make_attention(spec, *attention, context);
  if (const auto* mamba = std::get_if<MambaSpec>(&spec.function)) return make_mamba(spec, *mamba, context);
  if (const auto* ffn = std::get_if<FfnSpec>(&spec.function)) return make_ffn(spec, *ffn, context);
  if (const auto* moe = std::get_if<MoeSpec>(&spec.function)) return make_moe(spec, *moe, context);
  return nullptr;
}

}  // namespace quarrel
