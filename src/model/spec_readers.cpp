#include "model/spec_readers.h"

#include <cmath>

#include "base/error.h"

namespace quarrel {
namespace {

std::int32_t read_vocabulary(const HyperParameters& hyper) {
  const GgufTensor* table = hyper.file().find_tensor("token_embd.weight");
  if (table == nullptr) fail(ErrorKind::bad_file, "the file has no tensor token_embd.weight");
  if (table->shape[1] < 1 || table->shape[1] > (1u << 24)) {
    fail(ErrorKind::bad_file, "tensor token_embd.weight has {} rows: that is not a vocabulary", table->shape[1]);
  }
  return static_cast<std::int32_t>(table->shape[1]);
}

void require_divisible(const HyperParameters& hyper, std::int32_t value, std::int32_t by, const char* what) {
  if (by < 1 || value % by != 0) {
    fail(ErrorKind::bad_file, "the {} of {} cannot be shared evenly among {} ({})", what, value, by,
         hyper.architecture());
  }
}

}  // namespace

NormSpec LayerReader::norm(std::string tensor) const {
  return {.kind = norm_kind, .epsilon = epsilon, .tensor = std::move(tensor)};
}

AttentionSpec LayerReader::attention(std::int32_t layer) const {
  AttentionSpec attention;
  attention.heads = hyper.layer_integer("attention.head_count", layer, layers, 1, kMaxHeads);
  attention.kv_heads = hyper.has("attention.head_count_kv")
                           ? hyper.layer_integer("attention.head_count_kv", layer, layers, 1, attention.heads)
                           : attention.heads;
  if (attention.heads % attention.kv_heads != 0) {
    fail(ErrorKind::bad_file, "{} heads cannot share {} key-value heads evenly", attention.heads, attention.kv_heads);
  }
  const bool stated = hyper.has("attention.key_length") && hyper.has("attention.value_length");
  if (!stated && attention.heads > width) {
    fail(ErrorKind::bad_file, "an embedding of {} cannot have {} heads", width, attention.heads);
  }
  attention.key_dim = hyper.integer_or("attention.key_length", width / attention.heads, 1, kMaxWidth);
  attention.value_dim = hyper.integer_or("attention.value_length", width / attention.heads, 1, kMaxWidth);
  attention.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(attention.key_dim)));
  attention.rope = read_rope(hyper, rope_kind, attention.key_dim);
  return attention;
}

FfnSpec LayerReader::ffn(std::int32_t layer) const {
  return {.length = hyper.layer_integer("feed_forward_length", layer, layers, 1, kMaxWidth)};
}

MoeSpec LayerReader::experts(std::int32_t layer) const {
  MoeSpec moe;
  moe.experts = hyper.integer("expert_count", 1, kMaxHeads);
  moe.used = hyper.integer("expert_used_count", 1, moe.experts);
  moe.length = hyper.has("expert_feed_forward_length")
                   ? hyper.integer("expert_feed_forward_length", 1, kMaxWidth)
                   : hyper.layer_integer("feed_forward_length", layer, layers, 1, kMaxWidth);
  const std::int32_t shared = hyper.integer_or("expert_shared_count", 0, 0, 1024);
  moe.shared_length = hyper.integer_or("expert_shared_feed_forward_length", 0, 0, kMaxWidth);
  if (moe.shared_length == 0 && shared > 0) moe.shared_length = shared * moe.length;
  // The numbers that files give the gates.
  constexpr std::int32_t kSoftmax = 1;
  constexpr std::int32_t kSigmoid = 2;
  const std::int32_t gating = hyper.integer_or("expert_gating_func", kSoftmax, 0, 16);
  if (gating > kSigmoid) fail(ErrorKind::unsupported, "expert gating function {} is not known", gating);
  moe.gating = gating == kSigmoid ? Gating::sigmoid : Gating::softmax;
  moe.normalise = hyper.boolean_or("expert_weights_norm", true);
  const double scale = hyper.number_or("expert_weights_scale", 0.0);
  if (scale != 0.0) moe.weight_scale = static_cast<float>(scale);
  return moe;
}

MambaSpec LayerReader::mamba(std::int32_t version) const {
  MambaSpec mamba{.version = version};
  mamba.inner = hyper.integer("ssm.inner_size", 1, kMaxWidth);
  mamba.state = hyper.integer("ssm.state_size", 1, kMaxWidth);
  mamba.conv_width = hyper.integer("ssm.conv_kernel", 1, 1024);
  const std::int32_t rank = hyper.integer("ssm.time_step_rank", 1, kMaxWidth);
  if (std::int64_t{mamba.inner} * mamba.state > (1 << 28)) {
    fail(ErrorKind::bad_file, "a recurrent state of {} x {} values is too large", mamba.inner, mamba.state);
  }
  if (version == 1) {
    mamba.dt_rank = rank;
    if (hyper.boolean_or("ssm.dt_b_c_rms", false)) {
      const NormSpec divide{.kind = NormKind::rms, .epsilon = epsilon};
      mamba.dt_norm = mamba.b_norm = mamba.c_norm = divide;
    }
    return mamba;
  }
  mamba.heads = rank;
  mamba.groups = hyper.integer_or("ssm.group_count", 1, 1, kMaxHeads);
  mamba.norm = {.kind = NormKind::rms, .epsilon = epsilon, .tensor = "ssm_norm"};
  require_divisible(hyper, mamba.inner, mamba.heads, "inner size");
  require_divisible(hyper, mamba.inner, mamba.groups, "inner size");
  require_divisible(hyper, mamba.heads, mamba.groups, "number of heads");
  return mamba;
}

SublayerFunction LayerReader::ffn_or_experts(std::int32_t layer) const {
  if (hyper.integer_or("expert_count", 0, 0, kMaxHeads) > 0) return experts(layer);
  return ffn(layer);
}

LayerReader layer_reader(const HyperParameters& hyper, NormKind norm, RopeKind rope) {
  return {.hyper = hyper,
          .layers = hyper.integer("block_count", 1, kMaxLayers),
          .width = hyper.integer("embedding_length", 1, kMaxWidth),
          .norm_kind = norm,
          .epsilon = static_cast<float>(hyper.number(norm == NormKind::rms ? "attention.layer_norm_rms_epsilon"
                                                                           : "attention.layer_norm_epsilon")),
          .rope_kind = rope};
}

ModelSpec read_model(const HyperParameters& hyper) {
  ModelSpec spec;
  spec.architecture = hyper.architecture();
  spec.name = hyper.file().string("general.name").value_or("");
  spec.context_length = hyper.integer("context_length", 1, kMaxContext);
  spec.width = hyper.integer("embedding_length", 1, kMaxWidth);
  spec.vocabulary = read_vocabulary(hyper);
  return spec;
}

RopeSpec read_rope(const HyperParameters& hyper, RopeKind kind, std::int32_t head_dim) {
  RopeSpec rope{.enabled = true, .kind = kind};
  rope.dimensions = hyper.integer_or("rope.dimension_count", head_dim, 0, kMaxWidth);
  rope.base = hyper.number_or("rope.freq_base", 10000.0);
  if (rope.base <= 0) fail(ErrorKind::bad_file, "key {}.rope.freq_base is not positive", hyper.architecture());
  const auto scaling = hyper.string("rope.scaling.type").value_or("");
  // Old files carry a key of their own instead of naming the scaling.
  if (scaling == "linear" || (scaling.empty() && hyper.has("rope.scale_linear"))) {
    rope.scaling = RopeScaling::linear;
  } else if (scaling == "yarn") {
    rope.scaling = RopeScaling::yarn;
  } else if (!scaling.empty() && scaling != "none" && scaling != "longrope" && scaling != "su") {
    fail(ErrorKind::unsupported, "rope scaling '{}' is not known", scaling);
  }
  rope.factor = hyper.number_or("rope.scaling.factor", hyper.number_or("rope.scale_linear", 1.0));
  if (rope.factor <= 0) {
    if (rope.scaling != RopeScaling::none) {
      fail(ErrorKind::bad_file, "key {}.rope.scaling.factor is not positive", hyper.architecture());
    }
    rope.factor = 1.0;  // some files write 0 where nothing is scaled
  }
  rope.original_context = hyper.integer_or("rope.scaling.original_context_length",
                                           hyper.integer("context_length", 1, kMaxContext), 1, kMaxContext);
  rope.beta_fast = hyper.number_or("rope.scaling.yarn_beta_fast", 32.0);
  rope.beta_slow = hyper.number_or("rope.scaling.yarn_beta_slow", 1.0);
  if (rope.scaling != RopeScaling::none) rope.attention_factor = hyper.number_or("rope.scaling.attn_factor", 1.0);
  if (hyper.file().find_tensor("rope_freqs.weight") != nullptr) rope.factors_tensor = "rope_freqs.weight";
  return rope;
}

Pooling read_pooling(const HyperParameters& hyper) {
  switch (hyper.integer_or("pooling_type", 0, 0, 4)) {
    case 1: return Pooling::mean;
    case 2: return Pooling::cls;
    case 3: return Pooling::last;
    case 4: return Pooling::rank;
    default: return Pooling::none;
  }
}

ModelSpec read_decoder(const HyperParameters& hyper, RopeKind rope, NormKind norm) {
  ModelSpec spec = read_model(hyper);
  const LayerReader reader = layer_reader(hyper, norm, rope);
  for (std::int32_t i = 0; i < reader.layers; ++i) {
    LayerSpec layer;
    layer.mixer.before = reader.norm("attn_norm");
    layer.mixer.function = reader.attention(i);
    layer.ffn.before = reader.norm("ffn_norm");
    layer.ffn.function = reader.ffn_or_experts(i);
    spec.layers.push_back(std::move(layer));
  }
  spec.output_norm = reader.norm("output_norm");
  return spec;
}

std::string present_tensor(const HyperParameters& hyper, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    if (hyper.file().find_tensor(fmt::format("blk.0.{}.weight", name)) != nullptr) return std::string(name);
  }
  return std::string(*names.begin());
}

}  // namespace quarrel
