#include "model/model.h"

#include <algorithm>

#include "base/error.h"

namespace quarrel {
namespace {

// Widths of the activations that all layers share.
class SharedWidths {
 public:
  explicit SharedWidths(const ModelSpec& spec) {
    for (const LayerSpec& layer : spec.layers) {
      if (const auto* attention = std::get_if<AttentionSpec>(&layer.mixer.function)) {
        grow(q_, std::int64_t{attention->heads} * attention->key_dim);
        grow(attention_, std::int64_t{attention->heads} * attention->value_dim);
      }
      if (const auto* mamba = std::get_if<MambaSpec>(&layer.mixer.function)) {
        grow(ssm_in_, mamba_input_width(*mamba));
        grow(ssm_out_, mamba->inner);
      }
      if (const auto* ffn = std::get_if<FfnSpec>(&layer.ffn.function)) grow(hidden_, ffn->length);
    }
  }

  SharedActivations make(std::int32_t width, Backend& backend) const {
    const auto maybe = [&backend](std::int32_t columns) {
      return columns > 0 ? backend.make_activation(columns, RowSet::all) : Activation{};
    };
    return {.x = maybe(width),
            .q = maybe(q_),
            .attention = maybe(attention_),
            .hidden = maybe(hidden_),
            .ssm_in = maybe(ssm_in_),
            .ssm_out = maybe(ssm_out_)};
  }

 private:
  static void grow(std::int32_t& widest, std::int64_t width) {
    constexpr std::int64_t kMost = 1 << 24;
    if (width > kMost) fail(ErrorKind::bad_file, "a layer would be {} values wide, more than {}", width, kMost);
    widest = std::max(widest, static_cast<std::int32_t>(width));
  }

  std::int32_t q_ = 0, attention_ = 0, hidden_ = 0, ssm_in_ = 0, ssm_out_ = 0;
};

bool same_group(const KvGroup& group, const AttentionSpec& spec) {
  return group.window == spec.window && group.kv_heads == spec.kv_heads && group.key_dim == spec.key_dim &&
         group.value_dim == spec.value_dim;
}

}  // namespace

std::vector<KvGroup> kv_groups_of(const ModelSpec& spec) {
  std::vector<KvGroup> groups;
  for (const LayerSpec& layer : spec.layers) {
    const auto* attention = std::get_if<AttentionSpec>(&layer.mixer.function);
    if (attention == nullptr) continue;
    auto group = std::ranges::find_if(groups, [&](const KvGroup& known) { return same_group(known, *attention); });
    if (group == groups.end()) {
      groups.push_back({.kv_heads = attention->kv_heads,
                        .key_dim = attention->key_dim,
                        .value_dim = attention->value_dim,
                        .window = attention->window});
      group = groups.end() - 1;
    }
    ++group->layers;
  }
  return groups;
}

std::vector<StateLayer> state_layers_of(const ModelSpec& spec) {
  std::vector<StateLayer> layers;
  for (const LayerSpec& layer : spec.layers) {
    const auto* mamba = std::get_if<MambaSpec>(&layer.mixer.function);
    if (mamba == nullptr) continue;
    layers.push_back({.conv_values = (std::int64_t{mamba->conv_width} - 1) * mamba_channels(*mamba),
                      .scan_values = std::int64_t{mamba->inner} * mamba->state});
  }
  return layers;
}

Model::Model(const GgufFile& file, ModelSpec spec, Backend& backend)
    : spec_(std::move(spec)), kv_groups_(kv_groups_of(spec_)), state_layers_(state_layers_of(spec_)) {
  WeightBinder weights(file, backend);
  const SharedActivations shared = SharedWidths(spec_).make(spec_.width, backend);
  const bool tied = spec_.has_head && !weights.has("output.weight");
  constexpr auto kTable = WeightRole::embedding;
  embed_ = {
      .out = shared.x,
      .table = weights.matrix("token_embd.weight", tied ? WeightRole::head : kTable, spec_.vocabulary, spec_.width),
      .scale = spec_.embedding_scale,
      .norm = weights.norm(spec_.embedding_norm, "", spec_.width)};
  if (spec_.token_types) {
    embed_.types = weights.matrix("token_types.weight", kTable, weights.rows_of("token_types.weight"), spec_.width);
  }
  if (spec_.position_table) {
    const std::int64_t positions = weights.rows_of("position_embd.weight");
    if (positions < spec_.context_length) {
      fail(ErrorKind::bad_file, "tensor position_embd.weight has {} rows, but the model's context is {} tokens",
           positions, spec_.context_length);
    }
    embed_.positions = weights.matrix("position_embd.weight", kTable, positions, spec_.width);
  }

  std::vector<std::int32_t> layers_in_group(kv_groups_.size(), 0);
  std::int32_t recurrent_layers = 0;
  for (std::size_t i = 0; i < spec_.layers.size(); ++i) {
    const LayerSpec& layer = spec_.layers[i];
    BlockContext context{.weights = weights,
                         .backend = backend,
                         .shared = shared,
                         .layer = static_cast<std::int32_t>(i),
                         .width = spec_.width,
                         .prefix = fmt::format("blk.{}.", i)};
    if (const auto* attention = std::get_if<AttentionSpec>(&layer.mixer.function)) {
      const auto group = std::ranges::find_if(kv_groups_, [&](const KvGroup& g) { return same_group(g, *attention); });
      context.kv_group = static_cast<std::int32_t>(group - kv_groups_.begin());
      context.kv_layer = layers_in_group[static_cast<std::size_t>(context.kv_group)]++;
    }
    if (std::holds_alternative<MambaSpec>(layer.mixer.function)) context.state_layer = recurrent_layers++;
    layers_.push_back({.mixer = make_sublayer(layer.mixer, context), .ffn = make_sublayer(layer.ffn, context)});
  }

  const Activation selected = backend.make_activation(spec_.width, RowSet::outputs);
  select_ = {.in = shared.x, .out = selected};
  head_ = {.layer = static_cast<std::int32_t>(spec_.layers.size()),
           .in = selected,
           .norm = weights.norm(spec_.output_norm, "", spec_.width),
           .scale = spec_.logit_scale,
           .soft_cap = spec_.logit_soft_cap};
  if (spec_.has_head) {
    head_.weight =
        tied ? embed_.table : weights.matrix("output.weight", WeightRole::head, spec_.vocabulary, spec_.width);
    head_.bias = weights.optional_vector("output.bias", spec_.vocabulary);
  }
  pool_ = {.layer = head_.layer, .in = shared.x, .norm = head_.norm};
  if (spec_.pooling == Pooling::rank || weights.has("cls.output.weight")) bind_ranking(weights);
  unused_tensors_ = weights.unused();
  shared_bytes_ = weights.shared_bytes();
  expert_bytes_ = weights.expert_bytes();
  least_expert_bytes_ = weights.least_expert_bytes();
}

bool Model::needs_whole_text() const noexcept {
  return std::ranges::any_of(spec_.layers, [](const LayerSpec& layer) {
    const auto* attention = std::get_if<AttentionSpec>(&layer.mixer.function);
    return attention != nullptr && !attention->causal;
  });
}

void Model::bind_ranking(WeightBinder& weights) {
  const std::int64_t width = spec_.width;
  const std::int64_t scores = weights.rows_of("cls.output.weight");
  if (scores < 1) fail(ErrorKind::bad_file, "the file has no tensor cls.output.weight, which ranking needs");
  if (scores > width) {
    fail(ErrorKind::bad_file, "tensor cls.output.weight gives {} scores, more than the {} values of a row", scores,
         width);
  }
  constexpr auto kRole = WeightRole::vector;
  if (weights.has("cls.weight")) {
    pool_.dense = weights.matrix("cls.weight", kRole, width, width);
    pool_.dense_bias = weights.optional_vector("cls.bias", width);
  }
  pool_.score = weights.matrix("cls.output.weight", kRole, scores, width);
  pool_.score_bias = weights.optional_vector("cls.output.bias", scores);
}

void Model::forward(Backend& backend, const StepShape& shape, const std::function<void()>& on_layer) const {
  backend.embed(embed_);
  for (const Layer& layer : layers_) {
    if (on_layer) on_layer();
    if (layer.mixer) layer.mixer->apply(backend);
    if (layer.ffn) layer.ffn->apply(backend);
  }
  const bool logits = shape.tokens || shape.logits;
  if (logits && !spec_.has_head) fail(ErrorKind::unsupported, "the model gives vectors, no tokens");
  if (logits || shape.vectors) {
    backend.select_rows(select_);
    for (std::int32_t slice = 0; slice * backend.logit_rows() < shape.outputs(); ++slice) {
      HeadOp head = head_;
      head.slice = slice;
      if (!logits) head.weight = head.bias = {};
      backend.head(head);
      if (logits) backend.sample({.slice = slice, .vocabulary = spec_.vocabulary});
    }
  }
  // Last, so that what lanes gather is not gathered twice when a step that failed comes again.
  if (shape.pooled) backend.pool(pool_);
}

std::int32_t Model::vector_width(Pooling pooling) const noexcept {
  return pooling == Pooling::rank ? pool_.score.rows : spec_.width;
}

std::uint64_t parameter_count(const GgufFile& file) {
  std::uint64_t count = 0;
  for (const GgufTensor& tensor : file.tensors()) count += tensor.elements();
  return count;
}

}  // namespace quarrel
