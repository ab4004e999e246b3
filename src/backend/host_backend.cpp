#include "backend/host_backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/as_size.h"
#include "base/checked.h"
#include "base/error.h"
#include "quant/decode.h"

namespace quarrel {
namespace {

// The step comes from our own engine, but a wrong plan must end in an error, not in another request's memory.
void require(bool condition, const char* what) {
  if (!condition) fail(ErrorKind::internal, "a step is malformed: {}", what);
}

}  // namespace

Activation HostBackend::make_activation(std::int32_t width, RowSet rows) {
  activations_.push_back({.width = width, .rows = rows, .memory = {}});
  return {.id = static_cast<std::int32_t>(activations_.size()) - 1, .width = width, .rows = rows};
}

std::size_t HostBackend::workspace_bytes(const StepLimits& limits, std::int32_t vocabulary) const noexcept {
  std::size_t bytes = as_size(std::min(limits.outputs, kLogitRows)) * as_size(vocabulary) * sizeof(float);
  for (const ActivationSlot& slot : activations_) {
    bytes += as_size(slot.rows == RowSet::all ? limits.rows : limits.outputs) * as_size(slot.width) * sizeof(float);
  }
  return bytes;
}

void HostBackend::reserve(const StepLimits& limits, std::int32_t vocabulary) {
  if (plan_only_) fail(ErrorKind::internal, "a backend that only plans cannot be made ready for steps");
  limits_ = limits;
  vocabulary_ = vocabulary;
  logits_ =
      AlignedBuffer(as_size(std::min(limits.outputs, kLogitRows)) * as_size(vocabulary) * sizeof(float), "logits");
  for (ActivationSlot& slot : activations_) {
    const std::int32_t rows = slot.rows == RowSet::all ? limits.rows : limits.outputs;
    slot.memory = AlignedBuffer(as_size(rows) * as_size(slot.width) * sizeof(float), "activations");
  }
}

void HostBackend::check_weight(const WeightSource& source) const {
  const TypeInfo& info = type_info(source.type);
  const auto fits = [](std::int64_t value) { return value >= 1 && value <= std::numeric_limits<std::int32_t>::max(); };
  if (!fits(source.rows) || !fits(source.columns) || !fits(source.experts) ||
      source.columns % std::int64_t{info.block_weights} != 0) {
    fail(ErrorKind::unsupported, "weight {} of type {} and shape [{}, {}, {}] cannot be used", source.name, info.name,
         source.columns, source.rows, source.experts);
  }
  const std::size_t row = row_bytes(info, static_cast<std::size_t>(source.columns));
  const auto expert = checked_mul(row_stride(source), static_cast<std::uint64_t>(source.rows));
  if ((source.row_stride != 0 && source.row_stride < row) || !expert ||
      !checked_mul(*expert, static_cast<std::uint64_t>(source.experts))) {
    fail(ErrorKind::unsupported, "rows of weight {} cannot lie {} bytes apart", source.name, source.row_stride);
  }
  if (source.experts_used < 1 || source.experts_used > source.experts) {
    fail(ErrorKind::unsupported, "weight {} has {} experts of which {} are used", source.name, source.experts,
         source.experts_used);
  }
  const bool placed = source.places.empty()
                          ? source.data != nullptr
                          : std::ranges::none_of(source.places, [](const ExpertPlace& p) { return p.data == nullptr; });
  if ((!source.places.empty() && std::cmp_not_equal(source.places.size(), source.experts)) ||
      (!placed && !plan_only_)) {
    fail(ErrorKind::unsupported, "weight {} of {} experts lacks a place for some of them", source.name, source.experts);
  }
}

std::size_t HostBackend::row_stride(const WeightSource& source) {
  if (source.row_stride != 0) return source.row_stride;
  return row_bytes(type_info(source.type), static_cast<std::size_t>(source.columns));
}

std::vector<ExpertPlace> HostBackend::expert_places(const WeightSource& source) {
  if (!source.places.empty()) return {source.places.begin(), source.places.end()};
  const std::size_t bytes = row_stride(source) * static_cast<std::size_t>(source.rows);
  std::vector<ExpertPlace> places(static_cast<std::size_t>(source.experts));
  for (std::size_t expert = 0; source.data != nullptr && expert < places.size(); ++expert) {
    places[expert].data = source.data + expert * bytes;
  }
  return places;
}

std::size_t HostBackend::vector_bytes(const WeightSource& source) {
  const auto rows = static_cast<std::uint64_t>(source.rows) * static_cast<std::uint64_t>(source.experts);
  const auto count = checked_mul(rows, static_cast<std::uint64_t>(source.columns));
  if (!count || *count > std::numeric_limits<std::int32_t>::max()) {
    fail(ErrorKind::unsupported, "weight {} is too large to be decoded as a vector", source.name);
  }
  return *count * sizeof(float);
}

std::vector<float> HostBackend::decode_vector(const WeightSource& source) {
  const auto columns = static_cast<std::size_t>(source.columns);
  const auto rows = static_cast<std::size_t>(source.rows);
  const std::size_t stride = row_stride(source);
  std::vector<float> values(vector_bytes(source) / sizeof(float));
  float* to = values.data();
  for (const ExpertPlace& place : expert_places(source)) {
    for (std::size_t row = 0; row < rows; ++row, to += columns) {
      decode_row(source.type, place.data + row * stride, to, columns);
    }
  }
  return values;
}

Rope HostBackend::prepare_rope(const RopeSource& source) {
  ropes_.push_back({.kind = source.kind,
                    .frequencies = {source.frequencies.begin(), source.frequencies.end()},
                    .magnitude = source.magnitude});
  return {.id = static_cast<std::int32_t>(ropes_.size()) - 1};
}

std::size_t HostBackend::kv_bytes(const KvGroup& group, KvType type) const noexcept {
  return as_size(group.layers) * as_size(group.kv_heads) * as_size(kBlockTokens) *
         as_size(group.key_dim + group.value_dim) * kv_element_bytes(type);
}

std::size_t HostBackend::state_bytes(std::span<const StateLayer> layers) const noexcept {
  std::size_t values = 0;
  for (const StateLayer& layer : layers) values += static_cast<std::size_t>(layer.conv_values + layer.scan_values);
  return values * sizeof(float);
}

void HostBackend::allocate_cache(const CacheConfig& config) {
  cache_ = config;
  kv_.clear();
  block_bytes_.clear();
  for (const KvGroup& group : config.groups) {
    block_bytes_.push_back(kv_bytes(group, config.kv_type));
    kv_.emplace_back(block_bytes_.back() * as_size(config.blocks.at(kv_.size())), "the KV cache");
  }
  state_offsets_.clear();
  std::size_t offset = 0;
  for (const StateLayer& layer : config.state_layers) {
    state_offsets_.push_back(offset);
    offset += static_cast<std::size_t>(layer.conv_values + layer.scan_values);
  }
  slot_bytes_ = offset * sizeof(float);
  states_ = AlignedBuffer(slot_bytes_ * as_size(config.state_slots), "recurrent state");
}

std::span<std::byte> HostBackend::block_span(std::int32_t group, std::int32_t block) {
  const std::size_t bytes = block_bytes_[as_size(group)];
  return {kv_[as_size(group)].data() + bytes * as_size(block), bytes};
}

void HostBackend::copy_block(std::int32_t group, std::int32_t from, std::int32_t to) {
  std::ranges::copy(block_span(group, from), block_span(group, to).begin());
}

void HostBackend::copy_slot(std::int32_t from, std::int32_t to) {
  std::memcpy(states_.data() + slot_bytes_ * as_size(to), states_.data() + slot_bytes_ * as_size(from), slot_bytes_);
}

void HostBackend::export_block(std::int32_t group, std::int32_t block, std::span<std::byte> out) const {
  const std::size_t bytes = block_bytes_[as_size(group)];
  require(out.size() == bytes, "export of a block into a buffer of another size");
  std::memcpy(out.data(), kv_[as_size(group)].data() + bytes * as_size(block), bytes);
}

void HostBackend::import_block(std::int32_t group, std::int32_t block, std::span<const std::byte> in) {
  require(in.size() == block_bytes_[as_size(group)], "import of a block of another size");
  std::ranges::copy(in, block_span(group, block).begin());
}

void HostBackend::export_slot(std::int32_t slot, std::span<std::byte> out) const {
  require(out.size() == slot_bytes_, "export of a slot into a buffer of another size");
  std::memcpy(out.data(), states_.data() + slot_bytes_ * as_size(slot), slot_bytes_);
}

void HostBackend::import_slot(std::int32_t slot, std::span<const std::byte> in) {
  require(in.size() == slot_bytes_, "import of a slot of another size");
  std::memcpy(states_.data() + slot_bytes_ * as_size(slot), in.data(), slot_bytes_);
}

StepShape HostBackend::shape_of(const Step& step) const noexcept { return exact_shape(step); }

void HostBackend::load_step(const Step& step) {
  require(step.rows.size() <= as_size(limits_.rows), "more rows than were reserved");
  require(step.outputs.size() <= as_size(limits_.outputs), "more outputs than were reserved");
  require(step.generated_rows >= 0 && as_size(step.generated_rows) <= step.rows.size(), "generated rows");
  rows_.assign(step.rows.begin(), step.rows.end());
  sequences_.clear();
  for (const StepSequence& sequence : step.sequences) {
    require(sequence.tables.size() == cache_.groups.size(), "a block table for each KV group");
    HostSequence& copy = sequences_.emplace_back();
    for (const BlockTable& table : sequence.tables) {
      const std::int32_t blocks = cache_.blocks[copy.tables.size()];
      std::int32_t end = 0;  // of the entry's positions
      for (const std::int32_t block : table.blocks) {
        end += kBlockTokens;
        require(block < blocks, "a block beyond the cache");
        require(block >= 0 || end <= table.first_live, "a freed block among live ones");
      }
      copy.tables.emplace_back(table.blocks.begin(), table.blocks.end());
    }
    require(sequence.state_in < cache_.state_slots && sequence.state_out < cache_.state_slots,
            "a slot beyond the state");
    copy.length = sequence.length;
    copy.state_in = sequence.state_in;
    copy.state_out = sequence.state_out;
  }
  tokens_.clear();
  for (const StepRow& row : rows_) {
    require(row.sequence >= 0 && as_size(row.sequence) < sequences_.size(), "a row's sequence");
    const HostSequence& sequence = sequences_[as_size(row.sequence)];
    require(row.position >= 0, "a negative position");
    for (const auto& table : sequence.tables) {
      const std::size_t entry = as_size(row.position / kBlockTokens);
      require(entry < table.size() && table[entry] >= 0, "a row without a block");
    }
    std::int32_t token = row.token;
    if (token < 0) {
      require(as_size(~token) < last_sampled_.size(), "a token that no row sampled");
      // Where no token could be chosen any will do: whoever reads that result drops the row.
      token = std::max(0, last_sampled_[as_size(~token)]);
    }
    require(token >= 0 && token < vocabulary_, "a token beyond the vocabulary");
    tokens_.push_back(token);
  }
  outputs_.clear();
  std::int32_t last_row = -1;
  for (const StepOutput& output : step.outputs) {
    require(output.row >= last_row && as_size(output.row) < rows_.size(), "outputs in ascending order of rows");
    last_row = output.row;
    HostOutput& copy = outputs_.emplace_back();
    copy.row = output.row;
    copy.logits = output.logits;
    copy.embedding = output.embedding;
    copy.wants_sample = output.sample != nullptr;
    if (output.sample != nullptr) {
      copy.sample = *output.sample;
      copy.seen.assign(output.sample->seen.begin(), output.sample->seen.end());
      copy.mask.assign(output.sample->mask.begin(), output.sample->mask.end());
      copy.sample.seen = copy.seen;
      copy.sample.mask = copy.mask;
    }
  }
  for (const StateSnapshot& snapshot : step.snapshots) {
    require(snapshot.row >= 0 && as_size(snapshot.row) < rows_.size(), "a snapshot's row");
    require(snapshot.slot >= 0 && snapshot.slot < cache_.state_slots, "a snapshot beyond the state");
  }
  snapshots_.assign(step.snapshots.begin(), step.snapshots.end());
  shape_ = shape_of(step);
}

Ticket HostBackend::submit(const Step& step, const Forward& forward) {
  if (plan_only_) fail(ErrorKind::internal, "a backend that only plans runs no steps");
  require(finished_.size() < 2, "more than two open tickets");
  load_step(step);
  results_ = {};
  results_.samples.resize(outputs_.size());
  results_.first_bad_layer.assign(rows_.size(), -1);
  begin_step();
  try {
    forward(*this, shape_);
  } catch (...) {
    end_step();
    throw;
  }
  end_step();
  last_sampled_.clear();
  for (const SampleResult& sample : results_.samples) last_sampled_.push_back(sample.id);
  finished_[++last_ticket_] = std::move(results_);
  return last_ticket_;
}

StepResults HostBackend::wait(Ticket ticket) {
  auto node = finished_.extract(ticket);
  require(!node.empty(), "a ticket that was never given out or already awaited");
  return std::move(node.mapped());
}

void HostBackend::flag_bad_row(RowSet rows, std::int32_t row, std::int32_t layer) noexcept {
  const std::int32_t origin = rows == RowSet::all ? row : outputs_[as_size(row)].row;
  std::int32_t& first = results_.first_bad_layer[as_size(origin)];
  if (first < 0) first = layer;
}

float* HostBackend::data(const Activation& activation) noexcept {
  return activations_[as_size(activation.id)].memory.floats();
}

float* HostBackend::row(const Activation& activation, std::int32_t index) noexcept {
  return data(activation) + as_size(index) * as_size(activation.width);
}

float* HostBackend::logits_row(std::int32_t index) noexcept {
  return logits_.floats() + as_size(index) * as_size(vocabulary_);
}

std::byte* HostBackend::key_at(std::int32_t group, std::int32_t layer, std::int32_t block, std::int32_t head,
                               std::int32_t slot) noexcept {
  const KvGroup& shape = cache_.groups[as_size(group)];
  const std::size_t element = kv_element_bytes(cache_.kv_type);
  const std::size_t head_bytes = as_size(kBlockTokens) * as_size(shape.key_dim + shape.value_dim) * element;
  const std::size_t place = (as_size(layer) * as_size(shape.kv_heads) + as_size(head)) * head_bytes;
  return kv_[as_size(group)].data() + block_bytes_[as_size(group)] * as_size(block) + place +
         as_size(slot) * as_size(shape.key_dim) * element;
}

std::byte* HostBackend::value_at(std::int32_t group, std::int32_t layer, std::int32_t block, std::int32_t head,
                                 std::int32_t slot) noexcept {
  const KvGroup& shape = cache_.groups[as_size(group)];
  const std::size_t element = kv_element_bytes(cache_.kv_type);
  return key_at(group, layer, block, head, 0) + as_size(kBlockTokens) * as_size(shape.key_dim) * element +
         as_size(slot) * as_size(shape.value_dim) * element;
}

float* HostBackend::conv_state(std::int32_t slot, std::int32_t state_layer) noexcept {
  return reinterpret_cast<float*>(states_.data() + slot_bytes_ * as_size(slot)) + state_offsets_[as_size(state_layer)];
}

float* HostBackend::scan_state(std::int32_t slot, std::int32_t state_layer) noexcept {
  return conv_state(slot, state_layer) + cache_.state_layers[as_size(state_layer)].conv_values;
}

void HostBackend::select_rows(const SelectRowsOp& op) {
  const Timer timer(*this, "other");
  for (std::size_t output = 0; output < outputs_.size(); ++output) {
    std::memcpy(row(op.out, static_cast<std::int32_t>(output)), row(op.in, outputs_[output].row),
                as_size(op.in.width) * sizeof(float));
  }
}

void HostBackend::sample(const SampleOp& op) {
  const Timer timer(*this, "sampling");
  const std::size_t first = as_size(op.slice * kLogitRows);
  const std::size_t last = std::min(outputs_.size(), first + as_size(kLogitRows));
  const auto choose = [&](std::size_t output, const ForEach& for_each) {
    const std::span<const float> logits{logits_row(static_cast<std::int32_t>(output - first)), as_size(op.vocabulary)};
    HostOutput& wanted = outputs_[output];
    if (wanted.logits != nullptr) std::ranges::copy(logits, wanted.logits);
    if (wanted.wants_sample) {
      results_.samples[output] = sample_row(logits, wanted.sample, sampling_kernels(), for_each);
    }
  };
  const ForEach for_each = [this](std::size_t count, const auto& task) { run_for_each(count, task); };
  if (first + 1 == last) {
    choose(first, for_each);  // its vocabulary is shared out
  } else if (first < last) {
    for_each(last - first, [&](std::size_t index) { choose(first + index, {}); });
  }
}

void HostBackend::pool(const PoolOp& op) {
  const Timer timer(*this, "other");
  const std::size_t width = as_size(op.in.width);
  std::vector<float> normed(width);
  for (const HostOutput& output : outputs_) {
    if (output.embedding == nullptr) continue;
    const std::int32_t sequence = rows_[as_size(output.row)].sequence;
    std::vector<std::int32_t> members;
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      if (rows_[r].sequence == sequence) members.push_back(static_cast<std::int32_t>(r));
    }
    if (op.pooling == Pooling::cls || op.pooling == Pooling::rank) members.resize(1);
    if (op.pooling == Pooling::last) members = {members.back()};
    std::vector<double> sum(width, 0.0);
    for (const std::int32_t member : members) {
      const float* values = row(op.in, member);
      if (op.norm.kind != NormKind::none) {
        if (!norm_row(op.norm, values, normed.data(), width)) flag_bad_row(op.in.rows, member, op.layer);
        values = normed.data();
      }
      for (std::size_t i = 0; i < width; ++i) sum[i] += static_cast<double>(values[i]);
    }
    for (double& value : sum) value /= static_cast<double>(members.size());
    if (op.pooling == Pooling::rank) {
      rank(op, sum, output.embedding);
    } else {
      std::ranges::transform(sum, output.embedding, [](double value) { return static_cast<float>(value); });
    }
  }
}

void HostBackend::rank(const PoolOp& op, std::span<double> row, float* out) const {
  const auto product = [this](const Weight& weight, const Weight& bias, std::span<const double> in) {
    const std::span<const float> values = vector_values(weight);
    std::vector<double> result(as_size(weight.rows));
    for (std::size_t o = 0; o < result.size(); ++o) {
      result[o] = bias.valid() ? static_cast<double>(vector_values(bias)[o]) : 0.0;
      for (std::size_t i = 0; i < in.size(); ++i) result[o] += static_cast<double>(values[o * in.size() + i]) * in[i];
    }
    return result;
  };
  std::vector<double> dense(row.begin(), row.end());
  if (op.dense.valid()) {
    dense = product(op.dense, op.dense_bias, dense);
    for (double& value : dense) value = std::tanh(value);
  }
  std::ranges::transform(product(op.score, op.score_bias, dense), out,
                         [](double value) { return static_cast<float>(value); });
}

void HostBackend::count_experts(std::int32_t layer, std::int32_t experts, std::span<const std::int32_t> chosen) {
  std::vector<std::uint64_t>& counts = expert_use_[layer];
  counts.resize(as_size(experts));
  for (const std::int32_t expert : chosen) ++counts[as_size(expert)];
}

std::vector<ExpertUse> HostBackend::expert_use() const {
  std::vector<ExpertUse> use;
  use.reserve(expert_use_.size());
  for (const auto& [layer, chosen] : expert_use_) use.push_back({.layer = layer, .chosen = chosen});
  return use;
}

}  // namespace quarrel
