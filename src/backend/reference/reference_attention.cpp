// Attention: projections into the cache, and the weighted sums over what it holds. Keys and values are always read back
// from the cache, so that a row sees the same numbers whether they were stored by this step or by one before.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "backend/reference/reference_backend.h"
#include "backend/reference/reference_math.h"
#include "base/as_size.h"
#include "base/error.h"
#include "quant/half.h"

namespace quarrel {
namespace {

constexpr float kLargestHalf = 65504.0f;

// The cached positions [begin, end) that a row may see.
struct Visible {
  std::int32_t begin;
  std::int32_t end;
};

Visible visible(const AttendOp& op, std::int32_t position, std::int32_t length) noexcept {
  return {.begin = op.window > 0 ? std::max(0, position - op.window + 1) : 0,
          .end = op.causal ? position + 1 : std::max(length, position + 1)};
}

}  // namespace

void ReferenceBackend::rotate(const Rope& rope, std::int32_t position, std::span<float> head) const {
  if (!rope.valid()) return;
  const RopeTable& table = rope_table(rope);
  const std::size_t pairs = table.frequencies.size();
  if (2 * pairs > head.size()) fail(ErrorKind::internal, "a rotation of {} pairs for heads of {}", pairs, head.size());
  for (std::size_t pair = 0; pair < pairs; ++pair) {
    const bool interleaved = table.kind == RopeKind::interleaved;
    float& first = head[interleaved ? 2 * pair : pair];
    float& second = head[interleaved ? 2 * pair + 1 : pair + pairs];
    const double angle = static_cast<double>(position) * table.frequencies[pair];
    const double cosine = std::cos(angle) * table.magnitude;
    const double sine = std::sin(angle) * table.magnitude;
    const auto a = static_cast<double>(first);
    const auto b = static_cast<double>(second);
    first = static_cast<float>(a * cosine - b * sine);
    second = static_cast<float>(a * sine + b * cosine);
  }
}

// Norms and rotates every head of every row in place.
void ReferenceBackend::finish_heads(const Norm& norm, const Rope& rope, std::int32_t dim, std::int32_t layer,
                                    std::vector<float>& values) {
  vector_of(norm.weight, as_size(dim));
  vector_of(norm.bias, as_size(dim));
  const std::size_t width = rows().empty() ? 1 : values.size() / rows().size();
  for (std::size_t at = 0; at < values.size(); at += as_size(dim)) {
    const std::size_t r = at / width;
    const std::span<float> head{values.data() + at, as_size(dim)};
    if (!normalise(norm, head, head.data())) flag_bad_row(RowSet::all, static_cast<std::int32_t>(r), layer);
    rotate(rope, rows()[r].position, head);
  }
}

void ReferenceBackend::store_kv(std::byte* place, std::span<const float> values) {
  if (kv_type() == KvType::f32) {
    std::memcpy(place, values.data(), values.size_bytes());
    return;
  }
  std::uint64_t saturated = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    saturated += static_cast<std::uint64_t>(std::abs(values[i]) > kLargestHalf);
    const std::uint16_t half = f32_to_f16_saturating(values[i]);
    std::memcpy(place + i * sizeof half, &half, sizeof half);
  }
  if (saturated > 0) count_saturated(saturated);
}

void ReferenceBackend::load_kv(const std::byte* place, std::span<double> values) const {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (kv_type() == KvType::f32) {
      float value = 0.0f;
      std::memcpy(&value, place + i * sizeof value, sizeof value);
      values[i] = static_cast<double>(value);
    } else {
      std::uint16_t half = 0;
      std::memcpy(&half, place + i * sizeof half, sizeof half);
      values[i] = static_cast<double>(f16_to_f32(half));
    }
  }
}

void ReferenceBackend::qkv(const QkvOp& op) {
  Timer timer(*this, "qkv");
  timer.gemm(as_size(row_count(op.x.rows)), {op.q, op.k, op.v});
  const std::size_t q_width = as_size(op.heads) * as_size(op.key_dim);
  const std::size_t k_width = as_size(op.kv_heads) * as_size(op.key_dim);
  const std::size_t v_width = as_size(op.kv_heads) * as_size(op.value_dim);
  const KvGroup& group = cache().groups.at(as_size(op.kv_group));
  if (as_size(op.q.rows) != q_width || as_size(op.k.rows) != k_width || as_size(op.v.rows) != v_width ||
      q_width > as_size(op.q_out.width) || op.kv_heads > group.kv_heads || op.key_dim != group.key_dim ||
      op.value_dim != group.value_dim || op.kv_layer < 0 || op.kv_layer >= group.layers) {
    fail(ErrorKind::internal, "the projections of layer {} do not fit its heads", op.layer);
  }
  const std::vector<double> in = input_rows(op.x, op.before, op.q.columns, op.layer);
  std::vector<float> q;
  std::vector<float> k;
  std::vector<float> v;
  multiply(op.q, 0, in, vector_of(op.q_bias, q_width), q);
  multiply(op.k, 0, in, vector_of(op.k_bias, k_width), k);
  multiply(op.v, 0, in, vector_of(op.v_bias, v_width), v);
  finish_heads(op.q_norm, op.rope, op.key_dim, op.layer, q);
  finish_heads(op.k_norm, op.rope, op.key_dim, op.layer, k);
  for (std::int32_t r = 0; r < row_count(RowSet::all); ++r) {
    std::copy_n(q.data() + as_size(r) * q_width, q_width, row(op.q_out, r));
    if (is_padding(RowSet::all, r)) continue;
    const std::int32_t position = rows()[as_size(r)].position;
    const std::int32_t block = table_of(r, op.kv_group)[as_size(position / kBlockTokens)];
    const std::int32_t slot = position % kBlockTokens;
    for (std::int32_t head = 0; head < op.kv_heads; ++head) {
      const float* key = k.data() + as_size(r) * k_width + as_size(head * op.key_dim);
      const float* value = v.data() + as_size(r) * v_width + as_size(head * op.value_dim);
      store_kv(key_at(op.kv_group, op.kv_layer, block, head, slot), {key, as_size(op.key_dim)});
      store_kv(value_at(op.kv_group, op.kv_layer, block, head, slot), {value, as_size(op.value_dim)});
    }
  }
}

void ReferenceBackend::attend(const AttendOp& op) {
  Timer timer(*this, "attend");
  timer.attention(op);
  if (op.kv_heads <= 0 || op.heads % op.kv_heads != 0) fail(ErrorKind::internal, "layer {} has uneven heads", op.layer);
  vector_of(op.sinks, as_size(op.heads));
  const std::vector<SequenceRows> sequences = sequence_rows();
  const std::int64_t tasks = static_cast<std::int64_t>(sequences.size()) * op.kv_heads;
  device_.pool().for_range(tasks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task) {
      attend_head(op, sequences[static_cast<std::size_t>(task / op.kv_heads)],
                  static_cast<std::int32_t>(task % op.kv_heads));
    }
  });
}

// All rows of a sequence, for the query heads that share one head of keys and values.
void ReferenceBackend::attend_head(const AttendOp& op, const SequenceRows& sequence, std::int32_t kv_head) {
  const std::int32_t length = sequence_of(sequence.rows.front()).length;
  const std::span<const std::int32_t> table = table_of(sequence.rows.front(), op.kv_group);
  const std::size_t key_dim = as_size(op.key_dim);
  const std::size_t value_dim = as_size(op.value_dim);
  const std::int32_t first = visible(op, rows()[as_size(sequence.rows.front())].position, length).begin;
  const std::int32_t last = visible(op, rows()[as_size(sequence.rows.back())].position, length).end;
  std::vector<double> keys(as_size(last - first) * key_dim);
  std::vector<double> values(as_size(last - first) * value_dim);
  for (std::int32_t j = first; j < last; ++j) {
    const std::size_t entry = as_size(j / kBlockTokens);
    if (entry >= table.size() || table[entry] < 0) {
      fail(ErrorKind::internal, "layer {} looks at position {}, which has no block", op.layer, j);
    }
    const std::size_t place = as_size(j - first);
    load_kv(key_at(op.kv_group, op.kv_layer, table[entry], kv_head, j % kBlockTokens),
            {keys.data() + place * key_dim, key_dim});
    load_kv(value_at(op.kv_group, op.kv_layer, table[entry], kv_head, j % kBlockTokens),
            {values.data() + place * value_dim, value_dim});
  }
  const float* sinks = vector_of(op.sinks, as_size(op.heads));
  const std::int32_t shared_by = op.heads / op.kv_heads;
  std::vector<double> query(key_dim);
  std::vector<double> scores;
  std::vector<double> sums(value_dim);
  for (const std::int32_t r : sequence.rows) {
    const Visible seen = visible(op, rows()[as_size(r)].position, length);
    for (std::int32_t head = kv_head * shared_by; head < (kv_head + 1) * shared_by; ++head) {
      std::copy_n(row(op.q, r) + as_size(head) * key_dim, key_dim, query.begin());
      const double sink =
          sinks == nullptr ? -std::numeric_limits<double>::infinity() : static_cast<double>(sinks[head]);
      double best = sink;
      scores.clear();
      for (std::int32_t j = seen.begin; j < seen.end; ++j) {
        const double product = reference::dot(query.data(), keys.data() + as_size(j - first) * key_dim, key_dim);
        scores.push_back(
            reference::soft_cap(product * static_cast<double>(op.scale), static_cast<double>(op.soft_cap)));
        best = std::max(best, scores.back());
      }
      double total = std::exp(sink - best);
      std::ranges::fill(sums, 0.0);
      for (std::int32_t j = seen.begin; j < seen.end; ++j) {
        const double weight = std::exp(scores[as_size(j - seen.begin)] - best);
        const double* value = values.data() + as_size(j - first) * value_dim;
        total += weight;
        for (std::size_t i = 0; i < value_dim; ++i) sums[i] += weight * value[i];
      }
      float* out = row(op.out, r) + as_size(head) * value_dim;
      for (std::size_t i = 0; i < value_dim; ++i) out[i] = static_cast<float>(sums[i] / total);
    }
  }
}

}  // namespace quarrel
