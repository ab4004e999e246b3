// The table of the toy models: each is the base recipe with a few departures.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "gguf/writer.h"
#include "support/toy_model.h"

namespace quarrel::test {

enum class ToyNorm { rms, layer };
enum class ToyActivation { swiglu, geglu, gelu, relu2 };
enum class ToyBias { none, qkv, all };

struct ToyScales {
  double logit, residual, embedding, attention;
};

struct ToyYarn {
  double factor;
  std::uint32_t context;
};

struct ToyRecipe {
  std::string_view name;
  std::string_view architecture;  // as the file says it
  std::uint32_t embedding = 128, layers = 3, feed_forward = 256, heads = 8, kv_heads = 2, head = 16, rotary = 16;
  std::uint32_t vocabulary = 320, context = 512;
  double rope_base = 10000.0, epsilon = 1e-5;
  ToyNorm norm = ToyNorm::rms;
  ToyActivation activation = ToyActivation::swiglu;
  ToyBias bias = ToyBias::none;
  bool qk_norm = false;
  bool post_norms = false;
  bool fused = false;  // one matrix for Q, K and V, one for gate and up
  bool tied = false;   // no output matrix of its own
  bool rope_freqs = false;
  bool encoder = false;  // embeds instead of generating
  bool ranks = false;    // or gives a score
  std::uint32_t experts = 0, experts_used = 0, shared_feed_forward = 0;
  double expert_weights_scale = 0;
  std::uint32_t window = 0;
  std::optional<ToySsm> ssm = {};
  std::string_view pattern = {};  // a letter a layer: M a Mamba, * attention, - a feed-forward, E experts
  std::optional<ToyScales> scales = {};
  std::optional<ToyYarn> yarn = {};

  bool gated() const noexcept { return activation == ToyActivation::swiglu || activation == ToyActivation::geglu; }
  bool mamba_only() const noexcept { return architecture.starts_with("mamba"); }
  // Each layer is one sublayer alone: a Mamba, attention or a feed-forward.
  bool one_part_a_layer() const noexcept { return architecture.starts_with("nemotron_h"); }
  bool is_ssm(std::uint32_t layer) const noexcept { return !pattern.empty() && pattern[layer] == 'M'; }
  bool is_attention(std::uint32_t layer) const noexcept { return pattern.empty() || pattern[layer] == '*'; }
  bool is_feed_forward(std::uint32_t layer) const noexcept {
    return one_part_a_layer() ? pattern[layer] == '-' || pattern[layer] == 'E' : !mamba_only();
  }
};

// The recipe with the departures in it. Throws Error(usage) as make_toy does.
ToyRecipe toy_recipe(std::string_view name, const ToyOptions& options);

// How a recipe is made into a file, in steps, so that a vocabulary can come between: first all other entries, then the
// tensors, then the bytes.
void put_toy_entries(GgufWriter& writer, const ToyRecipe& recipe);
void add_toy_tensors(GgufWriter& writer, const ToyRecipe& recipe, std::uint64_t seed, QuantType type);
std::vector<std::byte> finished_toy(const GgufWriter& writer);

}  // namespace quarrel::test
