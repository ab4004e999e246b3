// A recurrent layer: input projection, the stateful middle, output projection. Quantisers place its tensors
// differently; the forms differ by name and shape:
//   input projection   `ssm_in`, or its parts `ssm_in_z`, `_x`, `_b`, `_c`, `_dt` (`_xbc` for the middle three)
//   A                  `ssm_a` with or without `.weight`, as A itself (always negative) or as log(-A) (never all
//                      negative in a trained model: it starts at log 1 to log 16); [1, heads] or [heads]
//   D, dt bias, norm   with one dimension or two; the norm may be missing
#include <array>
#include <cmath>

#include "base/error.h"
#include "model/blocks/sublayer.h"

namespace quarrel {
namespace {

class MambaBlock final : public Sublayer {
 public:
  MambaBlock(std::vector<LinearOp> input, const SsmOp& ssm, const LinearOp& output)
      : input_(std::move(input)), ssm_(ssm), output_(output) {}

  void apply(Backend& backend) const override {
    for (const LinearOp& part : input_) backend.linear(part);
    backend.ssm(ssm_);
    backend.linear(output_);
  }

 private:
  std::vector<LinearOp> input_;
  SsmOp ssm_;
  LinearOp output_;
};

struct InputPart {
  const char* suffix;
  std::int64_t width;
};

// The parts of the input projection in the order the op wants them.
std::vector<InputPart> input_parts(const MambaSpec& spec) {
  if (spec.version == 1) return {{"x", spec.inner}, {"z", spec.inner}};
  const std::int64_t shared = std::int64_t{spec.groups} * spec.state;
  return {{"z", spec.inner}, {"x", spec.inner}, {"b", shared}, {"c", shared}, {"dt", spec.heads}};
}

std::vector<LinearOp> bind_input(const SublayerSpec& sublayer, const MambaSpec& spec, BlockContext& context) {
  WeightBinder& weights = context.weights;
  const std::string joined = context.prefix + "ssm_in";
  const Norm before = weights.norm(sublayer.before, context.prefix, context.width);
  std::vector<LinearOp> ops;
  std::int64_t at = 0;
  const auto add = [&](const std::string& name, std::int64_t width) {
    ops.push_back({.layer = context.layer,
                   .sublayer = SublayerKind::ssm,
                   .in = context.shared.x,
                   .before = before,
                   .weight = weights.matrix(name + ".weight", WeightRole::column_parallel, width, context.width),
                   .bias = weights.optional_vector(name + ".bias", width),
                   .out = context.shared.ssm_in,
                   .out_at = static_cast<std::int32_t>(at)});
    at += width;
  };
  const std::vector<InputPart> parts = input_parts(spec);
  const bool split = weights.has(joined + "_" + parts.front().suffix + ".weight");
  if (!split || weights.has(joined + ".weight")) {
    add(joined, mamba_input_width(spec));
    return ops;
  }
  const bool middle_joined = weights.has(joined + "_xbc.weight");
  for (const InputPart& part : parts) {
    const std::string suffix = part.suffix;
    if (middle_joined && suffix == "x") add(joined + "_xbc", mamba_channels(spec));
    if (middle_joined && (suffix == "x" || suffix == "b" || suffix == "c")) continue;
    add(fmt::format("{}_{}", joined, suffix), part.width);
  }
  return ops;
}

// A from what the file holds: A is negative everywhere, so a value that is not must be a logarithm.
void from_logarithm(std::span<float> values) {
  const bool logarithm = std::ranges::any_of(values, [](float value) { return value >= 0.0f; });
  if (!logarithm) return;
  for (float& value : values) value = -std::exp(value);
}

void bind_scan(SsmOp& op, const MambaSpec& spec, BlockContext& context) {
  WeightBinder& weights = context.weights;
  const std::string& p = context.prefix;
  const auto optional = [&](std::initializer_list<std::string> names, std::initializer_list<TensorShape> shapes) {
    const std::string name = weights.present(names);
    return weights.has(name) ? weights.shaped_vector(name, shapes) : Weight{};
  };
  const std::int64_t channels = mamba_channels(spec);
  const std::int64_t heads = spec.version == 1 ? spec.inner : spec.heads;
  const TensorShape conv{spec.conv_width, channels};
  op.conv = weights.shaped_vector(p + "ssm_conv1d.weight", {conv});
  op.conv_bias = optional({p + "ssm_conv1d.bias"}, {{channels}});
  const TensorShape a = spec.version == 1 ? TensorShape{spec.state, spec.inner} : TensorShape{spec.heads};
  op.a = weights.shaped_vector(weights.present({p + "ssm_a", p + "ssm_a.weight"}), {a}, from_logarithm);
  op.d = optional({p + "ssm_d", p + "ssm_d.weight"}, {{heads}});
  op.dt_bias = optional({p + "ssm_dt.bias", p + "ssm_dt_bias", p + "ssm_dt"}, {{heads}});
  const std::string norm = p + spec.norm.tensor + ".weight";
  if (spec.norm.kind != NormKind::none && weights.has(norm)) {
    op.norm = {.kind = spec.norm.kind,
               .epsilon = spec.norm.epsilon,
               .weight = weights.shaped_vector(norm, {{spec.inner / spec.groups, spec.groups}, {spec.inner}})};
  }
  if (spec.version != 1) return;
  constexpr auto kRole = WeightRole::column_parallel;
  op.x_proj = weights.matrix(p + "ssm_x.weight", kRole, spec.dt_rank + 2 * std::int64_t{spec.state}, spec.inner);
  op.dt_proj = weights.matrix(p + "ssm_dt.weight", kRole, spec.inner, spec.dt_rank);
  op.dt_norm = weights.norm(spec.dt_norm, p, spec.dt_rank);
  op.b_norm = weights.norm(spec.b_norm, p, spec.state);
  op.c_norm = weights.norm(spec.c_norm, p, spec.state);
}

}  // namespace

std::int64_t mamba_channels(const MambaSpec& spec) {
  return spec.version == 1 ? spec.inner : spec.inner + 2 * std::int64_t{spec.groups} * spec.state;
}

std::int64_t mamba_input_width(const MambaSpec& spec) {
  std::int64_t width = 0;
  for (const InputPart& part : input_parts(spec)) width += part.width;
  return width;
}

std::unique_ptr<Sublayer> make_mamba(const SublayerSpec& sublayer, const MambaSpec& spec, BlockContext& context) {
  WeightBinder& weights = context.weights;
  SsmOp ssm{.layer = context.layer,
            .state_layer = context.state_layer,
            .version = spec.version,
            .in = context.shared.ssm_in,
            .out = context.shared.ssm_out,
            .inner = spec.inner,
            .state = spec.state,
            .heads = spec.version == 1 ? spec.inner : spec.heads,
            .groups = spec.groups,
            .conv_width = spec.conv_width,
            .dt_rank = spec.dt_rank};
  bind_scan(ssm, spec, context);
  const std::string output = context.prefix + "ssm_out";
  const LinearOp linear{
      .layer = context.layer,
      .sublayer = SublayerKind::ssm,
      .in = context.shared.ssm_out,
      .weight = weights.matrix(output + ".weight", WeightRole::row_parallel, context.width, spec.inner),
      .bias = weights.optional_vector(output + ".bias", context.width),
      .end = branch_end(sublayer, context)};
  return std::make_unique<MambaBlock>(bind_input(sublayer, spec, context), ssm, linear);
}

}  // namespace quarrel
