#include "backend/cpu/cpu_attention.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>

#include "base/as_size.h"
#include "base/error.h"

namespace quarrel {
namespace {

// Floats that a worker has for a tile of rows: enough for heads of 256. And its share of the room for partitions' sums.
constexpr std::size_t kScratchFloats = 80 * 1024;
constexpr std::size_t kSumsFloats = 64 * 1024;

}  // namespace

// Cosines and sines of every row's position, once a step: all layers with the same rope share them.
const CpuAttention::RopeRows& CpuAttention::rope_rows(const Rope& rope) {
  if (ropes_.size() <= as_size(rope.id)) ropes_.resize(as_size(rope.id) + 1);
  RopeRows& table = ropes_[as_size(rope.id)];
  if (table.step == step_) return table;
  const HostBackend::RopeTable& source = host_.rope_table(rope);
  const std::size_t pairs = source.frequencies.size();
  table.step = step_;
  table.cosines.resize(host_.rows().size() * pairs);
  table.sines.resize(host_.rows().size() * pairs);
  device_.for_rows(host_.shape().rows(), [&](std::int32_t r) {
    for (std::size_t pair = 0; pair < pairs; ++pair) {
      const double angle = host_.rows()[as_size(r)].position * source.frequencies[pair];
      table.cosines[as_size(r) * pairs + pair] = static_cast<float>(std::cos(angle) * source.magnitude);
      table.sines[as_size(r) * pairs + pair] = static_cast<float>(std::sin(angle) * source.magnitude);
    }
  });
  return table;
}

void CpuAttention::rotate(const QkvOp& op, std::int32_t row, float* heads, std::int32_t count,
                          const RopeRows& angles) const {
  const HostBackend::RopeTable& table = host_.rope_table(op.rope);
  const std::size_t pairs = table.frequencies.size();
  const float* cosines = angles.cosines.data() + as_size(row) * pairs;
  const float* sines = angles.sines.data() + as_size(row) * pairs;
  const auto rotate_head = table.kind == RopeKind::half ? kernels_.rotate_half : kernels_.rotate_interleaved;
  for (std::int32_t head = 0; head < count; ++head) {
    rotate_head(heads + as_size(head) * as_size(op.key_dim), cosines, sines, pairs);
  }
}

// Keys lie by dimension in a KV block, values by position: see AttendTask.
std::uint64_t CpuAttention::store(const QkvOp& op, std::int32_t row, const float* keys, const float* values) {
  static_assert(kKvBlock == HostBackend::kBlockTokens);
  constexpr std::size_t kApart = kKvBlock;
  const std::int32_t position = host_.rows()[as_size(row)].position;
  const std::int32_t kv_block = host_.table_of(row, op.kv_group)[as_size(position / kKvBlock)];
  const std::int32_t place = position % kKvBlock;
  const std::size_t key_dim = as_size(op.key_dim);
  const std::size_t value_dim = as_size(op.value_dim);
  std::uint64_t clamped = 0;
  for (std::int32_t head = 0; head < op.kv_heads; ++head) {
    const float* key = keys + as_size(head) * key_dim;
    const float* value = values + as_size(head) * value_dim;
    std::byte* key_place = host_.key_at(op.kv_group, op.kv_layer, kv_block, head, 0);
    std::byte* value_place = host_.value_at(op.kv_group, op.kv_layer, kv_block, head, place);
    if (host_.kv_type() == KvType::f32) {
      float* to = reinterpret_cast<float*>(key_place) + place;
      for (std::size_t d = 0; d < key_dim; ++d) to[d * kApart] = key[d];
      std::memcpy(value_place, value, value_dim * sizeof(float));
    } else {
      clamped += kernels_.store_half_apart(key, reinterpret_cast<std::uint16_t*>(key_place) + place, key_dim, kApart);
      clamped += kernels_.store_half(value, reinterpret_cast<std::uint16_t*>(value_place), value_dim);
    }
  }
  return clamped;
}

void CpuAttention::qkv(const QkvOp& op) {
  const std::array weights = {op.q, op.k, op.v};
  const GemmInput input = linear_.prepare(op.x, 0, host_.row_count(op.x.rows), op.before, op.layer, weights);
  HostBackend::Timer timer(host_, "qkv");
  timer.gemm(input.rows, {op.q, op.k, op.v});
  float* keys = linear_.first_buffer();
  float* values = linear_.second_buffer();
  const std::array projections = {
      Projection{op.q, {host_.data(op.q_out), as_size(op.q_out.width)}},
      Projection{op.k, {keys, as_size(op.k.rows)}},
      Projection{op.v, {values, as_size(op.v.rows)}},
  };
  linear_.gemm(input, projections);
  const RopeRows* angles = op.rope.valid() ? &rope_rows(op.rope) : nullptr;
  std::atomic<std::uint64_t> clamped{0};
  device_.for_rows(host_.row_count(op.x.rows), [&](std::int32_t r) {
    float* q = host_.row(op.q_out, r);
    float* k = keys + as_size(r) * as_size(op.k.rows);
    float* v = values + as_size(r) * as_size(op.v.rows);
    if (op.q_bias.valid()) kernels_.add(q, weights_.vector(op.q_bias), as_size(op.q.rows));
    if (op.k_bias.valid()) kernels_.add(k, weights_.vector(op.k_bias), as_size(op.k.rows));
    if (op.v_bias.valid()) kernels_.add(v, weights_.vector(op.v_bias), as_size(op.v.rows));
    const auto norm_heads = [&](const Norm& norm, float* heads, std::int32_t count) {
      for (std::int32_t head = 0; norm.kind != NormKind::none && head < count; ++head) {
        float* values_of_head = heads + as_size(head) * as_size(op.key_dim);
        if (!weights_.norm_row(norm, values_of_head, values_of_head, as_size(op.key_dim)))
          host_.flag_bad_row(op.x.rows, r, op.layer);
      }
    };
    norm_heads(op.q_norm, q, op.heads);
    norm_heads(op.k_norm, k, op.kv_heads);
    if (angles != nullptr) {
      rotate(op, r, q, op.heads, *angles);
      rotate(op, r, k, op.kv_heads, *angles);
    }
    if (host_.is_padding(op.x.rows, r)) return;
    const std::uint64_t lost = store(op, r, k, v);
    if (lost > 0) clamped.fetch_add(lost, std::memory_order_relaxed);
  });
  host_.count_saturated(clamped.load());
}

std::size_t CpuAttention::workspace_bytes() const noexcept {
  return device_.workers() * (kScratchFloats + kSumsFloats) * sizeof(float);
}

void CpuAttention::reserve() { memory_ = AlignedBuffer(workspace_bytes(), "attention"); }

void CpuAttention::plan(const AttendOp& op) {
  const std::int32_t heads = op.heads / op.kv_heads;
  const std::size_t key_dim = as_size(op.key_dim);
  const std::size_t value_dim = as_size(op.value_dim);
  std::int32_t most = std::clamp(kAttendQueries / heads, 1, kAttendRows);
  const auto needed = [&] { return attend_scratch_floats(as_size(most) * as_size(heads), key_dim, value_dim); };
  while (most > 1 && needed() > kScratchFloats) most /= 2;
  scratch_floats_ = std::max(kScratchFloats, padded(needed(), kVectorFloats));
  const std::size_t memory = device_.workers() * (scratch_floats_ + kSumsFloats) * sizeof(float);
  // Heads so large that a lone row needs more than was planned for.
  if (memory_.size() < memory) memory_ = AlignedBuffer(memory, "attention");

  begins_.clear();
  ends_.clear();
  tiles_.clear();
  for (std::int32_t r = 0; r < host_.row_count(op.q.rows); ++r) {
    const StepRow& row = host_.rows()[as_size(r)];
    if (row.sequence < 0) {  // padding sees nothing and joins no tile
      begins_.push_back(0);
      ends_.push_back(0);
      continue;
    }
    const std::int32_t length = host_.sequence_of(r).length;
    const std::span<const std::int32_t> table = host_.table_of(r, op.kv_group);
    const std::int32_t begin = op.window > 0 ? std::max(0, row.position - op.window + 1) : 0;
    const std::int32_t end = op.causal ? row.position + 1 : std::max(length, row.position + 1);
    // What a window has freed is a table's beginning, so the first KV block a row sees tells for all of them.
    if (table[as_size(begin / kKvBlock)] < 0) {
      fail(ErrorKind::internal, "a row at position {} needs a KV block that was freed", row.position);
    }
    if (as_size((end - 1) / kKvBlock) >= table.size()) {
      fail(ErrorKind::internal, "a row at position {} sees {} positions, which have no KV blocks", row.position, end);
    }
    begins_.push_back(begin);
    ends_.push_back(end);
    const bool joins = !tiles_.empty() && tiles_.back().rows < most &&
                       host_.rows()[as_size(tiles_.back().first)].sequence == row.sequence;
    if (!joins) tiles_.push_back({.first = r, .rows = 0, .begin = begin, .end = end});
    Tile& tile = tiles_.back();
    ++tile.rows;
    tile.begin = std::min(tile.begin, begin);
    tile.end = std::max(tile.end, end);
  }
}

AttendTask CpuAttention::task_of(const AttendOp& op, const Tile& tile, std::int32_t head, float* scratch) {
  const std::int32_t heads = op.heads / op.kv_heads;
  return {.q = host_.row(op.q, tile.first) + as_size(head * heads) * as_size(op.key_dim),
          .q_stride = as_size(op.q.width),
          .out = host_.row(op.out, tile.first) + as_size(head * heads) * as_size(op.value_dim),
          .out_stride = as_size(op.out.width),
          .rows = tile.rows,
          .query_heads = heads,
          .key_dim = op.key_dim,
          .value_dim = op.value_dim,
          .f16 = host_.kv_type() == KvType::f16,
          .base = host_.key_at(op.kv_group, op.kv_layer, 0, head, 0),
          .kv_block_bytes = host_.kv_bytes(host_.cache().groups[as_size(op.kv_group)], host_.kv_type()),
          .kv_blocks = host_.table_of(tile.first, op.kv_group).data(),
          .begins = begins_.data() + tile.first,
          .ends = ends_.data() + tile.first,
          .scale = op.scale,
          .soft_cap = op.soft_cap,
          .sinks = op.sinks.valid() ? weights_.vector(op.sinks) + as_size(head * heads) : nullptr,
          .scratch = scratch};
}

void CpuAttention::attend(const AttendOp& op) {
  HostBackend::Timer timer(host_, "attend");
  timer.attention(op);
  if (op.kv_heads <= 0 || op.heads % op.kv_heads != 0) fail(ErrorKind::internal, "layer {} has uneven heads", op.layer);
  plan(op);
  if (tiles_.empty()) return;
  const auto units = static_cast<std::int64_t>(tiles_.size()) * op.kv_heads;
  std::int32_t partitions = 1;
  for (const Tile& tile : tiles_) {
    partitions = std::max(partitions, (tile.end - 1) / kAttendPartition - tile.begin / kAttendPartition + 1);
  }
  if (partitions > 1 && device_.pool().size() > 1 && units < std::int64_t{4} * device_.pool().size() &&
      attend_split(op, units, partitions)) {
    return;
  }
  // Whoever is free takes the next unit. Later rows of a prompt see more and cost more, so they come first.
  std::atomic<std::int64_t> next{0};
  device_.pool().run([&](int worker, int) {
    float* scratch = memory_.floats() + as_size(worker) * scratch_floats_;
    for (std::int64_t taken = next++; taken < units; taken = next++) {
      const std::int64_t unit = units - 1 - taken;
      const Tile& tile = tiles_[static_cast<std::size_t>(unit / op.kv_heads)];
      kernels_.attend(task_of(op, tile, static_cast<std::int32_t>(unit % op.kv_heads), scratch));
    }
  });
}

// Few units with much to see: the workers share partitions, whose sums are then joined in their order, some at a time.
bool CpuAttention::attend_split(const AttendOp& op, std::int64_t units, std::int32_t partitions) {
  const std::int32_t heads = op.heads / op.kv_heads;
  std::size_t queries = 0;
  for (const Tile& tile : tiles_) queries = std::max(queries, as_size(tile.rows * heads));
  const std::size_t workers = device_.workers();
  float* sums = memory_.floats() + workers * scratch_floats_;
  const std::size_t state = attend_state_floats(queries, as_size(op.value_dim));
  if (queries == 0 || units <= 0) return false;
  const std::size_t room = workers * kSumsFloats / std::max<std::size_t>(1, state) / static_cast<std::size_t>(units);
  if (room < 2) return false;
  const auto at_once = static_cast<std::int32_t>(std::min(room - 1, as_size(partitions)));
  const auto unit_task = [&](std::int64_t unit, int worker) {
    return task_of(op, tiles_[static_cast<std::size_t>(unit / op.kv_heads)],
                   static_cast<std::int32_t>(unit % op.kv_heads), memory_.floats() + as_size(worker) * scratch_floats_);
  };
  // Each unit has the joined sums, then those of the partitions at hand.
  const auto sums_of = [&](std::int64_t unit) {
    return sums + static_cast<std::size_t>(unit) * as_size(at_once + 1) * state;
  };
  for (std::int32_t done = 0; done < partitions; done += at_once) {
    std::atomic<std::int64_t> next{0};
    device_.pool().run([&](int worker, int) {
      for (std::int64_t taken = next++; taken < units * at_once; taken = next++) {
        const std::int64_t unit = taken / at_once;
        const Tile& tile = tiles_[static_cast<std::size_t>(unit / op.kv_heads)];
        const auto place = static_cast<std::int32_t>(taken % at_once);
        const std::int32_t partition = tile.begin / kAttendPartition + done + place;
        if (partition * kAttendPartition >= tile.end) continue;
        kernels_.attend_partition(unit_task(unit, worker), partition, sums_of(unit) + as_size(place + 1) * state);
      }
    });
    device_.pool().for_range(units, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t unit = begin; unit < end; ++unit) {
        const Tile& tile = tiles_[static_cast<std::size_t>(unit / op.kv_heads)];
        const AttendTask task = unit_task(unit, 0);  // without use for scratch
        float* whole = sums_of(unit);
        const std::int32_t first = tile.begin / kAttendPartition + done;
        const std::int32_t last = std::min(first + at_once, (tile.end - 1) / kAttendPartition + 1);
        for (std::int32_t partition = first; partition < last; ++partition) {
          kernels_.attend_join(task, partition, whole + as_size(partition - first + 1) * state, whole);
        }
        if (done + at_once >= partitions) kernels_.attend_finish(task, whole);
      }
    });
  }
  return true;
}

}  // namespace quarrel
