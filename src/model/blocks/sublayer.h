// A sublayer: a function with its norms and residual. A block is built once from the spec and the weights, and then
// only issues ops whose arguments never change.
#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"
#include "model/spec.h"
#include "model/weights.h"

namespace quarrel {

class Sublayer {
 public:
  virtual ~Sublayer() = default;
  virtual void apply(Backend& backend) const = 0;
};

// Activations that all layers share, each made once at the largest width any layer needs.
struct SharedActivations {
  Activation x;          // [width], the residual stream
  Activation q;          // [heads * key_dim]
  Activation attention;  // [heads * value_dim]
  Activation hidden;     // [feed-forward length]
  Activation ssm_in;     // [z, x, B, C, dt] of a recurrent layer
  Activation ssm_out;    // [inner]
};

// What a block needs to know of its place.
struct BlockContext {
  WeightBinder& weights;
  Backend& backend;
  SharedActivations shared;
  std::int32_t layer = 0;
  std::int32_t width = 0;
  std::string prefix;          // "blk.3."
  std::int32_t kv_group = -1;  // of an attention layer
  std::int32_t kv_layer = -1;
  std::int32_t state_layer = -1;  // of a recurrent layer
};

// Null when the sublayer computes nothing.
std::unique_ptr<Sublayer> make_sublayer(const SublayerSpec& spec, BlockContext& context);

// The end of a sublayer as op arguments.
BranchEnd branch_end(const SublayerSpec& spec, BlockContext& context);

// One builder a function, each in its own file.
std::unique_ptr<Sublayer> make_attention(const SublayerSpec& sublayer, const AttentionSpec& spec,
                                         BlockContext& context);
std::unique_ptr<Sublayer> make_mamba(const SublayerSpec& sublayer, const MambaSpec& spec, BlockContext& context);
std::unique_ptr<Sublayer> make_ffn(const SublayerSpec& sublayer, const FfnSpec& spec, BlockContext& context);
std::unique_ptr<Sublayer> make_moe(const SublayerSpec& sublayer, const MoeSpec& spec, BlockContext& context);

// Values of one row of a recurrent layer's input projection, and of those that its convolution runs over.
std::int64_t mamba_input_width(const MambaSpec& spec);
std::int64_t mamba_channels(const MambaSpec& spec);

}  // namespace quarrel
