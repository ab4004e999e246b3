// The contract between models and machines. A Device is the machine's part (workers or a stream, memory); a Backend is
// one model's part on a Device: its prepared weights, its KV cache, its workspace, and the ops. Implemented by
// `reference` (plain loops in F32 with double sums: the meaning of every op), `cpu`, and `cuda`.
//
// Threads: a Device may be shared by several Backends. On the host their steps hold the device lock one at a time, in
// order of arrival; a GPU has a stream for each and interleaves them itself. One Backend is driven by one thread at a
// time. Ops may only be called from inside the forward function given to `submit`, which may run on a thread of the
// backend's own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/ops.h"
#include "backend/step.h"
#include "base/mapped_file.h"
#include "quant/types.h"

namespace quarrel {

// What a weight is for: how it is laid out, and along which side it could be split over devices.
enum class WeightRole : std::uint8_t {
  embedding,        // rows are looked up by token (and multiplied with, when tied)
  vector,           // norms, biases, sinks, scan parameters: dequantised to F32 at once, so the source may go
  head,             // gives the logits; each out row is independent
  column_parallel,  // each out row is independent: q, k, v, gate, up
  row_parallel,     // partial sums would be added: attention output, down
  expert_column,    // the same for stacked experts
  expert_row,
};

constexpr bool is_expert(WeightRole role) noexcept {
  return role == WeightRole::expert_column || role == WeightRole::expert_row;
}

// Where one expert's rows lie: in mapped memory and, for backends that read instead, where in which file.
struct ExpertPlace {
  const std::byte* data = nullptr;
  const MappedFile* file = nullptr;  // null: only in memory
  std::uint64_t offset = 0;
};

struct WeightSource {
  std::string_view name;  // for messages
  WeightRole role = WeightRole::column_parallel;
  QuantType type = QuantType::f32;
  std::int64_t rows = 1;     // of one expert
  std::int64_t columns = 0;  // a multiple of the type's block
  std::int64_t experts = 1;
  const std::byte* data = nullptr;           // must outlive the backend: weights may be read in place
  std::size_t row_stride = 0;                // bytes from a row to the next; 0: rows lie one after the other
  std::span<const ExpertPlace> places = {};  // one per expert, instead of `data`; empty: experts are contiguous
  // For the two expert roles: the matrices of a layer are kept together, with room for the experts that a row uses.
  std::int32_t layer = 0;
  std::int32_t experts_used = 1;
};

enum class RopeKind : std::uint8_t {
  interleaved,  // pairs (0,1), (2,3) …
  half,         // pairs (0, n/2), (1, n/2 + 1) …
};

struct RopeSource {
  RopeKind kind = RopeKind::interleaved;
  std::span<const double>
      frequencies;         // radians per position, one per pair; dimensions beyond the pairs are not rotated
  double magnitude = 1.0;  // factor on cos and sin
};

enum class KvType : std::uint8_t { f32, f16 };

// Layers that see the same window share block tables: one block id serves them all.
struct KvGroup {
  std::int32_t layers = 0;
  std::int32_t kv_heads = 0;
  std::int32_t key_dim = 0;
  std::int32_t value_dim = 0;
  std::int32_t window = 0;
};

// Recurrent state of one sequence in one layer, F32.
struct StateLayer {
  std::int64_t conv_values = 0;
  std::int64_t scan_values = 0;
};

struct CacheConfig {
  std::vector<KvGroup> groups = {};
  std::vector<StateLayer> state_layers = {};
  KvType kv_type = KvType::f16;
  std::vector<std::int32_t> blocks = {};  // of each group
  std::int32_t state_slots = 0;
};

using Ticket = std::uint64_t;

// How long each kind of op took since profiling was switched on, and the work that it could not avoid: bytes of
// weights, cache and state read once, and multiply-adds.
struct OpTime {
  std::string_view name;
  double seconds = 0.0;
  std::uint64_t calls = 0;
  std::uint64_t bytes = 0;
  std::uint64_t macs = 0;
  std::uint64_t quantised_macs = 0;  // of `macs`, those with weights of a quantised type
};

struct BackendCounters {
  std::uint64_t kv_saturated = 0;       // values clamped to ±65504 when written to an F16 cache
  std::uint64_t weights_saturated = 0;  // the same of weights that a device keeps in F16
  // Of the expert cache, where there is one. A hit found its expert in memory.
  std::uint64_t expert_hits = 0;
  std::uint64_t expert_misses = 0;
  std::uint64_t expert_bytes_read = 0;
};

// How often each expert of a layer was chosen: the counts sum to experts used x rows.
struct ExpertUse {
  std::int32_t layer = 0;
  std::vector<std::uint64_t> chosen;
};

class Backend {
 public:
  // Issues a step's ops. It may depend on the shape and on nothing else that changes from step to step.
  using Forward = std::function<void(Backend&, const StepShape&)>;

  virtual ~Backend() = default;
  virtual std::string_view name() const noexcept = 0;

  // ---- Weights and workspace: before the first step ----
  // May return a private repacked copy or keep reading the source. Throws Error(unsupported, out_of_memory).
  virtual Weight prepare_weight(const WeightSource& source) = 0;
  virtual Rope prepare_rope(const RopeSource& source) = 0;
  virtual Activation make_activation(std::int32_t width, RowSet rows) = 0;
  // Makes room for steps up to `limits` with a vocabulary of that size; after all weights and activations.
  virtual void reserve(const StepLimits& limits, std::int32_t vocabulary) = 0;
  virtual std::size_t prepared_bytes() const noexcept = 0;  // memory held for weights beyond their source
  virtual std::size_t released_bytes() const noexcept = 0;  // of sources that are not read again
  // Of the prepared bytes: copies that BackendOptions::mirrors leaves out.
  virtual std::size_t mirror_bytes() const noexcept { return 0; }
  virtual std::size_t expert_cache_bytes() const noexcept = 0;  // what the expert cache may take; 0: there is none
  // What `reserve` allocates. Logits and vectors that steps return come on top, once they are asked for.
  virtual std::size_t workspace_bytes(const StepLimits& limits, std::int32_t vocabulary) const noexcept = 0;
  virtual std::size_t expert_workspace_bytes(const StepLimits& limits) const noexcept = 0;  // the experts' part of that

  // ---- KV blocks and state slots: the layout is the backend's own ----
  virtual std::int32_t block_tokens() const noexcept = 0;
  virtual std::size_t kv_bytes(const KvGroup& group, KvType type) const noexcept = 0;      // of one block
  virtual std::size_t state_bytes(std::span<const StateLayer> layers) const noexcept = 0;  // of one slot
  virtual void allocate_cache(const CacheConfig& config) = 0;

  // ---- Blocks and slots as bytes, between the device and main memory ----
  // Ordered with steps: after those submitted before, before those submitted after. `out` and `in` belong to the
  // backend until the transfer is done. Throws Error(internal) for a place that does not exist or a span of another
  // size.
  virtual Ticket start_export_block(std::int32_t group, std::int32_t block, std::span<std::byte> out) = 0;
  virtual Ticket start_import_block(std::int32_t group, std::int32_t block, std::span<const std::byte> in) = 0;
  virtual Ticket start_export_slot(std::int32_t slot, std::span<std::byte> out) = 0;
  virtual Ticket start_import_slot(std::int32_t slot, std::span<const std::byte> in) = 0;
  virtual bool transfer_done(Ticket ticket) = 0;
  virtual void await_transfer(Ticket ticket) = 0;  // throws what it failed with

  // ---- Steps ----
  // The shape this step runs under: its own, or the next larger bucket of a backend that replays captured graphs.
  virtual StepShape shape_of(const Step& step) const noexcept = 0;
  // How many rows of logits there is room for: `head` and `sample` are issued for slices of at most that many outputs.
  virtual std::int32_t logit_rows() const noexcept = 0;
  // Copies what it needs of `step`, then runs `forward` (or replays what it captured for this shape), perhaps after
  // `submit` has returned: `forward` must stay valid until the step was awaited. At most two tickets may be open:
  // results can be awaited one step late.
  //
  // A step that fails throws from `submit` (then later steps notice nothing, except that its lanes have started) or
  // from `wait`: then steps that were submitted after it in the meantime fail too, and what they would have written to
  // the cache, to state slots and lanes has to be computed again.
  virtual Ticket submit(const Step& step, const Forward& forward) = 0;
  virtual StepResults wait(Ticket ticket) = 0;
  // How many steps should be open so that the device never waits for the host: 2 where steps run asynchronously.
  virtual std::int32_t steps_in_flight() const noexcept { return 1; }
  // How long the steps of other models take that use the same device now or did a moment ago: the shortest of their
  // typical times in microseconds. 0: there are none. Safe from any thread.
  virtual std::int64_t pace() const = 0;

  // ---- Measuring ----
  virtual void set_profiling(bool on) = 0;
  // Whether steps are slower while it is on: then they say nothing of the model's speed.
  virtual bool profiling_costs() const noexcept { return false; }
  virtual std::vector<OpTime> profile() const = 0;
  virtual BackendCounters counters() const noexcept = 0;
  virtual std::vector<ExpertUse> expert_use() const = 0;  // by layer, since the backend was made

  // ---- Ops ----
  virtual void embed(const EmbedOp& op) = 0;
  virtual void norm(const NormOp& op) = 0;
  virtual void qkv(const QkvOp& op) = 0;
  virtual void attend(const AttendOp& op) = 0;
  virtual void linear(const LinearOp& op) = 0;
  virtual void glu(const GluOp& op) = 0;
  virtual void moe(const MoeOp& op) = 0;
  virtual void ssm(const SsmOp& op) = 0;
  virtual void select_rows(const SelectRowsOp& op) = 0;
  virtual void head(const HeadOp& op) = 0;
  virtual void sample(const SampleOp& op) = 0;
  virtual void pool(const PoolOp& op) = 0;
};

// The form of activations that are multiplied with quantised weights: int8 with a scale every 32 values, F16 or F32.
// Generated rows, where they are int8 at all, always have the residual too (a hi/lo split into two int8).
enum class ActivationPrecision : std::uint8_t {
  outlier_groups,  // prompt rows have the split in groups with outliers: nearly as good as int8_split, nearly as fast
                   // as int8
  int8_split,      // prompt rows have it everywhere
  int8,            // prompt rows have it nowhere: as coarse as int8 is
  f16,             // weight-only quantisation on a GPU: activations are F16 for both classes
  f32,             // weight-only quantisation: activations stay F32 for both classes
};

// As the command line has them.
constexpr std::string_view name_of(ActivationPrecision activations) noexcept {
  switch (activations) {
    case ActivationPrecision::outlier_groups: return "auto";
    case ActivationPrecision::int8_split: return "int8x2";
    case ActivationPrecision::int8: return "int8";
    case ActivationPrecision::f16: return "f16";
    case ActivationPrecision::f32: break;
  }
  return "f32";
}

// Of the CPU backend; others heed `on_repacked` alone.
struct CpuBackendOptions {
  // Weights are copied into the layout that the machine reads fastest; false: they are used where they lie, which is
  // slower but takes no memory of this process.
  bool repack = true;
  // Bytes that experts may take: they are then read into a cache as they are chosen, and the least recently used are
  // dropped.
  // None: experts are used where they lie.
  std::optional<std::size_t> expert_memory = {};
  // Called from the loading thread after each weight that was repacked or uploaded, with released_bytes() so far.
  std::function<void(std::uint64_t)> on_repacked = {};
};

struct BackendOptions {
  // Where a device does not support it (Device::supports), activations are more exact than asked for; where it has
  // nothing so exact, plan_memory() refuses.
  ActivationPrecision activations = ActivationPrecision::outlier_groups;
  // A row's bits must not depend on other rows of its step. This always holds for backends on the host; others become
  // slower with it.
  bool deterministic = false;
  // Copies of packed weights in 16 bits beside them, with which large batches are faster, where a backend makes such.
  bool mirrors = true;
  // False: steps are never replayed from what was captured of them. For measuring what that gains.
  bool graphs = true;
  // Only adds up sizes: weights are neither read nor dequantised, and no step may be submitted.
  bool plan_only = false;
  CpuBackendOptions cpu = {};
};

// What a device can do at best, measured.
struct DeviceSpeed {
  double copy_bytes_per_s = 0.0;  // read and written within its memory
  double gemm_flops_per_s = 0.0;  // of F16 matrices
  double peak_bytes_per_s = 0.0;  // what its memory's clock and bus come to; 0: unknown
  std::size_t cache_bytes = 0;    // its last cache
};

// How a device does at the moment; none: nobody can say.
struct DeviceState {
  std::optional<double> busy = {};  // the share of the last moments in which it computed
  std::optional<double> clock_hz = {};
  std::optional<double> memory_clock_hz = {};
  std::optional<double> watts = {};
  std::size_t memory_used = 0;  // by everybody
  std::size_t memory_total = 0;
  std::string missing = {};  // why load, clocks and power are not known, if they are not
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string_view name() const noexcept = 0;          // "reference", "cpu", "cuda"
  virtual std::int32_t ordinal() const noexcept { return 0; }  // which of several of its name
  virtual std::string description() const = 0;                 // for people: "cpu (avx512, 2 threads)"
  virtual KvType default_kv_type() const noexcept = 0;
  // Whether it has kernels for activations of that precision.
  virtual bool supports(ActivationPrecision activations) const noexcept = 0;
  // For people: what it multiplies quantised weights with where that was asked for.
  virtual std::string_view activations_used(ActivationPrecision asked) const noexcept { return name_of(asked); }
  virtual std::size_t memory_available() const = 0;               // bytes this process could still take; 0: unknown
  virtual std::size_t memory_total() const = 0;                   // bytes in total; 0: unknown
  virtual bool has_own_memory() const noexcept { return false; }  // and not the machine's
  // The device must outlive its backends.
  virtual std::unique_ptr<Backend> make_backend(const BackendOptions& options) = 0;
  // Of a device that is not the machine itself. It takes some of the device's memory, and a second.
  virtual std::optional<DeviceSpeed> measure_speed() { return std::nullopt; }
  virtual std::optional<DeviceState> state() const { return std::nullopt; }
  // The default for the most rows of a step: enough to use the device well.
  virtual std::int32_t batch_rows() const noexcept { return 512; }

  // Whether Error(device_lost) has occurred on it: a server that uses it should end and be restarted. Any thread.
  bool lost() const noexcept { return lost_; }
  void mark_lost() noexcept { lost_ = true; }

  // Where models go that are too large for it: made when it is first asked for, shared by all of them. Null: nowhere,
  // they are refused. Any thread; `make` is set before the device is shared.
  std::shared_ptr<Device> fallback() {
    const std::scoped_lock lock(fallback_mutex_);
    if (fallback_ == nullptr && make_fallback_) fallback_ = make_fallback_();
    return fallback_;
  }
  bool has_fallback() const noexcept { return make_fallback_ != nullptr; }
  void set_fallback(std::function<std::shared_ptr<Device>()> make) { make_fallback_ = std::move(make); }

 private:
  std::atomic<bool> lost_ = false;
  std::mutex fallback_mutex_;
  std::function<std::shared_ptr<Device>()> make_fallback_;
  std::shared_ptr<Device> fallback_;
};

}  // namespace quarrel
