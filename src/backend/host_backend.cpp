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

void require(bool condition, const char* what) {
  if (!condition) fail(ErrorKind::internal, "a backend was called wrongly: {}", what);
}

void require_block(const CacheConfig& cache, std::int32_t group, std::int32_t block) {
  require(group >= 0 && as_size(group) < cache.groups.size(), "a transfer of no KV group");
  require(block >= 0 && block < cache.blocks[as_size(group)], "a transfer of a block that is not there");
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
  check_.set_limits(limits, vocabulary);
  lanes_.clear();
  lanes_.resize(as_size(limits.lanes));
  last_sampled_.clear();
  last_sampled_.reserve(as_size(limits.outputs));
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
  check_.set_cache(config, kBlockTokens);
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

std::span<std::byte> HostBackend::slot_span(std::int32_t slot) {
  return {states_.data() + slot_bytes_ * as_size(slot), slot_bytes_};
}

Ticket HostBackend::start_export_block(std::int32_t group, std::int32_t block, std::span<std::byte> out) {
  require_block(cache_, group, block);
  require(out.size() == block_bytes_[as_size(group)], "export of a block into a buffer of another size");
  std::ranges::copy(block_span(group, block), out.begin());
  return ++last_transfer_;
}

Ticket HostBackend::start_import_block(std::int32_t group, std::int32_t block, std::span<const std::byte> in) {
  require_block(cache_, group, block);
  require(in.size() == block_bytes_[as_size(group)], "import of a block of another size");
  std::ranges::copy(in, block_span(group, block).begin());
  return ++last_transfer_;
}

Ticket HostBackend::start_export_slot(std::int32_t slot, std::span<std::byte> out) {
  require(slot >= 0 && slot < cache_.state_slots, "export of a slot that is not there");
  require(out.size() == slot_bytes_, "export of a slot into a buffer of another size");
  std::ranges::copy(slot_span(slot), out.begin());
  return ++last_transfer_;
}

Ticket HostBackend::start_import_slot(std::int32_t slot, std::span<const std::byte> in) {
  require(slot >= 0 && slot < cache_.state_slots, "import of a slot that is not there");
  require(in.size() == slot_bytes_, "import of a slot of another size");
  std::ranges::copy(in, slot_span(slot).begin());
  return ++last_transfer_;
}

bool HostBackend::transfer_done(Ticket ticket) {
  require(ticket >= 1 && ticket <= last_transfer_, "a transfer that was never started");
  return true;
}

void HostBackend::await_transfer(Ticket ticket) { transfer_done(ticket); }

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
                               std::int32_t offset) noexcept {
  const KvGroup& shape = cache_.groups[as_size(group)];
  const std::size_t element = kv_element_bytes(cache_.kv_type);
  const std::size_t head_bytes = as_size(kBlockTokens) * as_size(shape.key_dim + shape.value_dim) * element;
  const std::size_t place = (as_size(layer) * as_size(shape.kv_heads) + as_size(head)) * head_bytes;
  return kv_[as_size(group)].data() + block_bytes_[as_size(group)] * as_size(block) + place +
         as_size(offset) * as_size(shape.key_dim) * element;
}

std::byte* HostBackend::value_at(std::int32_t group, std::int32_t layer, std::int32_t block, std::int32_t head,
                                 std::int32_t offset) noexcept {
  const KvGroup& shape = cache_.groups[as_size(group)];
  const std::size_t element = kv_element_bytes(cache_.kv_type);
  return key_at(group, layer, block, head, 0) + as_size(kBlockTokens) * as_size(shape.key_dim) * element +
         as_size(offset) * as_size(shape.value_dim) * element;
}

float* HostBackend::conv_state(std::int32_t slot, std::int32_t state_layer) noexcept {
  return reinterpret_cast<float*>(states_.data() + slot_bytes_ * as_size(slot)) + state_offsets_[as_size(state_layer)];
}

float* HostBackend::scan_state(std::int32_t slot, std::int32_t state_layer) noexcept {
  return conv_state(slot, state_layer) + cache_.state_layers[as_size(state_layer)].conv_values;
}

void HostBackend::count_experts(std::int32_t layer, std::int32_t experts, std::span<const std::int32_t> chosen) {
  std::vector<std::uint64_t>& counts = expert_use_[layer];
  counts.resize(as_size(experts));
  for (const std::int32_t expert : chosen) {
    if (expert >= 0) ++counts[as_size(expert)];  // padding chooses none
  }
}

std::vector<ExpertUse> HostBackend::expert_use() const {
  std::vector<ExpertUse> use;
  use.reserve(expert_use_.size());
  for (const auto& [layer, chosen] : expert_use_) use.push_back({.layer = layer, .chosen = chosen});
  return use;
}

}  // namespace quarrel
