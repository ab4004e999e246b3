// The arguments of the ops. Each op is a coarse piece of a layer, so that a backend may fuse what is inside it; the
// comments say what it computes, `reference` says it in code. Handles are small integers that a backend gave out; an
// invalid one means "there is none". Everything here is plain data and comparable: a recorded call can be replayed.
//
// Shapes: a weight is [out rows][in columns]; an activation is [rows of the step][width].
#pragma once

#include <cstdint>

namespace quarrel {

// A prepared weight. Vectors (norms, biases, sinks) have one row.
struct Weight {
  std::int32_t id = -1;
  std::int32_t rows = 0;
  std::int32_t columns = 0;
  std::int32_t experts = 1;
  bool valid() const noexcept { return id >= 0; }
  bool operator==(const Weight&) const = default;
};

enum class RowSet : std::uint8_t { all, outputs };

// A place for one row of numbers for each row of the step (or for each output). The residual stream is F32; the type of
// the others is the backend's own, and nobody else reads them.
struct Activation {
  std::int32_t id = -1;
  std::int32_t width = 0;
  RowSet rows = RowSet::all;
  bool valid() const noexcept { return id >= 0; }
  bool operator==(const Activation&) const = default;
};

// Angles of a rotary embedding, prepared once: kind, frequency of each pair, magnitude.
struct Rope {
  std::int32_t id = -1;
  bool valid() const noexcept { return id >= 0; }
  bool operator==(const Rope&) const = default;
};

enum class NormKind : std::uint8_t { none, rms, layer };

// y = x / rms(x) * weight, or (x - mean(x)) / deviation(x) * weight + bias.
struct Norm {
  NormKind kind = NormKind::none;
  float epsilon = 0.0f;
  Weight weight = {};
  Weight bias = {};
  bool operator==(const Norm&) const = default;
};

enum class ActivationKind : std::uint8_t {
  none,
  silu,
  gelu_tanh,
  gelu_erf,
  relu_squared,
  swiglu_clamped,  // gate clamped above, up on both sides: gate * sigmoid(alpha * gate) * (up + 1)
};

// How a sublayer ends: x = after(x + scale * branch(value)). Without `x` the value is simply stored.
struct BranchEnd {
  Activation x = {};
  Norm branch = {};
  float scale = 1.0f;
  Norm after = {};
  bool operator==(const BranchEnd&) const = default;
};

// out = table[token] * scale (+ positions[position]) (+ types[0]), then `norm`.
struct EmbedOp {
  Activation out = {};
  Weight table = {};
  Weight positions = {};
  Weight types = {};
  float scale = 1.0f;
  Norm norm = {};
  bool operator==(const EmbedOp&) const = default;
};

// h = before(x); q, k, v = W h + b; q and k normed by head; q and k rotated; k and v stored in the cache in its type.
struct QkvOp {
  std::int32_t layer = 0;
  std::int32_t kv_group = 0;
  std::int32_t kv_layer = 0;  // which of the group's layers
  Activation x = {};
  Norm before = {};
  Weight q = {}, k = {}, v = {};
  Weight q_bias = {}, k_bias = {}, v_bias = {};
  Norm q_norm = {}, k_norm = {};
  Rope rope = {};
  std::int32_t heads = 0;
  std::int32_t kv_heads = 0;
  std::int32_t key_dim = 0;
  std::int32_t value_dim = 0;
  Activation q_out = {};  // [heads * key_dim]
  bool operator==(const QkvOp&) const = default;
};

// out = softmax(scale * q k / …) v over the cached positions that the row may see. Soft cap: cap * tanh(score / cap).
// Window w: position i sees j with i - j < w. Sinks: one more score per head that takes weight and adds nothing.
struct AttendOp {
  std::int32_t layer = 0;
  std::int32_t kv_group = 0;
  std::int32_t kv_layer = 0;
  Activation q = {};    // [heads * key_dim]
  Activation out = {};  // [heads * value_dim]
  std::int32_t heads = 0;
  std::int32_t kv_heads = 0;
  std::int32_t key_dim = 0;
  std::int32_t value_dim = 0;
  float scale = 1.0f;
  float soft_cap = 0.0f;    // 0: none
  std::int32_t window = 0;  // 0: none
  bool causal = true;
  Weight sinks = {};  // [heads]
  bool operator==(const AttendOp&) const = default;
};

// Which kind of sublayer a projection belongs to. It does not affect the results: it is its name in profiles.
enum class SublayerKind : std::uint8_t { other, attention, feed_forward, ssm };

// value = W before(in) + b; then `end`, or into `out` from column `out_at` on when end.x is invalid.
struct LinearOp {
  std::int32_t layer = 0;
  SublayerKind sublayer = SublayerKind::other;
  Activation in = {};
  Norm before = {};
  Weight weight = {};
  Weight bias = {};
  Activation out = {};
  std::int32_t out_at = 0;
  BranchEnd end = {};
  bool operator==(const LinearOp&) const = default;
};

// h = before(x); out = act(gate h + gate_bias) * (up h + up_bias); without a gate: act(up h + up_bias).
struct GluOp {
  std::int32_t layer = 0;
  Activation x = {};
  Norm before = {};
  Weight gate = {}, up = {};
  Weight gate_bias = {}, up_bias = {};
  ActivationKind activation = ActivationKind::silu;
  Activation out = {};
  bool operator==(const GluOp&) const = default;
};

enum class Gating : std::uint8_t { softmax, sigmoid };

// h = before(x); the router scores all experts, the `used` best (with `selection_bias` added for choosing only) get
// their scores as weights (renormalised, scaled); value = Σ weight * expert(h) in routing order + shared(h); then
// `end`.
struct MoeOp {
  std::int32_t layer = 0;
  Activation x = {};
  Norm before = {};
  Weight router = {}, router_bias = {}, selection_bias = {};
  Weight gate = {}, up = {}, down = {};                 // [experts][out][in]
  Weight gate_bias = {}, up_bias = {}, down_bias = {};  // [experts][out]
  Weight shared_gate = {}, shared_up = {}, shared_down = {};
  std::int32_t used = 0;
  Gating gating = Gating::softmax;
  bool normalise = true;
  float weight_scale = 1.0f;
  ActivationKind activation = ActivationKind::silu;
  float clamp = 0.0f;
  float alpha = 0.0f;
  BranchEnd end = {};
  bool operator==(const MoeOp&) const = default;
};

// The stateful middle of a Mamba layer, from the input projection to what the output projection takes: causal
// convolution, SiLU, selective scan, D, gate, grouped norm. Mamba-1 has its own projections to dt, B and C; Mamba-2
// finds them in the input. State lives in slots: the convolution's last inputs and the scan's [heads][dim][state].
struct SsmOp {
  std::int32_t layer = 0;
  std::int32_t state_layer = 0;      // which of the recurrent layers
  std::int32_t version = 2;          // 1 or 2
  Activation in = {};                // [z, x, B, C, dt] for version 2, [x, z] for version 1
  Activation out = {};               // [inner]
  Weight conv = {}, conv_bias = {};  // [channels][width]
  Weight a = {}, d = {}, dt_bias = {};
  Weight x_proj = {}, dt_proj = {};             // version 1
  Norm dt_norm = {}, b_norm = {}, c_norm = {};  // version 1: of what x_proj gives; a norm without weight only divides
  Norm norm = {};                               // over each group, after the gate
  std::int32_t inner = 0;
  std::int32_t state = 0;
  std::int32_t heads = 0;
  std::int32_t groups = 1;
  std::int32_t conv_width = 0;
  std::int32_t dt_rank = 0;
  bool operator==(const SsmOp&) const = default;
};

struct NormOp {
  std::int32_t layer = 0;
  Activation in = {}, out = {};
  Norm norm = {};
  bool operator==(const NormOp&) const = default;
};

// out[o] = in[row of output o]: from here on only rows whose results are wanted are computed.
struct SelectRowsOp {
  Activation in = {};   // of all rows
  Activation out = {};  // of outputs
  bool operator==(const SelectRowsOp&) const = default;
};

// logits = cap(scale * (W norm(in) + b)) for one slice of at most Backend::logit_rows() outputs, into the backend's own
// buffer. The normed row goes to the outputs of kind vector.
struct HeadOp {
  std::int32_t layer = 0;  // the number of layers: where a bad final norm is reported
  std::int32_t slice = 0;
  Activation in = {};
  Norm norm = {};
  Weight weight = {};  // invalid: vectors only
  Weight bias = {};
  float scale = 1.0f;
  float soft_cap = 0.0f;
  bool operator==(const HeadOp&) const = default;
};

// Chooses or scores a token for each output of the slice that the head just computed, and returns the logits that were
// asked for. Each lane records its token once the whole step has been computed.
struct SampleOp {
  std::int32_t slice = 0;
  std::int32_t vocabulary = 0;
  bool operator==(const SampleOp&) const = default;
};

// Each row of a sequence that has a lane is normed and gathered there, as the lane's pooling says: added up (mean), or
// kept if it is the text's first (cls, rank) or its last (last). An output of kind pooled gets what its lane has
// gathered of the whole text. `rank` takes the first row to scores: score tanh(dense row + dense_bias) + score_bias;
// without `dense` the row itself.
struct PoolOp {
  std::int32_t layer = 0;  // where a bad norm is reported
  Activation in = {};
  Norm norm = {};
  Weight dense = {}, dense_bias = {};  // of role vector, like all here
  Weight score = {}, score_bias = {};
  bool operator==(const PoolOp&) const = default;
};

}  // namespace quarrel
