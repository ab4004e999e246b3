#include "support/toy_recipes.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace quarrel::test {
namespace {

constexpr ToySsm kMamba2;
constexpr ToyScales kGraniteScales{6.0, 0.22, 12.0, 0.0625};

constexpr std::array kRecipes{
    ToyRecipe{.name = "llama", .architecture = "llama"},
    ToyRecipe{.name = "llama3", .architecture = "llama", .rope_base = 500000.0, .tied = true, .rope_freqs = true},
    ToyRecipe{.name = "mixtral", .architecture = "llama", .experts = 8, .experts_used = 2},
    ToyRecipe{.name = "qwen2", .architecture = "qwen2", .bias = ToyBias::qkv},
    ToyRecipe{.name = "qwen3", .architecture = "qwen3", .head = 32, .rotary = 32, .qk_norm = true},
    ToyRecipe{.name = "qwen3moe",
              .architecture = "qwen3moe",
              .feed_forward = 128,
              .qk_norm = true,
              .experts = 8,
              .experts_used = 3},
    ToyRecipe{.name = "phi3", .architecture = "phi3", .kv_heads = 8, .fused = true},
    ToyRecipe{.name = "gemma3",
              .architecture = "gemma3",
              .layers = 7,
              .activation = ToyActivation::geglu,
              .qk_norm = true,
              .post_norms = true,
              .tied = true,
              .window = 6},
    ToyRecipe{.name = "granite", .architecture = "granite", .tied = true, .scales = ToyScales{8.0, 0.22, 12.0, 0.0625}},
    ToyRecipe{.name = "granitemoe",
              .architecture = "granitemoe",
              .feed_forward = 96,
              .experts = 8,
              .experts_used = 3,
              .shared_feed_forward = 64,
              .scales = kGraniteScales},
    ToyRecipe{.name = "granitehybrid",
              .architecture = "granitehybrid",
              .layers = 4,
              .feed_forward = 96,
              .tied = true,
              .experts = 8,
              .experts_used = 3,
              .shared_feed_forward = 64,
              .ssm = kMamba2,
              .pattern = "MM*M",
              .scales = kGraniteScales},
    ToyRecipe{.name = "granitehybrid-dense",
              .architecture = "granitehybrid",
              .layers = 4,
              .tied = true,
              .ssm = kMamba2,
              .pattern = "M*MM",
              .scales = kGraniteScales},
    ToyRecipe{.name = "nemotron",
              .architecture = "nemotron",
              .rotary = 8,
              .norm = ToyNorm::layer,
              .activation = ToyActivation::relu2,
              .bias = ToyBias::all},
    ToyRecipe{.name = "nemotron_h",
              .architecture = "nemotron_h",
              .layers = 5,
              .activation = ToyActivation::relu2,
              .ssm = kMamba2,
              .pattern = "M-*M-"},
    ToyRecipe{.name = "nemotron_h_moe",
              .architecture = "nemotron_h_moe",
              .layers = 5,
              .feed_forward = 96,
              .activation = ToyActivation::relu2,
              .experts = 8,
              .experts_used = 3,
              .shared_feed_forward = 160,
              .expert_weights_scale = 2.5,
              .ssm = kMamba2,
              .pattern = "ME*EM"},
    ToyRecipe{.name = "gpt-oss",
              .architecture = "gpt-oss",
              .layers = 4,
              .feed_forward = 128,
              .rope_base = 150000.0,
              .bias = ToyBias::all,
              .experts = 8,
              .experts_used = 2,
              .window = 6,
              .yarn = ToyYarn{32.0, 64}},
    ToyRecipe{.name = "mamba",
              .architecture = "mamba",
              .ssm = ToySsm{.state = 16, .heads = 0, .groups = 0, .rank = 8},
              .pattern = "MMM"},
    ToyRecipe{.name = "mamba2", .architecture = "mamba2", .ssm = kMamba2, .pattern = "MMM"},
    ToyRecipe{.name = "nomic-bert",
              .architecture = "nomic-bert",
              .kv_heads = 8,
              .rope_base = 1000.0,
              .norm = ToyNorm::layer,
              .encoder = true},
    ToyRecipe{.name = "bert",
              .architecture = "bert",
              .kv_heads = 8,
              .norm = ToyNorm::layer,
              .activation = ToyActivation::gelu,
              .bias = ToyBias::all,
              .encoder = true},
};

constexpr auto kNames = [] {
  std::array<std::string_view, kRecipes.size()> names;
  std::transform(kRecipes.begin(), kRecipes.end(), names.begin(), [](const ToyRecipe& recipe) { return recipe.name; });
  return names;
}();

}  // namespace

std::span<const std::string_view> toy_names() noexcept { return kNames; }

ToyRecipe toy_recipe(std::string_view name, const ToyOptions& options) {
  const auto* found = std::ranges::find(kRecipes, name, &ToyRecipe::name);
  if (found == kRecipes.end()) fail(ErrorKind::usage, "there is no toy model '{}'", name);
  ToyRecipe recipe = *found;
  const auto depart = [](auto& field, const auto& option) {
    if (option) field = *option;
  };
  depart(recipe.embedding, options.embedding);
  depart(recipe.layers, options.layers);
  depart(recipe.feed_forward, options.feed_forward);
  depart(recipe.heads, options.heads);
  depart(recipe.kv_heads, options.kv_heads);
  depart(recipe.head, options.head);
  depart(recipe.rotary, options.rotary);
  depart(recipe.vocabulary, options.vocabulary);
  depart(recipe.context, options.context);
  depart(recipe.ssm, options.ssm);
  depart(recipe.experts, options.experts);
  depart(recipe.experts_used, options.experts_used);
  depart(recipe.window, options.window);
  depart(recipe.rope_base, options.rope_base);
  if (!recipe.pattern.empty() && recipe.layers > recipe.pattern.size()) {
    fail(ErrorKind::usage, "toy model '{}' has a pattern of {} layers; {} were asked for", name, recipe.pattern.size(),
         recipe.layers);
  }
  return recipe;
}

}  // namespace quarrel::test
