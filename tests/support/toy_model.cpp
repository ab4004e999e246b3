#include "support/toy_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "gguf/writer.h"
#include "quant/encode.h"
#include "support/golden.h"
#include "support/toy_recipes.h"
#include "support/toy_weights.h"

namespace quarrel::test {
namespace {

// The entries of one model, their keys under its architecture's name.
class EntryPutter {
 public:
  EntryPutter(GgufWriter& writer, std::string_view architecture) : writer_(writer), architecture_(architecture) {}

  void integer(std::string_view key, std::uint32_t value) { writer_.put_u32(full(key), value); }
  void number(std::string_view key, double value) { writer_.put_f32(full(key), static_cast<float>(value)); }
  void boolean(std::string_view key, bool value) { writer_.put_bool(full(key), value); }
  void text(std::string_view key, std::string_view value) { writer_.put_string(full(key), value); }
  void integers(std::string_view key, std::span<const std::int32_t> values) { writer_.put_i32s(full(key), values); }

 private:
  std::string full(std::string_view key) const { return fmt::format("{}.{}", architecture_, key); }

  GgufWriter& writer_;
  std::string_view architecture_;
};

void put_attention_entries(EntryPutter& put, const ToyRecipe& recipe) {
  if (recipe.mamba_only()) {
    put.integer("feed_forward_length", 0);
    put.integer("attention.head_count", 0);
    return;
  }
  std::vector<std::int32_t> kv_heads;
  std::vector<std::int32_t> feed_forward;
  for (std::uint32_t layer = 0; layer < recipe.layers; ++layer) {
    kv_heads.push_back(recipe.is_attention(layer) ? static_cast<std::int32_t>(recipe.kv_heads) : 0);
    feed_forward.push_back(recipe.is_feed_forward(layer) ? static_cast<std::int32_t>(recipe.feed_forward) : 0);
  }
  put.integer("attention.head_count", recipe.heads);
  put.integer("attention.key_length", recipe.head);
  put.integer("attention.value_length", recipe.head);
  put.integer("rope.dimension_count", recipe.rotary);
  put.number("rope.freq_base", recipe.rope_base);
  if (recipe.pattern.empty()) {
    put.integer("attention.head_count_kv", recipe.kv_heads);
  } else {
    put.integers("attention.head_count_kv", kv_heads);
  }
  if (recipe.one_part_a_layer()) {
    put.integers("feed_forward_length", feed_forward);
  } else {
    put.integer("feed_forward_length", recipe.feed_forward);
  }
}

void put_expert_entries(EntryPutter& put, const ToyRecipe& recipe) {
  if (recipe.experts == 0) return;
  const std::string_view architecture = recipe.architecture;
  put.integer("expert_count", recipe.experts);
  put.integer("expert_used_count", recipe.experts_used);
  if (architecture == "nemotron_h_moe" || architecture == "gpt-oss" || architecture == "qwen3moe") {
    put.integer("expert_feed_forward_length", recipe.feed_forward);
  }
  if (recipe.shared_feed_forward != 0) put.integer("expert_shared_feed_forward_length", recipe.shared_feed_forward);
  if (recipe.expert_weights_scale != 0) {
    put.integer("expert_shared_count", 1);
    put.number("expert_weights_scale", recipe.expert_weights_scale);
    put.boolean("expert_weights_norm", true);
  }
}

void put_ssm_entries(EntryPutter& put, const ToySsm& ssm) {
  put.integer("ssm.conv_kernel", ssm.conv);
  put.integer("ssm.inner_size", ssm.inner);
  put.integer("ssm.state_size", ssm.state);
  put.integer("ssm.time_step_rank", ssm.heads != 0 ? ssm.heads : ssm.rank);
  if (ssm.groups != 0) put.integer("ssm.group_count", ssm.groups);
}

bool contains(std::string_view name, std::string_view part) { return name.find(part) != std::string_view::npos; }

// Small tensors and those that files keep exact: never of the type asked for.
bool stays_f32(std::string_view name, const std::vector<std::uint64_t>& shape) {
  const bool ssm_parameter = contains(name, "ssm_") && !contains(name, "ssm_in") && !contains(name, "ssm_out");
  return shape.size() == 1 || contains(name, "norm") || ssm_parameter || contains(name, "gate_inp") ||
         name.ends_with(".bias") || name.starts_with("token_types");
}

// The tensors of one model, in the order that files have them.
class TensorAdder {
 public:
  TensorAdder(GgufWriter& writer, const ToyRecipe& recipe, std::uint64_t seed, QuantType type)
      : writer_(writer), recipe_(recipe), seed_(seed), type_(type) {
    // Where an architecture scales its embeddings up they start smaller, so that the blocks still matter.
    if (recipe.scales) {
      gain_ = 1 / recipe.scales->embedding;
    } else if (recipe.tied) {
      gain_ = std::pow(static_cast<double>(recipe.embedding), -0.5);
    }
  }

  void add_all() {
    outer();
    for (std::uint32_t layer = 0; layer < recipe_.layers; ++layer) {
      prefix_ = fmt::format("blk.{}.", layer);
      if (!recipe_.encoder) norm("attn_norm");
      if (recipe_.ssm && recipe_.is_ssm(layer)) {
        recipe_.architecture == "mamba" ? mamba(*recipe_.ssm) : mamba2(*recipe_.ssm);
      } else if (recipe_.is_attention(layer)) {
        attention();
      }
      if (recipe_.post_norms) norm("post_attention_norm");
      if (recipe_.is_feed_forward(layer)) feed_forward();
    }
  }

 private:
  void tensor(std::string_view name, std::vector<std::uint64_t> shape) {
    const std::string full = prefix_ + std::string(name);
    const bool plain = stays_f32(full, shape) || shape[0] % type_info(type_).block_weights != 0;
    const QuantType type = plain ? QuantType::f32 : type_;
    const auto fill = [seed = seed_, gain = gain_, full, shape, type](std::span<std::byte> bytes) {
      const std::vector<float> values = toy_weights(seed, full, shape, gain);
      encode_row(type, values.data(), bytes.data(), values.size());
    };
    writer_.add_tensor(full, type, std::move(shape), fill);
  }

  void norm(const std::string& name) {
    tensor(name + ".weight", {recipe_.embedding});
    if (recipe_.norm == ToyNorm::layer) tensor(name + ".bias", {recipe_.embedding});
  }

  void linear(const std::string& name, std::uint64_t in, std::uint64_t out, bool bias = false) {
    tensor(name + ".weight", {in, out});
    if (bias) tensor(name + ".bias", {out});
  }

  void outer() {
    tensor("token_embd.weight", {recipe_.embedding, recipe_.vocabulary});
    if (recipe_.encoder) {
      tensor("token_types.weight", {recipe_.embedding, 2});
      norm("token_embd_norm");
      if (recipe_.architecture == "bert") tensor("position_embd.weight", {recipe_.embedding, recipe_.context});
    } else {
      norm("output_norm");
      if (!recipe_.tied) tensor("output.weight", {recipe_.embedding, recipe_.vocabulary});
    }
    if (recipe_.rope_freqs) tensor("rope_freqs.weight", {recipe_.rotary / 2});
  }

  void mamba(const ToySsm& ssm) {
    const std::uint64_t inner = ssm.inner;
    linear("ssm_in", recipe_.embedding, 2 * inner);
    tensor("ssm_conv1d.weight", {ssm.conv, inner});
    tensor("ssm_conv1d.bias", {inner});
    tensor("ssm_x.weight", {inner, ssm.rank + 2 * ssm.state});
    tensor("ssm_dt.weight", {ssm.rank, inner});
    tensor("ssm_dt.bias", {inner});
    tensor("ssm_a", {ssm.state, inner});
    tensor("ssm_d", {inner});
    linear("ssm_out", inner, recipe_.embedding);
  }

  void mamba2(const ToySsm& ssm) {
    const std::uint64_t convolved = ssm.inner + 2 * ssm.groups * ssm.state;
    linear("ssm_in", recipe_.embedding, ssm.inner + convolved + ssm.heads);
    tensor("ssm_conv1d.weight", {ssm.conv, convolved});
    tensor("ssm_conv1d.bias", {convolved});
    tensor("ssm_dt.bias", {ssm.heads});
    tensor("ssm_a", {1, ssm.heads});
    tensor("ssm_d", {1, ssm.heads});
    tensor("ssm_norm.weight", {ssm.inner / ssm.groups, ssm.groups});
    linear("ssm_out", ssm.inner, recipe_.embedding);
  }

  void attention() {
    const std::uint64_t q = recipe_.heads * recipe_.head;
    const std::uint64_t kv = recipe_.kv_heads * recipe_.head;
    if (recipe_.fused || recipe_.architecture == "nomic-bert") {
      linear("attn_qkv", recipe_.embedding, q + 2 * kv);
    } else {
      const bool bias = recipe_.bias != ToyBias::none;
      linear("attn_q", recipe_.embedding, q, bias);
      linear("attn_k", recipe_.embedding, kv, bias);
      linear("attn_v", recipe_.embedding, kv, bias);
    }
    linear("attn_output", q, recipe_.embedding, recipe_.bias == ToyBias::all);
    if (recipe_.qk_norm) {
      tensor("attn_q_norm.weight", {recipe_.head});
      tensor("attn_k_norm.weight", {recipe_.head});
    }
    if (recipe_.architecture == "gpt-oss") tensor("attn_sinks.weight", {recipe_.heads});
  }

  void feed_forward() {
    if (recipe_.encoder) {
      norm("attn_output_norm");
    } else if (recipe_.architecture == "gpt-oss") {
      norm("post_attention_norm");
    } else if (!recipe_.one_part_a_layer()) {
      norm("ffn_norm");
    }
    const std::uint64_t inner = recipe_.feed_forward;
    if (recipe_.experts != 0) {
      experts();
    } else if (recipe_.fused) {
      linear("ffn_up", recipe_.embedding, 2 * inner);
      linear("ffn_down", inner, recipe_.embedding);
    } else {
      const bool bias = recipe_.bias == ToyBias::all;
      if (recipe_.gated()) linear("ffn_gate", recipe_.embedding, inner);
      linear("ffn_up", recipe_.embedding, inner, bias);
      linear("ffn_down", inner, recipe_.embedding, bias);
    }
    if (recipe_.post_norms) norm("post_ffw_norm");
    if (recipe_.encoder) norm("layer_output_norm");
  }

  void experts() {
    const std::uint64_t width = recipe_.embedding;
    const std::uint64_t inner = recipe_.feed_forward;
    const std::uint64_t count = recipe_.experts;
    tensor("ffn_gate_inp.weight", {width, count});
    if (recipe_.gated()) tensor("ffn_gate_exps.weight", {width, inner, count});
    tensor("ffn_up_exps.weight", {width, inner, count});
    tensor("ffn_down_exps.weight", {inner, width, count});
    if (recipe_.architecture == "nemotron_h_moe") tensor("exp_probs_b.bias", {count});
    if (recipe_.architecture == "gpt-oss") {
      tensor("ffn_gate_inp.bias", {count});
      tensor("ffn_gate_exps.bias", {inner, count});
      tensor("ffn_up_exps.bias", {inner, count});
      tensor("ffn_down_exps.bias", {width, count});
    }
    if (recipe_.shared_feed_forward != 0) {
      if (recipe_.gated()) linear("ffn_gate_shexp", width, recipe_.shared_feed_forward);
      linear("ffn_up_shexp", width, recipe_.shared_feed_forward);
      linear("ffn_down_shexp", recipe_.shared_feed_forward, width);
    }
  }

  GgufWriter& writer_;
  const ToyRecipe& recipe_;
  std::uint64_t seed_;
  QuantType type_;
  double gain_ = 1;
  std::string prefix_;  // of the layer at hand
};

// The writer leaves an alignment of 32 unsaid, but the files that the golden data was made with say it: it is put under
// a key of the same length, which finished_toy turns into the real one.
constexpr std::string_view kAlignmentKey = "general.alignment";
constexpr std::string_view kAlignmentStandIn = "general.ALIGNMENT";
static_assert(kAlignmentKey.size() == kAlignmentStandIn.size());

GgufWriter toy_writer(std::string_view name, const ToyOptions& options) {
  const ToyRecipe recipe = toy_recipe(name, options);
  GgufWriter writer;
  put_toy_entries(writer, recipe);
  writer.put_string("tokenizer.ggml.model", "no_vocab");
  add_toy_tensors(writer, recipe, options.seed, options.type);
  return writer;
}

}  // namespace

void put_toy_entries(GgufWriter& writer, const ToyRecipe& recipe) {
  writer.put_string("general.architecture", recipe.architecture);
  writer.put_string("general.name", fmt::format("toy {}", recipe.name));
  writer.put_u32(kAlignmentStandIn, 32);
  EntryPutter put(writer, recipe.architecture);
  put.integer("context_length", recipe.context);
  put.integer("embedding_length", recipe.embedding);
  put.integer("block_count", recipe.layers);
  put.integer("vocab_size", recipe.vocabulary);
  put_attention_entries(put, recipe);
  put.number(recipe.norm == ToyNorm::layer ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
             recipe.epsilon);
  if (recipe.one_part_a_layer()) put.number("attention.layer_norm_epsilon", recipe.epsilon);
  if (recipe.scales) {
    put.number("logit_scale", recipe.scales->logit);
    put.number("residual_scale", recipe.scales->residual);
    put.number("embedding_scale", recipe.scales->embedding);
    put.number("attention.scale", recipe.scales->attention);
  }
  put_expert_entries(put, recipe);
  if (recipe.ssm) put_ssm_entries(put, *recipe.ssm);
  if (recipe.architecture == "granitehybrid") put.boolean("rope.scaling.finetuned", false);
  if (recipe.window != 0) put.integer("attention.sliding_window", recipe.window);
  if (recipe.yarn) {
    put.text("rope.scaling.type", "yarn");
    put.number("rope.scaling.factor", recipe.yarn->factor);
    put.integer("rope.scaling.original_context_length", recipe.yarn->context);
  }
  if (recipe.encoder) {
    put.integer("pooling_type", recipe.ranks ? 4 : 1);
    put.boolean("attention.causal", false);
    writer.put_u32("tokenizer.ggml.token_type_count", 2);
  }
}

void add_toy_tensors(GgufWriter& writer, const ToyRecipe& recipe, std::uint64_t seed, QuantType type) {
  TensorAdder(writer, recipe, seed, type).add_all();
}

std::vector<std::byte> finished_toy(const GgufWriter& writer) {
  std::vector<std::byte> bytes = writer.to_bytes();
  const auto place = std::ranges::search(bytes, std::as_bytes(std::span(kAlignmentStandIn)));
  std::ranges::copy(std::as_bytes(std::span(kAlignmentKey)), place.begin());
  return bytes;
}

std::vector<std::byte> make_toy(std::string_view name, const ToyOptions& options) {
  return finished_toy(toy_writer(name, options));
}

std::filesystem::path write_toy(std::string_view name, const std::filesystem::path& folder, const ToyOptions& options) {
  std::filesystem::path path = folder / fmt::format("{}.gguf", name);
  save_bytes(path, make_toy(name, options));
  return path;
}

}  // namespace quarrel::test
