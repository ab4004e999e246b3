// The two attention ops of the CPU backend: projections with rotation and the way into the cache, and the weighted sum.
#include <atomic>
#include <cmath>
#include <cstring>

#include "backend/cpu/cpu_backend.h"
#include "base/as_size.h"
#include "base/error.h"

namespace quarrel {
// Cosines and sines of every row's position, once a step: all layers with the same rope share them.
const CpuBackend::RopeRows& CpuBackend::rope_rows(const Rope& rope) {
  if (ropes_.size() <= as_size(rope.id)) ropes_.resize(as_size(rope.id) + 1);
  RopeRows& table = ropes_[as_size(rope.id)];
  if (table.step == step_) return table;
  const RopeTable& source = rope_table(rope);
  const std::size_t pairs = source.frequencies.size();
  table.step = step_;
  table.cosines.resize(rows().size() * pairs);
  table.sines.resize(rows().size() * pairs);
  for_rows(shape().rows(), [&](std::int32_t r) {
    for (std::size_t pair = 0; pair < pairs; ++pair) {
      const double angle = rows()[as_size(r)].position * source.frequencies[pair];
      table.cosines[as_size(r) * pairs + pair] = static_cast<float>(std::cos(angle) * source.magnitude);
      table.sines[as_size(r) * pairs + pair] = static_cast<float>(std::sin(angle) * source.magnitude);
    }
  });
  return table;
}

void CpuBackend::rotate(const QkvOp& op, std::int32_t row, float* heads, std::int32_t count,
                        const RopeRows& angles) const {
  const RopeTable& table = rope_table(op.rope);
  const std::size_t pairs = table.frequencies.size();
  const float* cosines = angles.cosines.data() + as_size(row) * pairs;
  const float* sines = angles.sines.data() + as_size(row) * pairs;
  const auto turn = table.kind == RopeKind::half ? kernels_.rotate_half : kernels_.rotate_interleaved;
  for (std::int32_t head = 0; head < count; ++head) {
    turn(heads + as_size(head) * as_size(op.key_dim), cosines, sines, pairs);
  }
}

std::uint64_t CpuBackend::store_cache(const QkvOp& op, std::int32_t row, const float* keys, const float* values) {
  const std::int32_t position = rows()[as_size(row)].position;
  const std::int32_t block = sequence_of(row).tables[as_size(op.kv_group)][as_size(position / kBlockTokens)];
  const std::int32_t slot = position % kBlockTokens;
  std::uint64_t clamped = 0;
  const auto put = [&](const float* from, std::byte* to, std::size_t count) {
    if (kv_type() == KvType::f32) {
      std::memcpy(to, from, count * sizeof(float));
    } else {
      clamped += kernels_.store_half(from, reinterpret_cast<std::uint16_t*>(to), count);
    }
  };
  for (std::int32_t head = 0; head < op.kv_heads; ++head) {
    put(keys + as_size(head * op.key_dim), key_at(op.kv_group, op.kv_layer, block, head, slot), as_size(op.key_dim));
    put(values + as_size(head * op.value_dim), value_at(op.kv_group, op.kv_layer, block, head, slot),
        as_size(op.value_dim));
  }
  return clamped;
}

void CpuBackend::qkv(const QkvOp& op) {
  const std::array weights = {op.q, op.k, op.v};
  const Input input = prepare_input(op.x, 0, row_count(op.x.rows), op.before, op.layer, weights);
  Timer timer(*this, "qkv");
  timer.products(input.rows, {op.q, op.k, op.v});
  float* keys = first_.floats();
  float* values = second_.floats();
  const std::array products = {
      Product{.weight = op.q, .out = data(op.q_out), .stride = as_size(op.q_out.width)},
      Product{.weight = op.k, .out = keys, .stride = as_size(op.k.rows)},
      Product{.weight = op.v, .out = values, .stride = as_size(op.v.rows)},
  };
  multiply(input, products);
  const RopeRows* angles = op.rope.valid() ? &rope_rows(op.rope) : nullptr;
  std::atomic<std::uint64_t> clamped{0};
  for_rows(row_count(op.x.rows), [&](std::int32_t r) {
    float* q = row(op.q_out, r);
    float* k = keys + as_size(r) * as_size(op.k.rows);
    float* v = values + as_size(r) * as_size(op.v.rows);
    if (op.q_bias.valid()) kernels_.add(q, vector(op.q_bias), as_size(op.q.rows));
    if (op.k_bias.valid()) kernels_.add(k, vector(op.k_bias), as_size(op.k.rows));
    if (op.v_bias.valid()) kernels_.add(v, vector(op.v_bias), as_size(op.v.rows));
    const auto norm_heads = [&](const Norm& norm, float* heads, std::int32_t count) {
      if (norm.kind == NormKind::none) return;
      for (std::int32_t head = 0; head < count; ++head) {
        float* values_of_head = heads + as_size(head) * as_size(op.key_dim);
        if (!norm_row(norm, values_of_head, values_of_head, as_size(op.key_dim))) flag_bad_row(op.x.rows, r, op.layer);
      }
    };
    norm_heads(op.q_norm, q, op.heads);
    norm_heads(op.k_norm, k, op.kv_heads);
    if (angles != nullptr) {
      rotate(op, r, q, op.heads, *angles);
      rotate(op, r, k, op.kv_heads, *angles);
    }
    const std::uint64_t lost = store_cache(op, r, k, v);
    if (lost > 0) clamped.fetch_add(lost, std::memory_order_relaxed);
  });
  count_saturated(clamped.load());
}

void CpuBackend::attend(const AttendOp& op) {
  Timer timer(*this, "attend");
  timer.attention(op);
  const std::int32_t group = op.heads / op.kv_heads;
  const auto first_seen = [&](std::int32_t r) {
    return op.window > 0 ? std::max(0, rows()[as_size(r)].position - op.window + 1) : 0;
  };
  for (std::int32_t r = 0; r < row_count(op.q.rows); ++r) {
    // What a window has freed is a table's beginning, so the first block a row sees tells for all of them.
    const std::int32_t first = first_seen(r) / kBlockTokens;
    if (sequence_of(r).tables[as_size(op.kv_group)][as_size(first)] < 0) {
      fail(ErrorKind::internal, "a row at position {} needs a block that was freed", rows()[as_size(r)].position);
    }
  }
  const std::int64_t units = std::int64_t{row_count(op.q.rows)} * op.kv_heads;
  const auto one = [&](std::int64_t unit, int worker) {
    const auto r = static_cast<std::int32_t>(unit / op.kv_heads);
    const auto head = static_cast<std::int32_t>(unit % op.kv_heads);
    const HostSequence& sequence = sequence_of(r);
    const std::int32_t position = rows()[as_size(r)].position;
    const std::int32_t end = op.causal ? position + 1 : sequence.length;
    kernels_.attend({.q = row(op.q, r) + as_size(head * group) * as_size(op.key_dim),
                     .out = row(op.out, r) + as_size(head * group) * as_size(op.value_dim),
                     .group = group,
                     .key_dim = op.key_dim,
                     .value_dim = op.value_dim,
                     .half = kv_type() == KvType::f16,
                     .base = key_at(op.kv_group, op.kv_layer, 0, head, 0),
                     .block_bytes = kv_bytes(cache().groups[as_size(op.kv_group)], kv_type()),
                     .blocks = sequence.tables[as_size(op.kv_group)].data(),
                     .begin = first_seen(r),
                     .end = end,
                     .scale = op.scale,
                     .soft_cap = op.soft_cap,
                     .sinks = op.sinks.valid() ? vector(op.sinks) + as_size(head * group) : nullptr,
                     .scratch = scratch_[static_cast<std::size_t>(worker)].floats()});
  };
  // Later rows of a prompt see more and cost more, so the workers take turns instead of halves.
  device_.pool().run([&](int worker, int workers) {
    for (std::int64_t unit = worker; unit < units; unit += workers) one(unit, worker);
  });
}

}  // namespace quarrel
