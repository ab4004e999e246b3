#include "ops/attention_case.h"

#include <algorithm>

namespace quarrel::test {
namespace {

std::size_t width_of(const AttentionCase& c) { return as_size(c.width); }

}  // namespace

AttentionData::AttentionData(const AttentionCase& c)
    : x(random_matrix(as_size(c.positions), width_of(c), 30)),
      q(random_matrix(as_size(c.heads * c.key_dim), width_of(c), 31, 0.5)),
      k(random_matrix(as_size(c.kv_heads * c.key_dim), width_of(c), 32, c.k_scale)),
      v(random_matrix(as_size(c.kv_heads * c.value_dim), width_of(c), 33, 0.5)),
      before(random_matrix(1, width_of(c), 34, 0.5, 1.0).values),
      q_bias(random_matrix(1, q.rows, 35).values),
      k_bias(random_matrix(1, k.rows, 36).values),
      v_bias(random_matrix(1, v.rows, 37).values),
      q_norm(random_matrix(1, as_size(c.key_dim), 38, 0.5, 1.0).values),
      k_norm(random_matrix(1, as_size(c.key_dim), 39, 0.5, 1.0).values),
      sinks(random_matrix(1, as_size(c.heads), 40, 2.0).values) {}

AttentionBench::AttentionBench(const DeviceUnderTest& device, const AttentionCase& c, const AttentionData& data)
    : fixture(device) {
  qkv = {.layer = 5,
         .kv_layer = 1,
         .x = fixture.input(data.x),
         .before = {.kind = NormKind::rms, .epsilon = 1e-5f, .weight = fixture.vector(data.before)},
         .q = fixture.matrix(data.q),
         .k = fixture.matrix(data.k),
         .v = fixture.matrix(data.v),
         .heads = c.heads,
         .kv_heads = c.kv_heads,
         .key_dim = c.key_dim,
         .value_dim = c.value_dim,
         .q_out = fixture.activation(c.heads * c.key_dim + 8)};
  if (c.biases) {
    qkv.q_bias = fixture.vector(data.q_bias);
    qkv.k_bias = fixture.vector(data.k_bias);
    qkv.v_bias = fixture.vector(data.v_bias);
  }
  if (c.head_norms) {
    qkv.q_norm = {.kind = NormKind::rms, .epsilon = 1e-5f, .weight = fixture.vector(data.q_norm)};
    qkv.k_norm = {.kind = NormKind::rms, .epsilon = 1e-5f, .weight = fixture.vector(data.k_norm)};
  }
  if (c.rope) qkv.rope = fixture.rope(c.kind, c.frequencies, c.magnitude);
  attend = {.layer = 5,
            .kv_layer = 1,
            .q = qkv.q_out,
            .out = fixture.activation(c.heads * c.value_dim + 4),
            .heads = c.heads,
            .kv_heads = c.kv_heads,
            .key_dim = c.key_dim,
            .value_dim = c.value_dim,
            .scale = static_cast<float>(kAttentionScale),
            .soft_cap = static_cast<float>(c.soft_cap),
            .window = c.window,
            .causal = c.causal};
  if (c.sinks) attend.sinks = fixture.vector(data.sinks);
  const std::int32_t blocks = std::max(9, (c.positions + 15) / 16 + 3);
  fixture.cache(
      {.groups =
           {{.layers = 2, .kv_heads = c.kv_heads, .key_dim = c.key_dim, .value_dim = c.value_dim, .window = c.window}},
       .state_layers = {},
       .kv_type = c.kv_type,
       .blocks = {blocks}});
}

Floats AttentionBench::run(const StepPlan& plan) {
  return fixture.run(plan, attend.out, [&](Backend& b) {
    b.qkv(qkv);
    b.attend(attend);
  });
}

void AttentionBench::store(const StepPlan& plan) {
  fixture.run(plan, [&](Backend& b) { b.qkv(qkv); });
}

std::vector<std::int32_t> scattered_blocks(std::int32_t positions) {
  const std::int32_t count = (positions + 15) / 16;
  // Evens first, then odds backwards: no two neighbours in a row.
  std::vector<std::int32_t> blocks;
  blocks.reserve(as_size(count));
  for (std::int32_t i = 0; i < count; i += 2) blocks.push_back(i + 1);
  for (std::int32_t i = count / 2 * 2 - 1; i > 0; i -= 2) blocks.push_back(i + 1);
  return blocks;
}

double attention_tolerance(const AttentionCase& c, const AttentionData& data, double epsilon) {
  // An F16 cache may round a value to its neighbour where the exact one lies in the middle.
  const double cache_error = c.kv_type == KvType::f16 ? 1e-3 : 0.0;
  return (epsilon * 30.0 + cache_error) * largest_row(data.v);
}

}  // namespace quarrel::test
