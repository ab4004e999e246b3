#include "convert/hugging_face_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <optional>

#include "base/error.h"
#include "base/printable.h"
#include "convert/json_file.h"

namespace quarrel {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxLayers = 4096;
constexpr std::int64_t kMaxWidth = 1 << 20;
constexpr std::int64_t kMaxHeads = 1 << 16;
constexpr std::int64_t kMaxContext = 1 << 30;

std::uint32_t bounded(const JsonFields& fields, std::string_view name, std::int64_t most) {
  return static_cast<std::uint32_t>(fields.integer(name, 1, most));
}

const ModelFamily& find_family(const JsonFields& fields) {
  const nlohmann::json* classes = fields.find("architectures");
  std::string name;
  if (classes != nullptr && classes->is_array() && !classes->empty() && classes->front().is_string()) {
    name = classes->front().get<std::string>();
  }
  std::string known;
  for (const ModelFamily& family : model_families()) {
    if (family.class_name == name) return family;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", family.class_name);
  }
  if (name.empty()) fail(ErrorKind::bad_file, "{}: architectures does not name the model's class", fields.what());
  fail(ErrorKind::unsupported, "models of class '{}' cannot be converted; those of these classes can: {}",
       printable(name), known);
}

void require(const JsonFields& fields, std::string_view name, std::string_view value, std::string_view fallback) {
  const std::string found = fields.string(name).value_or(std::string(fallback));
  if (found != value) {
    fail(ErrorKind::unsupported, "{}: {} is '{}'; only '{}' is supported", fields.what(), name, printable(found),
         value);
  }
}

// Weights that somebody quantised before lie in tensors of another layout.
void refuse_quantised(const JsonFields& fields) {
  if (const auto quantised = fields.object("quantization_config")) {
    fail(ErrorKind::unsupported, "{}: the weights are quantised already ({}); convert the original ones", fields.what(),
         printable(quantised->string("quant_method").value_or("quantization_config")));
  }
}

// What a family's configuration calls its sizes.
struct SizeNames {
  std::string_view width = "hidden_size";
  std::string_view layers = "num_hidden_layers";
  std::string_view feed_forward = "intermediate_size";
  std::string_view heads = "num_attention_heads";
  std::string_view context = "max_position_embeddings";
};

void read_sizes(const JsonFields& fields, const SizeNames& names, HuggingFaceConfig& config) {
  config.width = bounded(fields, names.width, kMaxWidth);
  config.layers = bounded(fields, names.layers, kMaxLayers);
  config.feed_forward = bounded(fields, names.feed_forward, kMaxWidth);
  config.heads = bounded(fields, names.heads, kMaxHeads);
  config.context = bounded(fields, names.context, kMaxContext);
  config.kv_heads = config.heads;
  if (config.heads > config.width) {
    fail(ErrorKind::bad_file, "{}: a width of {} cannot have {} heads", fields.what(), config.width, config.heads);
  }
  config.head = config.width / config.heads;
}

// Old files have rope_theta and rope_scaling, new ones both in rope_parameters.
void read_rope(const JsonFields& fields, HuggingFaceConfig& config) {
  std::optional<JsonFields> rope = fields.object("rope_parameters");
  if (!rope) rope = fields.object("rope_scaling");
  config.rope_base = fields.number_or("rope_theta", rope ? rope->number_or("rope_theta", 10000.0) : 10000.0);
  if (config.rope_base <= 0) fail(ErrorKind::bad_file, "{}: rope_theta is not positive", fields.what());
  if (fields.number_or("partial_rotary_factor", 1.0) != 1.0) {
    fail(ErrorKind::unsupported, "{}: partial_rotary_factor is not 1, which is not supported", fields.what());
  }
  if (!rope) return;
  const std::string type = rope->string("rope_type").value_or(rope->string("type").value_or("default"));
  if (type == "default") return;
  if (type != "linear" && type != "yarn" && type != "llama3") {
    fail(ErrorKind::unsupported, "{}: rope_type is '{}'; default, linear, yarn and llama3 are supported", rope->what(),
         printable(type));
  }
  const double factor = rope->number("factor");
  const auto original =
      static_cast<std::uint32_t>(rope->integer_or("original_max_position_embeddings", config.context, 1, kMaxContext));
  if (factor < 1) fail(ErrorKind::bad_file, "{}: factor is below 1", rope->what());
  if (type == "llama3") {
    const double low = rope->number("low_freq_factor");
    const double high = rope->number("high_freq_factor");
    if (low <= 0 || high <= low) {
      fail(ErrorKind::bad_file, "{}: high_freq_factor must be above low_freq_factor, and that above 0", rope->what());
    }
    config.rope_divisors = llama3_divisors(config.head, config.rope_base, factor, low, high, original);
    return;
  }
  config.rope_scaling = type;
  config.rope_factor = factor;
  config.rope_original_context = original;
}

void read_decoder(const JsonFields& fields, HuggingFaceConfig& config, Log& log) {
  require(fields, "hidden_act", "silu", "silu");
  config.kv_heads = static_cast<std::uint32_t>(fields.integer_or("num_key_value_heads", config.heads, 1, config.heads));
  config.head = static_cast<std::uint32_t>(fields.integer_or("head_dim", config.head, 1, kMaxWidth));
  if (config.head % 2 != 0) fail(ErrorKind::bad_file, "{}: heads of {} values are odd", fields.what(), config.head);
  config.epsilon = fields.number("rms_norm_eps");
  config.tied = fields.boolean("tie_word_embeddings").value_or(false);
  if (fields.boolean("mlp_bias").value_or(false)) {
    fail(ErrorKind::unsupported, "{}: mlp_bias is not supported", fields.what());
  }
  read_rope(fields, config);
  // Within the window it makes no difference; so that is how far the model may look.
  const std::int64_t window = fields.integer_or("sliding_window", 0, 0, kMaxContext);
  if (window > 0 && window < config.context && fields.boolean("use_sliding_window").value_or(true)) {
    log.warn("the model sees only the last {} positions, which is not kept: its context is cut to them", window);
    config.context = static_cast<std::uint32_t>(window);
  }
}

PoolingNumber read_pooling(const fs::path& folder) {
  const nlohmann::json content = read_json_file_if_any(folder / "1_Pooling" / "config.json");
  const JsonFields fields(content, "1_Pooling/config.json");
  struct Mode {
    std::string_view flag;
    std::string_view word;
    std::optional<PoolingNumber> number;
  };
  constexpr std::array<Mode, 6> kModes = {{
      {"pooling_mode_mean_tokens", "mean", PoolingNumber::mean},
      {"pooling_mode_cls_token", "cls", PoolingNumber::cls},
      {"pooling_mode_lasttoken", "lasttoken", PoolingNumber::last},
      {"pooling_mode_max_tokens", "max", std::nullopt},
      {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", std::nullopt},
      {"pooling_mode_weightedmean_tokens", "weightedmean", std::nullopt},
  }};
  std::vector<const Mode*> chosen;
  for (const Mode& mode : kModes) {
    if (fields.boolean(mode.flag).value_or(false)) chosen.push_back(&mode);
  }
  if (const auto word = fields.string("pooling_mode"); word && chosen.empty()) {
    const auto* found = std::ranges::find(kModes, std::string_view(*word), &Mode::word);
    if (found == kModes.end()) {
      fail(ErrorKind::unsupported, "{}: pooling_mode '{}' is not known", fields.what(), printable(*word));
    }
    chosen.push_back(found);
  }
  if (chosen.empty()) return PoolingNumber::mean;  // what most of these models were trained for
  const std::optional<PoolingNumber> number = chosen.front()->number;
  if (chosen.size() > 1 || !number) {
    fail(ErrorKind::unsupported, "{}: {} is not supported; the mean, the first or the last token are", fields.what(),
         chosen.size() > 1 ? "more than one pooling at once" : chosen.front()->flag);
  }
  return *number;
}

// What both kinds of encoders have.
void read_embedding(const JsonFields& fields, const fs::path& folder, HuggingFaceConfig& config) {
  if (config.width % config.heads != 0) {
    fail(ErrorKind::bad_file, "{}: {} heads cannot share a width of {} evenly", fields.what(), config.heads,
         config.width);
  }
  config.token_types = static_cast<std::uint32_t>(fields.integer_or("type_vocab_size", 2, 1, kMaxHeads));
  config.pooling = read_pooling(folder);
  // What the model was trained to embed is often shorter than its table of positions.
  const nlohmann::json content = read_json_file_if_any(folder / "sentence_bert_config.json");
  const JsonFields sentence(content, "sentence_bert_config.json");
  const std::int64_t longest = sentence.integer_or("max_seq_length", config.context, 1, kMaxContext);
  config.context = static_cast<std::uint32_t>(std::min<std::int64_t>(config.context, longest));
}

void read_encoder(const JsonFields& fields, HuggingFaceConfig& config) {
  require(fields, "hidden_act", "gelu", "gelu");
  require(fields, "position_embedding_type", "absolute", "absolute");
  config.epsilon = fields.number_or("layer_norm_eps", 1e-12);
}

void read_rotary_encoder(const JsonFields& fields, HuggingFaceConfig& config, Log& log) {
  require(fields, "activation_function", "swiglu", "swiglu");
  const bool known = fields.number_or("rotary_emb_fraction", 1.0) == 1.0 && fields.number_or("num_experts", 0) == 0 &&
                     !fields.boolean("rotary_emb_interleaved").value_or(false) &&
                     !fields.boolean("prenorm").value_or(false) && !fields.boolean("use_rms_norm").value_or(false);
  if (!known) {
    fail(ErrorKind::unsupported,
         "{}: a partial or interleaved rotation, experts, a norm before its layer and RMS norms are not supported",
         fields.what());
  }
  config.epsilon = fields.number("layer_norm_epsilon");
  config.rope_base = fields.number_or("rotary_emb_base", 10000.0);
  if (config.rope_base <= 0) fail(ErrorKind::bad_file, "{}: rotary_emb_base is not positive", fields.what());
  // Beyond what it was trained with, a scaling that changes with the text would be needed.
  const std::int64_t trained = fields.integer_or("max_trained_positions", config.context, 1, kMaxContext);
  if (trained < config.context) {
    log.warn("the model was trained with {} positions: its context is cut to them", trained);
    config.context = static_cast<std::uint32_t>(trained);
  }
}

}  // namespace

std::vector<float> llama3_divisors(std::uint32_t head, double base, double factor, double low, double high,
                                   double original_context) {
  std::vector<float> divisors;
  divisors.reserve(head / 2);
  for (std::uint32_t pair = 0; pair < head / 2; ++pair) {
    const double wave = 2.0 * std::numbers::pi * std::pow(base, 2.0 * pair / head);
    // How often the wave turns within that context, from `low` to `high` as 0 to 1.
    const double share = std::clamp((original_context / wave - low) / (high - low), 0.0, 1.0);
    divisors.push_back(static_cast<float>(1.0 / (share + (1.0 - share) / factor)));
  }
  return divisors;
}

HuggingFaceConfig HuggingFaceConfig::read(const fs::path& folder, Log& log) {
  const nlohmann::json content = read_json_file(folder / "config.json");
  const JsonFields fields(content, "config.json");
  HuggingFaceConfig config;
  config.family = &find_family(fields);
  refuse_quantised(fields);
  const SizeNames own{
      .width = "n_embd", .layers = "n_layer", .feed_forward = "n_inner", .heads = "n_head", .context = "n_positions"};
  switch (config.family->kind) {
    case ConfigKind::decoder:
      read_sizes(fields, {}, config);
      read_decoder(fields, config, log);
      break;
    case ConfigKind::encoder:
      read_sizes(fields, {}, config);
      read_encoder(fields, config);
      read_embedding(fields, folder, config);
      break;
    case ConfigKind::rotary_encoder:
      read_sizes(fields, own, config);
      read_rotary_encoder(fields, config, log);
      read_embedding(fields, folder, config);
      break;
  }
  return config;
}

void HuggingFaceConfig::put(GgufWriter& writer) const {
  const auto key = [&](std::string_view name) { return fmt::format("{}.{}", family->architecture, name); };
  writer.put_u32(key("context_length"), context);
  writer.put_u32(key("embedding_length"), width);
  writer.put_u32(key("block_count"), layers);
  writer.put_u32(key("feed_forward_length"), feed_forward);
  writer.put_u32(key("attention.head_count"), heads);
  if (rope_base > 0) {
    writer.put_u32(key("rope.dimension_count"), head);
    writer.put_f32(key("rope.freq_base"), static_cast<float>(rope_base));
  }
  if (family->kind != ConfigKind::decoder) {
    writer.put_f32(key("attention.layer_norm_epsilon"), static_cast<float>(epsilon));
    writer.put_bool(key("attention.causal"), false);
    writer.put_u32(key("pooling_type"), static_cast<std::uint32_t>(pooling));
    writer.put_u32("tokenizer.ggml.token_type_count", token_types);
    return;
  }
  writer.put_u32(key("attention.head_count_kv"), kv_heads);
  writer.put_f32(key("attention.layer_norm_rms_epsilon"), static_cast<float>(epsilon));
  writer.put_u32(key("attention.key_length"), head);
  writer.put_u32(key("attention.value_length"), head);
  if (!rope_scaling.empty()) {
    writer.put_string(key("rope.scaling.type"), rope_scaling);
    writer.put_f32(key("rope.scaling.factor"), static_cast<float>(rope_factor));
    writer.put_u32(key("rope.scaling.original_context_length"), rope_original_context);
  }
}

}  // namespace quarrel
