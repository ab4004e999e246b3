#include "backend/cuda/cuda_backend.h"

#include <algorithm>
#include <utility>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/decode_attention.h"
#include "backend/cuda/mixed_gemm.h"
#include "backend/cuda/register_gemm.h"
#include "base/as_size.h"
#include "base/error.h"

namespace quarrel::cuda {
namespace {

constexpr int kPadding = 64;                               // rows that buckets add to a class at most
constexpr std::size_t kPartBytes = std::size_t{64} << 20;  // parts of GEMMs of few rows: as much as a cache may hold

// What nobody can list beforehand: code of kernels, which is loaded when they first run, graphs, cuBLASLt's own memory,
// sums of texts that become vectors. Staging of weights is gone before the workspace comes.
constexpr std::size_t kUnlistedBytes = std::size_t{128} << 20;

// A number for mirostat.
std::size_t lane_bytes(const StepLimits& limits) { return as_size(limits.lanes) * sizeof(float); }

std::size_t element_bytes(KvType type) { return type == KvType::f32 ? 4 : 2; }

}  // namespace

CudaBackend::CudaBackend(CudaDevice& device, const BackendOptions& options)
    : device_(device),
      options_(options),
      context_(launch_context(device.ordinal(), stream_)),
      weights_({.device = device.ordinal(),
                .mirrors = options.mirrors && !options.deterministic,  // the first tier does without
                .plan_only = options.plan_only,
                .on_uploaded = options.cpu.on_repacked}) {}

CudaBackend::~CudaBackend() {
  cudaSetDevice(device_.ordinal());
  cudaStreamSynchronize(stream_.get());
  drop_graphs();
}

// They name places of the workspace, the cache and the tables.
void CudaBackend::drop_graphs() noexcept {
  for (const Graph& graph : graphs_) {
    if (graph.executable != nullptr) cudaGraphExecDestroy(graph.executable);
  }
  graphs_.clear();
}

Weight CudaBackend::prepare_weight(const WeightSource& source) {
  device_.make_current();
  return weights_.add(source);
}

// Layers that turn by the same angles share them.
Rope CudaBackend::prepare_rope(const RopeSource& source) {
  for (std::size_t i = 0; i < ropes_.size(); ++i) {
    const RopeTable& known = ropes_[i];
    if (known.kind == source.kind && known.magnitude == source.magnitude &&
        std::ranges::equal(known.frequencies, source.frequencies)) {
      return {.id = static_cast<std::int32_t>(i)};
    }
  }
  RopeTable& rope = ropes_.emplace_back();
  rope.kind = source.kind;
  rope.frequencies.assign(source.frequencies.begin(), source.frequencies.end());
  rope.magnitude = source.magnitude;
  if (!options_.plan_only && !rope.frequencies.empty()) {
    device_.make_current();
    rope.device = DeviceBuffer(rope.frequencies.size() * sizeof(double), "frequencies of a rotation");
    check(cudaMemcpyAsync(rope.device.data(), rope.frequencies.data(), rope.device.size(), cudaMemcpyHostToDevice,
                          stream_.get()),
          "frequencies of a rotation");
    stream_.synchronize();
  }
  return {.id = static_cast<std::int32_t>(ropes_.size()) - 1};
}

Activation CudaBackend::make_activation(std::int32_t width, RowSet rows) {
  activations_.push_back({.width = width, .rows = rows});
  return {.id = static_cast<std::int32_t>(activations_.size()) - 1, .width = width, .rows = rows};
}

StepLimits CudaBackend::padded(StepLimits limits) const noexcept {
  limits.rows += 2 * kPadding;
  limits.outputs += 2 * kPadding;
  return limits;
}

TableLimits CudaBackend::table_limits(const StepLimits& limits, int groups) const noexcept {
  return {.rows = limits.rows,
          .outputs = limits.outputs,
          .sequences = limits.sequences,
          .groups = groups,
          .table_blocks = (limits.context + kKvBlockTokens - 1) / kKvBlockTokens};
}

CudaBackend::WorkspaceSizes CudaBackend::workspace_sizes(const StepLimits& limits, int vocabulary) const noexcept {
  const std::size_t rows = as_size(limits.rows);
  const std::size_t in = as_size(stride_of(weights_.widest_input()));
  const std::size_t out = as_size(stride_of(weights_.widest_output()));
  WorkspaceSizes sizes;
  int widest = 0;
  for (const ActivationPlace& place : activations_) {
    sizes.activations += activation_bytes(place, limits);
    if (place.rows == RowSet::all) widest = std::max(widest, place.width);
  }
  for (const RopeTable& rope : ropes_) sizes.angles += angle_bytes(rope, limits);
  sizes.value = aligned(rows * out * sizeof(float));
  sizes.normed = aligned(rows * in * sizeof(float));
  sizes.halves = aligned(rows * std::max(in, out) * 2);
  sizes.decoded = options_.deterministic ? 0 : aligned(weights_.decoded_numbers() * 2);
  sizes.split = aligned(split_bytes(weights_.widest_input(), kMaxSplitRows));
  // Heads of 64 at least: a head has four numbers more than its dimension.
  sizes.attention = aligned(decode_attention_workspace(kAttentionRows, widest / 64 + 1, 64));
  sizes.arrivals = aligned(kMaxArrivals * sizeof(int));
  sizes.logits = aligned(as_size(std::min(limits.outputs, kLogitRows)) * as_size(vocabulary) * sizeof(float));
  sizes.ids = aligned(rows * sizeof(std::int32_t));
  sizes.reports = aligned(as_size(limits.outputs) * sizeof(RowReport));
  sizes.parts = kPartBytes;
  sizes.image = aligned(image_numbers(kMostMixedRows, weights_.widest_input()) * 2);
  sizes.register_image = aligned(register_image_numbers(kMaxRegisterGemmRows, weights_.widest_input()) * 2);
  sizes.zeros = kPieceAlignment;
  sizes.mixed = aligned(rows * as_size(stride_of(widest)) * sizeof(float));
  if (weights_.experts_used() > 0) {
    const std::size_t pairs = rows * as_size(weights_.experts_used());
    sizes.shared = sizes.value;
    sizes.expert_value = aligned(pairs * as_size(stride_of(weights_.widest_expert())) * sizeof(float));
    sizes.split_hidden = aligned(
        fused_hidden_bytes(weights_.experts_used(), std::max(weights_.widest_expert(), weights_.widest_input())));
    sizes.routing = 4 * aligned(pairs * sizeof(std::int32_t)) +
                    aligned(as_size(weights_.most_experts() + 1) * sizeof(std::int32_t));
    sizes.expert_counts =
        aligned(weights_.expert_layers().size() * as_size(weights_.most_experts()) * sizeof(unsigned long long));
  }
  return sizes;
}

std::size_t CudaBackend::activation_bytes(const ActivationPlace& place, const StepLimits& limits) const noexcept {
  const std::int32_t rows = place.rows == RowSet::all ? limits.rows : limits.outputs;
  return aligned(as_size(rows) * as_size(stride_of(place.width)) * sizeof(float));
}

std::size_t CudaBackend::angle_bytes(const RopeTable& rope, const StepLimits& limits) const noexcept {
  return aligned(as_size(limits.rows) * rope.frequencies.size() * 2 * sizeof(float));
}

std::size_t CudaBackend::workspace_bytes(const StepLimits& asked, std::int32_t vocabulary) const noexcept {
  constexpr int kUsualGroups = 2;
  const StepLimits limits = padded(asked);
  return workspace_sizes(limits, vocabulary).total() + StepTables::bytes(table_limits(limits, kUsualGroups)) +
         DenseGemm::workspace_bytes() + lane_bytes(asked) + kUnlistedBytes;
}

std::size_t CudaBackend::expert_workspace_bytes(const StepLimits& limits) const noexcept {
  return workspace_sizes(padded(limits), 0).experts();
}

void CudaBackend::reserve(const StepLimits& asked, std::int32_t vocabulary) {
  if (options_.plan_only) fail(ErrorKind::internal, "a backend that only plans cannot be made ready for steps");
  device_.make_current();
  stream_.synchronize();
  drop_graphs();
  weights_.finish(context_);
  check_.set_limits(asked, vocabulary);
  lanes_.clear();
  lanes_.resize(as_size(asked.lanes));
  pool_lanes_.assign(as_size(asked.lanes), {});
  limits_ = padded(asked);
  vocabulary_ = vocabulary;
  gemm_ = std::make_unique<DenseGemm>();
  const WorkspaceSizes sizes = workspace_sizes(limits_, vocabulary);
  workspace_ = DeviceBuffer(sizes.total(), "room for activations");
  // Rows that are padding are computed like others: they must find numbers.
  check(cudaMemsetAsync(workspace_.data(), 0, workspace_.size(), stream_.get()), "room for activations");
  std::byte* at = workspace_.data();
  const auto take = [&at](std::size_t bytes) { return std::exchange(at, at + bytes); };
  const auto take_floats = [&take](std::size_t bytes) { return reinterpret_cast<float*>(take(bytes)); };
  first_value_ = take_floats(sizes.value);
  second_value_ = take_floats(sizes.value);
  normed_ = take_floats(sizes.normed);
  halves_ = reinterpret_cast<std::uint16_t*>(take(sizes.halves));
  decoded_ = reinterpret_cast<std::uint16_t*>(take(sizes.decoded));
  split_ = take(sizes.split);
  attention_workspace_ = take(sizes.attention);
  arrivals_ = reinterpret_cast<int*>(take(sizes.arrivals));
  parts_ = take_floats(sizes.parts);
  part_floats_ = sizes.parts / sizeof(float);
  image_ = reinterpret_cast<std::uint16_t*>(take(sizes.image));
  row_image_ = reinterpret_cast<std::uint16_t*>(take(sizes.register_image));
  hidden_image_ = reinterpret_cast<std::uint16_t*>(take(sizes.register_image));
  logits_ = take_floats(sizes.logits);
  ids_ = reinterpret_cast<std::int32_t*>(take(sizes.ids));
  reports_ = reinterpret_cast<RowReport*>(take(sizes.reports));
  zeros_ = reinterpret_cast<const std::int32_t*>(take(sizes.zeros));
  mixed_ = take_floats(sizes.mixed);
  shared_hidden_ = take_floats(sizes.shared);
  shared_value_ = take_floats(sizes.shared);
  expert_hidden_ = take_floats(sizes.expert_value);
  expert_value_ = take_floats(sizes.expert_value);
  split_hidden_ = take(sizes.split_hidden);
  if (sizes.routing > 0) {
    const std::size_t pairs = as_size(limits_.rows) * as_size(weights_.experts_used());
    const auto take_pairs = [&] {
      return reinterpret_cast<std::int32_t*>(take(aligned(pairs * sizeof(std::int32_t))));
    };
    routing_ = {.chosen = take_pairs(),
                .weights = reinterpret_cast<float*>(take_pairs()),
                .order = take_pairs(),
                .places = take_pairs(),
                .starts = nullptr};
    routing_.starts =
        reinterpret_cast<std::int32_t*>(take(aligned(as_size(weights_.most_experts() + 1) * sizeof(std::int32_t))));
    expert_counts_ = reinterpret_cast<unsigned long long*>(take(sizes.expert_counts));
    known_expert_counts_.assign(weights_.expert_layers().size() * as_size(weights_.most_experts()), 0);
    for (ResultMemory& memory : result_memory_) {
      memory.expert_counts = PinnedBuffer(known_expert_counts_.size() * sizeof(std::uint64_t), "counts of experts");
    }
  }
  for (ActivationPlace& place : activations_) {
    place.data = take_floats(activation_bytes(place, limits_));
  }
  for (RopeTable& rope : ropes_) {
    rope.angles = take_floats(angle_bytes(rope, limits_));
  }
  lane_mu_ = DeviceBuffer(lane_bytes(asked), "sampling state");
  tables_ = StepTables(table_limits(limits_, static_cast<int>(cache_.groups.size())), context_);
  warm_up_gemms(asked.rows);
  stream_.synchronize();
}

// The first GEMM of a process loads the library's kernels, tens of milliseconds that no step shall take; those of a
// full prompt whose matrices stand alone are planned here too.
void CudaBackend::warm_up_gemms(int rows) {
  if (options_.deterministic || rows <= kMaxPackedGemmRows) return;
  for (const GemmShape& shape : weights_.gemm_shapes()) {
    GemmShape full = shape;
    full.tokens = rows;
    if (shape.f32_in) {
      // Any numbers will do for the weight, as far as there are so many.
      full.in_stride = stride_of(shape.columns);
      if (shape.rows <= rows) gemm_->run(context_, full, normed_, normed_, first_value_);
      continue;
    }
    gemm_->run(context_, full, weights_.any_halves(), halves_, first_value_);
  }
}

// ---- Keys and values: [block][layer][keys of all heads, values of all heads] ----

std::size_t CudaBackend::kv_bytes(const KvGroup& group, KvType type) const noexcept {
  return as_size(group.layers) * as_size(group.kv_heads) * as_size(kKvBlockTokens) *
         as_size(group.key_dim + group.value_dim) * element_bytes(type);
}

std::size_t CudaBackend::state_bytes(std::span<const StateLayer> layers) const noexcept {
  std::size_t values = 0;
  for (const StateLayer& layer : layers) values += static_cast<std::size_t>(layer.conv_values + layer.scan_values);
  return values * sizeof(float);
}

void CudaBackend::allocate_cache(const CacheConfig& config) {
  device_.make_current();
  stream_.synchronize();
  drop_graphs();
  cache_ = config;
  check_.set_cache(config, kKvBlockTokens);
  kv_.clear();
  for (const KvGroup& group : config.groups) {
    KvMemory memory;
    memory.block_bytes = kv_bytes(group, config.kv_type);
    memory.memory = DeviceBuffer(memory.block_bytes * as_size(config.blocks.at(kv_.size())), "the KV cache");
    check(cudaMemsetAsync(memory.memory.data(), 0, memory.memory.size(), stream_.get()), "the KV cache");
    kv_.push_back(std::move(memory));
  }
  slot_bytes_ = state_bytes(config.state_layers);
  state_offsets_.clear();
  std::size_t offset = 0;
  for (const StateLayer& layer : config.state_layers) {
    state_offsets_.push_back(offset);
    offset += static_cast<std::size_t>(layer.conv_values + layer.scan_values);
  }
  states_ = DeviceBuffer();
  if (slot_bytes_ > 0 && config.state_slots > 0) {
    states_ = DeviceBuffer(slot_bytes_ * as_size(config.state_slots), "recurrent state");
    check(cudaMemsetAsync(states_.data(), 0, states_.size(), stream_.get()), "recurrent state");
  }
  tables_ = StepTables(table_limits(limits_, static_cast<int>(config.groups.size())), context_);
  stream_.synchronize();
}

std::byte* CudaBackend::slot_place(std::int32_t slot) const { return states_.data() + slot_bytes_ * as_size(slot); }

SsmState CudaBackend::ssm_state(std::int32_t layer) const {
  float* first = states_.as<float>() + state_offsets_[as_size(layer)];
  return {.convolution = first,
          .scan = first + cache_.state_layers[as_size(layer)].conv_values,
          .slot_stride = static_cast<std::int64_t>(slot_bytes_ / sizeof(float))};
}

std::byte* CudaBackend::block_place(std::int32_t group, std::int32_t block) const {
  const KvMemory& memory = kv_[as_size(group)];
  return memory.memory.data() + memory.block_bytes * as_size(block);
}

PagedKv CudaBackend::paged_kv(std::int32_t group, std::int32_t layer) const {
  require(group >= 0 && as_size(group) < kv_.size(), "an op of no KV group");
  const KvGroup& shape = cache_.groups[as_size(group)];
  const std::size_t element = element_bytes(cache_.kv_type);
  const std::size_t layer_bytes = kv_bytes(shape, cache_.kv_type) / as_size(shape.layers);
  std::byte* keys = kv_[as_size(group)].memory.data() + as_size(layer) * layer_bytes;
  const std::size_t key_bytes = as_size(shape.kv_heads) * as_size(kKvBlockTokens) * as_size(shape.key_dim) * element;
  const auto stride = static_cast<std::int64_t>(kv_[as_size(group)].block_bytes / element);
  return {.keys = reinterpret_cast<std::uint16_t*>(keys),
          .values = reinterpret_cast<std::uint16_t*>(keys + key_bytes),
          .key_block_stride = stride,
          .value_block_stride = stride,
          .heads = shape.kv_heads,
          .dim = shape.key_dim,
          .value_dim = shape.value_dim,
          .is_f32 = cache_.kv_type == KvType::f32};
}

// ---- Transfers: copies on the backend's stream, so in order with its steps ----

Ticket CudaBackend::record_transfer() {
  std::erase_if(transfers_, [](const auto& known) { return cudaEventQuery(known.second->get()) == cudaSuccess; });
  auto event = std::make_unique<Event>();
  event->record(stream_);
  transfers_.emplace_back(++last_transfer_, std::move(event));
  return last_transfer_;
}

Ticket CudaBackend::start_export_block(std::int32_t group, std::int32_t block, std::span<std::byte> out) {
  require(group >= 0 && as_size(group) < kv_.size(), "a transfer of no KV group");
  require(block >= 0 && block < cache_.blocks[as_size(group)], "a transfer of a block that is not there");
  require(out.size() == kv_[as_size(group)].block_bytes, "export of a block into a buffer of another size");
  device_.make_current();
  check(cudaMemcpyAsync(out.data(), block_place(group, block), out.size(), cudaMemcpyDeviceToHost, stream_.get()),
        "export of a block");
  return record_transfer();
}

Ticket CudaBackend::start_import_block(std::int32_t group, std::int32_t block, std::span<const std::byte> in) {
  require(group >= 0 && as_size(group) < kv_.size(), "a transfer of no KV group");
  require(block >= 0 && block < cache_.blocks[as_size(group)], "a transfer of a block that is not there");
  require(in.size() == kv_[as_size(group)].block_bytes, "import of a block of another size");
  device_.make_current();
  check(cudaMemcpyAsync(block_place(group, block), in.data(), in.size(), cudaMemcpyHostToDevice, stream_.get()),
        "import of a block");
  return record_transfer();
}

Ticket CudaBackend::start_export_slot(std::int32_t slot, std::span<std::byte> out) {
  require(slot >= 0 && slot < cache_.state_slots && states_.data() != nullptr, "export of a slot that is not there");
  require(out.size() == slot_bytes_, "export of a slot into a buffer of another size");
  device_.make_current();
  check(cudaMemcpyAsync(out.data(), slot_place(slot), out.size(), cudaMemcpyDeviceToHost, stream_.get()),
        "export of a slot");
  return record_transfer();
}

Ticket CudaBackend::start_import_slot(std::int32_t slot, std::span<const std::byte> in) {
  require(slot >= 0 && slot < cache_.state_slots && states_.data() != nullptr, "import of a slot that is not there");
  require(in.size() == slot_bytes_, "import of a slot of another size");
  device_.make_current();
  check(cudaMemcpyAsync(slot_place(slot), in.data(), in.size(), cudaMemcpyHostToDevice, stream_.get()),
        "import of a slot");
  return record_transfer();
}

bool CudaBackend::transfer_done(Ticket ticket) {
  require(ticket >= 1 && ticket <= last_transfer_, "a transfer that was never started");
  const auto found = std::ranges::find(transfers_, ticket, [](const auto& known) { return known.first; });
  if (found == transfers_.end()) return true;
  device_.make_current();
  const cudaError_t status = cudaEventQuery(found->second->get());
  if (status == cudaErrorNotReady) return false;
  check(status, "transfer of a block");
  return true;
}

void CudaBackend::await_transfer(Ticket ticket) {
  require(ticket >= 1 && ticket <= last_transfer_, "a transfer that was never started");
  const auto found = std::ranges::find(transfers_, ticket, [](const auto& known) { return known.first; });
  if (found == transfers_.end()) return;
  device_.make_current();
  found->second->synchronize();
}

void CudaBackend::set_profiling(bool on) {
  if (on) times_.clear();
  profiling_ = on;
}

std::vector<OpTime> CudaBackend::profile() const {
  std::vector<OpTime> times;
  for (const auto& [name, time] : times_) times.push_back(time);
  return times;
}

BackendCounters CudaBackend::counters() const noexcept {
  return {.kv_saturated = saturated_.load(), .weights_saturated = weights_.saturated()};
}

}  // namespace quarrel::cuda
