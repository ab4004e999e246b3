#include "model/architectures.h"

#include <array>
#include <cmath>
#include <string>

#include "base/error.h"
#include "model/hyper.h"
#include "model/spec_readers.h"

namespace quarrel {
namespace {

NormSpec rms(const char* tensor, float epsilon) {
  return {.kind = NormKind::rms, .epsilon = epsilon, .tensor = tensor};
}

AttentionSpec& attention_of(LayerSpec& layer) { return std::get<AttentionSpec>(layer.mixer.function); }

FfnSpec& ffn_of(LayerSpec& layer) {
  auto* ffn = std::get_if<FfnSpec>(&layer.ffn.function);
  if (ffn == nullptr) fail(ErrorKind::unsupported, "experts are not known in this architecture");
  return *ffn;
}

ModelSpec llama(const HyperParameters& hyper, std::int32_t) { return read_decoder(hyper, RopeKind::interleaved); }

ModelSpec qwen2(const HyperParameters& hyper, std::int32_t) { return read_decoder(hyper, RopeKind::half); }

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
  ModelSpec spec = read_decoder(hyper, RopeKind::half);
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

// The four scales of the family, and the switch that takes the rotation away.
void apply_granite_scales(const HyperParameters& hyper, ModelSpec& spec) {
  spec.embedding_scale = static_cast<float>(hyper.number_or("embedding_scale", 1.0));
  const double logit_divisor = hyper.number_or("logit_scale", 1.0);
  if (logit_divisor == 0) fail(ErrorKind::bad_file, "key {}.logit_scale is zero", hyper.architecture());
  spec.logit_scale = static_cast<float>(1.0 / logit_divisor);
  const auto residual = static_cast<float>(hyper.number_or("residual_scale", 1.0));
  const double scale = hyper.number_or("attention.scale", 0.0);
  const bool rotates = hyper.boolean_or("rope.scaling.finetuned", true);
  for (LayerSpec& layer : spec.layers) {
    layer.mixer.residual_scale = residual;
    layer.ffn.residual_scale = residual;
    auto* attention = std::get_if<AttentionSpec>(&layer.mixer.function);
    if (attention == nullptr) continue;
    if (scale != 0) attention->scale = static_cast<float>(scale);
    attention->rope.enabled = rotates;
  }
}

ModelSpec granite(const HyperParameters& hyper, std::int32_t) {
  ModelSpec spec = read_decoder(hyper, RopeKind::interleaved);
  apply_granite_scales(hyper, spec);
  return spec;
}

// A layer without key-value heads is recurrent; every layer has a feed-forward.
ModelSpec granite_hybrid(const HyperParameters& hyper, std::int32_t) {
  ModelSpec spec = read_model(hyper);
  const LayerReader reader = layer_reader(hyper, NormKind::rms, RopeKind::interleaved);
  for (std::int32_t i = 0; i < reader.layers; ++i) {
    LayerSpec layer;
    layer.mixer.before = reader.norm("attn_norm");
    if (hyper.layer_integer("attention.head_count_kv", i, reader.layers, 0, kMaxHeads) == 0) {
      layer.mixer.function = reader.mamba(2);
    } else {
      layer.mixer.function = reader.attention(i);
    }
    layer.ffn.before = reader.norm("ffn_norm");
    layer.ffn.function = reader.ffn_or_experts(i);
    spec.layers.push_back(std::move(layer));
  }
  spec.output_norm = reader.norm("output_norm");
  apply_granite_scales(hyper, spec);
  return spec;
}

void make_plain_relu_squared(LayerSpec& layer) {
  if (auto* ffn = std::get_if<FfnSpec>(&layer.ffn.function)) {
    ffn->gated = false;
    ffn->activation = ActivationKind::relu_squared;
  }
  if (auto* moe = std::get_if<MoeSpec>(&layer.ffn.function)) {
    moe->gated = false;
    moe->activation = ActivationKind::relu_squared;
    moe->gating = Gating::sigmoid;
  }
}

ModelSpec nemotron(const HyperParameters& hyper, std::int32_t) {
  ModelSpec spec = read_decoder(hyper, RopeKind::half, NormKind::layer);
  for (LayerSpec& layer : spec.layers) make_plain_relu_squared(layer);
  return spec;
}

// Each layer is one thing: a feed-forward where it has a length, else attention where it has key-value heads, else
// recurrent. Positions come from the recurrent layers: nothing is rotated.
ModelSpec nemotron_hybrid(const HyperParameters& hyper, std::int32_t) {
  ModelSpec spec = read_model(hyper);
  const LayerReader reader = layer_reader(hyper, NormKind::rms, RopeKind::half);
  for (std::int32_t i = 0; i < reader.layers; ++i) {
    LayerSpec layer;
    if (hyper.layer_integer("feed_forward_length", i, reader.layers, 0, kMaxWidth) > 0) {
      layer.ffn.before = reader.norm("attn_norm");
      layer.ffn.function = reader.ffn_or_experts(i);
      make_plain_relu_squared(layer);
    } else if (hyper.layer_integer("attention.head_count_kv", i, reader.layers, 0, kMaxHeads) > 0) {
      layer.mixer.before = reader.norm("attn_norm");
      AttentionSpec attention = reader.attention(i);
      attention.rope.enabled = false;
      layer.mixer.function = attention;
    } else {
      layer.mixer.before = reader.norm("attn_norm");
      layer.mixer.function = reader.mamba(2);
    }
    spec.layers.push_back(std::move(layer));
  }
  spec.output_norm = reader.norm("output_norm");
  return spec;
}

// Sinks, a window on every other layer, YaRN and a clamped gate. Two converters wrote such files: tensors of one go by
// other names than the other's, and only one of them says that the rotation is scaled by YaRN.
ModelSpec gpt_oss(const HyperParameters& hyper, std::int32_t) {
  ModelSpec spec = read_decoder(hyper, RopeKind::half);
  const std::int32_t window = hyper.integer_or("attention.sliding_window", 0, 0, kMaxContext);
  const std::string ffn_norm = present_tensor(hyper, {"post_attention_norm", "ffn_norm"});
  constexpr float kClamp = 7.0f;
  constexpr float kAlpha = 1.702f;
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    LayerSpec& layer = spec.layers[i];
    layer.ffn.before.tensor = ffn_norm;
    AttentionSpec& attention = attention_of(layer);
    attention.sinks = true;
    if (i % 2 == 0) attention.window = window;
    if (attention.rope.factor != 1.0) attention.rope.scaling = RopeScaling::yarn;
    auto* moe = std::get_if<MoeSpec>(&layer.ffn.function);
    if (moe == nullptr) fail(ErrorKind::bad_file, "key {}.expert_count is missing or 0", hyper.architecture());
    moe->activation = ActivationKind::swiglu_clamped;
    moe->clamp = kClamp;
    moe->alpha = kAlpha;
  }
  return spec;
}

ModelSpec recurrent(const HyperParameters& hyper, std::int32_t version) {
  ModelSpec spec = read_model(hyper);
  const LayerReader reader = layer_reader(hyper, NormKind::rms, RopeKind::interleaved);
  for (std::int32_t i = 0; i < reader.layers; ++i) {
    LayerSpec layer;
    layer.mixer.before = reader.norm("attn_norm");
    layer.mixer.function = reader.mamba(version);
    spec.layers.push_back(std::move(layer));
  }
  spec.output_norm = reader.norm("output_norm");
  return spec;
}

ModelSpec mamba(const HyperParameters& hyper, std::int32_t) { return recurrent(hyper, 1); }
ModelSpec mamba2(const HyperParameters& hyper, std::int32_t) { return recurrent(hyper, 2); }

// Post-norm, every row sees every other, no logits.
ModelSpec encoder(const HyperParameters& hyper) {
  ModelSpec spec = read_model(hyper);
  const LayerReader reader = layer_reader(hyper, NormKind::layer, RopeKind::half);
  const bool causal = hyper.boolean_or("attention.causal", false);
  for (std::int32_t i = 0; i < reader.layers; ++i) {
    LayerSpec layer;
    AttentionSpec attention = reader.attention(i);
    attention.causal = causal;
    layer.mixer.function = attention;
    layer.mixer.after = reader.norm("attn_output_norm");
    layer.ffn.function = reader.ffn(i);
    layer.ffn.after = reader.norm("layer_output_norm");
    spec.layers.push_back(std::move(layer));
  }
  spec.embedding_norm = reader.norm("token_embd_norm");
  spec.token_types = hyper.file().find_tensor("token_types.weight") != nullptr;
  spec.has_head = false;
  spec.pooling = read_pooling(hyper);
  return spec;
}

ModelSpec bert(const HyperParameters& hyper, std::int32_t) {
  ModelSpec spec = encoder(hyper);
  spec.position_table = true;
  for (LayerSpec& layer : spec.layers) {
    attention_of(layer).rope.enabled = false;
    ffn_of(layer).gated = false;
    ffn_of(layer).activation = ActivationKind::gelu_erf;
  }
  return spec;
}

ModelSpec nomic_bert(const HyperParameters& hyper, std::int32_t) { return encoder(hyper); }

struct Row {
  std::string_view name;
  ModelSpec (*read)(const HyperParameters&, std::int32_t context);
};

constexpr std::array kArchitectures = {
    Row{"bert", bert},
    Row{"gemma3", gemma3},
    Row{"gpt-oss", gpt_oss},
    Row{"gptoss", gpt_oss},
    Row{"granite", granite},
    Row{"granitehybrid", granite_hybrid},
    Row{"granitemoe", granite},
    Row{"llama", llama},
    Row{"mamba", mamba},
    Row{"mamba2", mamba2},
    Row{"nemotron", nemotron},
    Row{"nemotron_h", nemotron_hybrid},
    Row{"nemotron_h_moe", nemotron_hybrid},
    Row{"nomic-bert", nomic_bert},
    Row{"phi3", phi3},
    Row{"qwen2", qwen2},
    Row{"qwen3", qwen3},
    Row{"qwen3moe", qwen3},
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
