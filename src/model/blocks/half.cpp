#include "model/blocks/half.h"

#include "base/error.h"

namespace quarrel {

BranchEnd branch_end(const HalfSpec& spec, BlockContext& context) {
  return {.x = context.shared.x,
          .branch = context.weights.norm(spec.branch, context.prefix, context.width),
          .scale = spec.residual_scale,
          .after = context.weights.norm(spec.after, context.prefix, context.width)};
}

std::unique_ptr<HalfBlock> make_half(const HalfSpec& spec, BlockContext& context) {
  if (const auto* attention = std::get_if<AttentionSpec>(&spec.part)) return make_attention(spec, *attention, context);
  if (const auto* ffn = std::get_if<FfnSpec>(&spec.part)) return make_ffn(spec, *ffn, context);
  if (!std::holds_alternative<std::monostate>(spec.part)) {
    fail(ErrorKind::unsupported, "layer {} has a part that this build cannot run", context.layer);
  }
  return nullptr;
}

}  // namespace quarrel
