#include "model/architectures.h"

#include <array>
#include <cmath>
#include <string>

#include "base/error.h"
#include "model/hyper.h"

namespace quarrel {
namespace {

constexpr std::int32_t kMaxLayers = 4096;
constexpr std::int32_t kMaxWidth = 1 << 20;
constexpr std::int32_t kMaxHeads = 1 << 16;
constexpr std::int32_t kMaxContext = 1 << 30;

NormSpec rms(const char* tensor, float epsilon) {
  return {.kind = NormKind::rms, .epsilon = epsilon, .tensor = tensor};
}

AttentionSpec& attention_of(LayerSpec& layer) { return std::get<AttentionSpec>(layer.mixer.part); }
FfnSpec& ffn_of(LayerSpec& layer) { return std::get<FfnSpec>(layer.ffn.part); }

std::int32_t read_vocabulary(const HyperParameters& hyper) {
  const GgufTensor* table = hyper.file().find_tensor("token_embd.weight");
  if (table == nullptr) fail(ErrorKind::bad_file, "the file has no tensor token_embd.weight");
  if (table->shape[1] < 1 || table->shape[1] > (1u << 24)) {
    fail(ErrorKind::bad_file, "tensor token_embd.weight has {} rows, which is no vocabulary", table->shape[1]);
  }
  return static_cast<std::int32_t>(table->shape[1]);
}

RopeSpec read_rope(const HyperParameters& hyper, RopeKind kind, std::int32_t head_dim) {
  RopeSpec rope{.enabled = true, .kind = kind};
  rope.dimensions = hyper.integer_or("rope.dimension_count", head_dim, 2, head_dim);
  if (rope.dimensions % 2 != 0) {
    fail(ErrorKind::bad_file, "key {}.rope.dimension_count is odd", hyper.architecture());
  }
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
  if (rope.scaling != RopeScaling::none) {
    rope.factor = hyper.number_or("rope.scaling.factor", hyper.number_or("rope.scale_linear", 1.0));
    if (rope.factor <= 0) fail(ErrorKind::bad_file, "key {}.rope.scaling.factor is not positive", hyper.architecture());
    rope.original_context = hyper.integer_or("rope.scaling.original_context_length",
                                             hyper.integer("context_length", 1, kMaxContext), 1, kMaxContext);
    rope.attention_factor = hyper.number_or("rope.scaling.attn_factor", 1.0);
    rope.beta_fast = hyper.number_or("rope.scaling.yarn_beta_fast", 32.0);
    rope.beta_slow = hyper.number_or("rope.scaling.yarn_beta_slow", 1.0);
  }
  if (hyper.file().find_tensor("rope_freqs.weight") != nullptr) rope.factors_tensor = "rope_freqs.weight";
  return rope;
}

// The plain pre-norm decoder that every other reader starts from.
ModelSpec dense_decoder(const HyperParameters& hyper, RopeKind rope_kind) {
  ModelSpec spec;
  spec.architecture = hyper.architecture();
  spec.name = hyper.file().string("general.name").value_or("");
  spec.context_length = hyper.integer("context_length", 1, kMaxContext);
  spec.width = hyper.integer("embedding_length", 1, kMaxWidth);
  spec.vocabulary = read_vocabulary(hyper);
  const std::int32_t layers = hyper.integer("block_count", 1, kMaxLayers);
  const auto epsilon = static_cast<float>(hyper.number("attention.layer_norm_rms_epsilon"));
  for (std::int32_t i = 0; i < layers; ++i) {
    AttentionSpec attention;
    attention.heads = hyper.layer_integer("attention.head_count", i, layers, 1, kMaxHeads);
    attention.kv_heads = hyper.has("attention.head_count_kv")
                             ? hyper.layer_integer("attention.head_count_kv", i, layers, 1, attention.heads)
                             : attention.heads;
    if (attention.heads % attention.kv_heads != 0) {
      fail(ErrorKind::bad_file, "{} heads cannot share {} key-value heads evenly", attention.heads, attention.kv_heads);
    }
    if (attention.heads > spec.width) {
      fail(ErrorKind::bad_file, "an embedding of {} cannot have {} heads", spec.width, attention.heads);
    }
    attention.key_dim = hyper.integer_or("attention.key_length", spec.width / attention.heads, 1, kMaxWidth);
    attention.value_dim = hyper.integer_or("attention.value_length", spec.width / attention.heads, 1, kMaxWidth);
    attention.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(attention.key_dim)));
    attention.rope = read_rope(hyper, rope_kind, attention.key_dim);
    LayerSpec layer;
    layer.mixer.before = rms("attn_norm", epsilon);
    layer.mixer.part = attention;
    layer.ffn.before = rms("ffn_norm", epsilon);
    layer.ffn.part = FfnSpec{.length = hyper.layer_integer("feed_forward_length", i, layers, 1, kMaxWidth)};
    spec.layers.push_back(std::move(layer));
  }
  spec.output_norm = rms("output_norm", epsilon);
  return spec;
}

void refuse_experts(const HyperParameters& hyper) {
  if (hyper.integer_or("expert_count", 0, 0, kMaxHeads) > 0) {
    fail(ErrorKind::unsupported, "mixture-of-experts models of architecture {} are not supported yet",
         hyper.architecture());
  }
}

ModelSpec llama(const HyperParameters& hyper, std::int32_t) {
  refuse_experts(hyper);
  return dense_decoder(hyper, RopeKind::interleaved);
}

ModelSpec qwen2(const HyperParameters& hyper, std::int32_t) { return dense_decoder(hyper, RopeKind::half); }

ModelSpec qwen3(const HyperParameters& hyper, std::int32_t context) {
  ModelSpec spec = qwen2(hyper, context);
  for (LayerSpec& layer : spec.layers) {
    const float epsilon = layer.mixer.before.epsilon;
    attention_of(layer).q_norm = rms("attn_q_norm", epsilon);
    attention_of(layer).k_norm = rms("attn_k_norm", epsilon);
  }
  return spec;
}

ModelSpec phi3(const HyperParameters& hyper, std::int32_t context) {
  ModelSpec spec = dense_decoder(hyper, RopeKind::half);
  const std::int32_t window = hyper.integer_or("attention.sliding_window", 0, 0, kMaxContext);
  const std::int32_t original =
      hyper.integer_or("rope.scaling.original_context_length", spec.context_length, 1, kMaxContext);
  const bool has_factors = hyper.file().find_tensor("rope_factors_short.weight") != nullptr;
  for (LayerSpec& layer : spec.layers) {
    AttentionSpec& attention = attention_of(layer);
    attention.window = window;
    if (has_factors) {
      // Two sets of divisors: one up to the length the model was first trained for, one beyond. The context it is
      // loaded with decides, so that a position's rotation never changes in the middle of a conversation.
      attention.rope.factors_tensor = context > original ? "rope_factors_long.weight" : "rope_factors_short.weight";
      attention.rope.attention_factor = hyper.number_or("rope.scaling.attn_factor", 1.0);
    }
  }
  return spec;
}

ModelSpec gemma3(const HyperParameters& hyper, std::int32_t context) {
  ModelSpec spec = qwen3(hyper, context);
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.width));
  spec.logit_soft_cap = static_cast<float>(hyper.number_or("final_logit_softcapping", 0.0));
  const std::int32_t window = hyper.integer_or("attention.sliding_window", 0, 0, kMaxContext);
  const auto global_every =
      static_cast<std::size_t>(hyper.integer_or("attention.sliding_window_pattern", 6, 1, kMaxLayers));
  constexpr double kLocalRopeBase = 10000.0;
  constexpr std::size_t kLayersOf27B = 62;  // the one size that scales scores by width / heads, which no key says
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    LayerSpec& layer = spec.layers[i];
    const float epsilon = layer.mixer.before.epsilon;
    layer.mixer.branch = rms("post_attention_norm", epsilon);
    layer.ffn.branch = rms("post_ffw_norm", epsilon);
    ffn_of(layer).activation = ActivationKind::gelu_tanh;
    AttentionSpec& attention = attention_of(layer);
    attention.soft_cap = static_cast<float>(hyper.number_or("attn_logit_softcapping", 0.0));
    if (spec.layers.size() == kLayersOf27B) {
      attention.scale = 1.0f / std::sqrt(static_cast<float>(spec.width) / static_cast<float>(attention.heads));
    }
    if ((i + 1) % global_every != 0) {
      attention.window = window;
      attention.rope.base = hyper.number_or("rope.freq_base_swa", kLocalRopeBase);
      attention.rope.scaling = RopeScaling::none;
    }
  }
  return spec;
}

ModelSpec granite(const HyperParameters& hyper, std::int32_t) {
  refuse_experts(hyper);
  ModelSpec spec = dense_decoder(hyper, RopeKind::interleaved);
  spec.embedding_scale = static_cast<float>(hyper.number_or("embedding_scale", 1.0));
  const double logit_divisor = hyper.number_or("logit_scale", 1.0);
  if (logit_divisor == 0) fail(ErrorKind::bad_file, "key {}.logit_scale is zero", hyper.architecture());
  spec.logit_scale = static_cast<float>(1.0 / logit_divisor);
  const auto residual = static_cast<float>(hyper.number_or("residual_scale", 1.0));
  for (LayerSpec& layer : spec.layers) {
    layer.mixer.residual_scale = residual;
    layer.ffn.residual_scale = residual;
    const double scale = hyper.number_or("attention.scale", 0.0);
    if (scale != 0) attention_of(layer).scale = static_cast<float>(scale);
  }
  return spec;
}

struct Row {
  std::string_view name;
  ModelSpec (*read)(const HyperParameters&, std::int32_t context);
};

constexpr std::array kArchitectures = {
    Row{"gemma3", gemma3}, Row{"granite", granite}, Row{"llama", llama},
    Row{"phi3", phi3},     Row{"qwen2", qwen2},     Row{"qwen3", qwen3},
};

}  // namespace

std::vector<std::string_view> known_architectures() {
  std::vector<std::string_view> names;
  names.reserve(kArchitectures.size());
  for (const Row& row : kArchitectures) names.push_back(row.name);
  return names;
}

ModelSpec read_spec(const GgufFile& file, std::int32_t context) {
  const HyperParameters hyper(file);
  for (const Row& row : kArchitectures) {
    if (row.name != hyper.architecture()) continue;
    return row.read(hyper, context > 0 ? context : hyper.integer("context_length", 1, kMaxContext));
  }
  fail(ErrorKind::unsupported, "architecture '{}' is not supported; known are {}", hyper.architecture(),
       fmt::join(known_architectures(), ", "));
}

}  // namespace quarrel
