#include "model/model.h"

#include <algorithm>

#include "base/error.h"

namespace quarrel {
namespace {

// Widths of the activations that all layers share.
SharedActivations make_shared(const ModelSpec& spec, Backend& backend) {
  std::int32_t q = 0;
  std::int32_t attention = 0;
  std::int32_t hidden = 0;
  for (const LayerSpec& layer : spec.layers) {
    if (const auto* part = std::get_if<AttentionSpec>(&layer.mixer.part)) {
      q = std::max(q, part->heads * part->key_dim);
      attention = std::max(attention, part->heads * part->value_dim);
    }
    if (const auto* part = std::get_if<FfnSpec>(&layer.ffn.part)) hidden = std::max(hidden, part->length);
  }
  SharedActivations shared;
  shared.x = backend.make_activation(spec.width, RowSet::all);
  if (q > 0) shared.q = backend.make_activation(q, RowSet::all);
  if (attention > 0) shared.attention = backend.make_activation(attention, RowSet::all);
  if (hidden > 0) shared.hidden = backend.make_activation(hidden, RowSet::all);
  return shared;
}

bool same_group(const KvGroup& group, const AttentionSpec& spec) {
  return group.window == spec.window && group.kv_heads == spec.kv_heads && group.key_dim == spec.key_dim &&
         group.value_dim == spec.value_dim;
}

}  // namespace

std::vector<KvGroup> kv_groups_of(const ModelSpec& spec) {
  std::vector<KvGroup> groups;
  for (const LayerSpec& layer : spec.layers) {
    const auto* part = std::get_if<AttentionSpec>(&layer.mixer.part);
    if (part == nullptr) continue;
    auto group = std::ranges::find_if(groups, [&](const KvGroup& known) { return same_group(known, *part); });
    if (group == groups.end()) {
      groups.push_back(
          {.kv_heads = part->kv_heads, .key_dim = part->key_dim, .value_dim = part->value_dim, .window = part->window});
      group = groups.end() - 1;
    }
    ++group->layers;
  }
  return groups;
}

Model::Model(const GgufFile& file, ModelSpec spec, Backend& backend)
    : spec_(std::move(spec)), kv_groups_(kv_groups_of(spec_)) {
  WeightBinder weights(file, backend);
  const SharedActivations shared = make_shared(spec_, backend);
  embed_ = {.out = shared.x,
            .table = weights.matrix("token_embd.weight", WeightRole::embedding, spec_.vocabulary, spec_.width),
            .scale = spec_.embedding_scale,
            .norm = weights.norm(spec_.embedding_norm, "", spec_.width)};

  std::vector<std::int32_t> layers_in_group(kv_groups_.size(), 0);
  for (std::size_t i = 0; i < spec_.layers.size(); ++i) {
    const LayerSpec& layer = spec_.layers[i];
    BlockContext context{.weights = weights,
                         .backend = backend,
                         .shared = shared,
                         .layer = static_cast<std::int32_t>(i),
                         .width = spec_.width,
                         .prefix = fmt::format("blk.{}.", i)};
    if (const auto* part = std::get_if<AttentionSpec>(&layer.mixer.part)) {
      const auto group = std::ranges::find_if(kv_groups_, [&](const KvGroup& g) { return same_group(g, *part); });
      context.kv_group = static_cast<std::int32_t>(group - kv_groups_.begin());
      context.kv_layer = layers_in_group[static_cast<std::size_t>(context.kv_group)]++;
    }
    layers_.push_back({.mixer = make_half(layer.mixer, context), .ffn = make_half(layer.ffn, context)});
  }

  const Activation selected = backend.make_activation(spec_.width, RowSet::outputs);
  select_ = {.in = shared.x, .out = selected};
  head_ = {.layer = static_cast<std::int32_t>(spec_.layers.size()),
           .in = selected,
           .norm = weights.norm(spec_.output_norm, "", spec_.width),
           .scale = spec_.logit_scale,
           .soft_cap = spec_.logit_soft_cap};
  if (spec_.has_head) {
    const bool tied = !weights.has("output.weight");
    head_.weight =
        weights.matrix(tied ? "token_embd.weight" : "output.weight",
                       tied ? WeightRole::embedding : WeightRole::column_parallel, spec_.vocabulary, spec_.width);
    head_.bias = weights.optional_vector("output.bias", spec_.vocabulary);
  }
  pool_ = {.in = shared.x, .pooling = spec_.pooling};
  unused_tensors_ = weights.unused();
}

void Model::forward(Backend& backend, const StepShape& shape) const {
  backend.embed(embed_);
  for (const Layer& layer : layers_) {
    if (layer.mixer) layer.mixer->apply(backend);
    if (layer.ffn) layer.ffn->apply(backend);
  }
  if (shape.outputs() == 0) return;
  if (spec_.pooling != Pooling::none) {
    backend.pool(pool_);
    return;
  }
  backend.select_rows(select_);
  for (std::int32_t slice = 0; slice * kLogitRows < shape.outputs(); ++slice) {
    HeadOp head = head_;
    head.slice = slice;
    backend.head(head);
    if (spec_.has_head) backend.sample({.slice = slice, .vocabulary = spec_.vocabulary});
  }
}

std::uint64_t parameter_count(const GgufFile& file) {
  std::uint64_t count = 0;
  for (const GgufTensor& tensor : file.tensors()) count += tensor.elements();
  return count;
}

}  // namespace quarrel
