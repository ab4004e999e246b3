// Everything that distinguishes one model from another, as values. A GGUF file becomes a ModelSpec through the table in
// architectures.cpp; blocks read the spec and know no architecture by name. No weights here, no methods beyond sums.
//
// A layer is two sublayers, and each computes
//     x = after(x + residual_scale * branch(function(before(x))))
// where any norm may be missing and the function may be nothing, attention, Mamba, a feed-forward or experts. Pre-norm
// models set `before`; Gemma also sets `branch`; BERT sets only `after`; Granite sets the scale.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "backend/backend.h"

namespace quarrel {

struct NormSpec {
  NormKind kind = NormKind::none;
  float epsilon = 0.0f;
  std::string tensor = {};  // "attn_norm": `.weight`, and `.bias` where there is one, are added by the loader; "": no
                            // weight, the norm only divides
};

enum class RopeScaling : std::uint8_t { none, linear, yarn };

struct RopeSpec {
  bool enabled = false;
  RopeKind kind = RopeKind::interleaved;
  std::int32_t dimensions = 0;  // how many of a head's are rotated
  double base = 10000.0;
  RopeScaling scaling = RopeScaling::none;
  double factor = 1.0;
  std::int32_t original_context = 0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  double attention_factor = 1.0;    // on top of what YaRN prescribes
  std::string factors_tensor = {};  // frequency divisors, one a pair: "rope_freqs.weight"; empty: none
};

struct AttentionSpec {
  std::int32_t heads = 0;
  std::int32_t kv_heads = 0;
  std::int32_t key_dim = 0;
  std::int32_t value_dim = 0;
  float scale = 1.0f;
  float soft_cap = 0.0f;
  std::int32_t window = 0;  // 0: sees everything before it
  bool causal = true;
  bool sinks = false;
  NormSpec q_norm = {}, k_norm = {};  // by head
  RopeSpec rope = {};
};

struct FfnSpec {
  std::int32_t length = 0;
  ActivationKind activation = ActivationKind::silu;
  bool gated = true;
};

struct MoeSpec {
  std::int32_t experts = 0;
  std::int32_t used = 0;
  std::int32_t length = 0;
  std::int32_t shared_length = 0;
  Gating gating = Gating::softmax;
  bool normalise = true;
  float weight_scale = 1.0f;
  ActivationKind activation = ActivationKind::silu;
  bool gated = true;
  float clamp = 0.0f;
  float alpha = 0.0f;
};

struct MambaSpec {
  std::int32_t version = 2;
  std::int32_t inner = 0;
  std::int32_t state = 0;
  std::int32_t heads = 0;
  std::int32_t groups = 1;
  std::int32_t conv_width = 0;
  std::int32_t dt_rank = 0;
  NormSpec norm = {};                               // after the gate, by group; files may lack it
  NormSpec dt_norm = {}, b_norm = {}, c_norm = {};  // of version 1's projections
};

// What a sublayer computes.
using SublayerFunction = std::variant<std::monostate, AttentionSpec, MambaSpec, FfnSpec, MoeSpec>;

struct SublayerSpec {
  NormSpec before = {}, branch = {}, after = {};
  float residual_scale = 1.0f;
  SublayerFunction function = {};
};

struct LayerSpec {
  SublayerSpec mixer;
  SublayerSpec ffn;
};

struct ModelSpec {
  std::string architecture = {};  // as the file names it, for people
  std::string name = {};
  std::int32_t context_length = 0;  // what it was trained for
  std::int32_t width = 0;
  std::int32_t vocabulary = 0;
  float embedding_scale = 1.0f;
  NormSpec embedding_norm = {};
  bool token_types = false;
  bool position_table = false;
  std::vector<LayerSpec> layers = {};
  NormSpec output_norm = {};
  bool has_head = true;      // false: an encoder without logits
  float logit_scale = 1.0f;  // logits are multiplied by it
  float logit_soft_cap = 0.0f;
  Pooling pooling = Pooling::none;
};

}  // namespace quarrel
