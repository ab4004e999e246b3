// What every backend on the host shares: the step, padded where `shape_of` rounds it up, F32 activations, the KV cache
// and state memory, lanes, sampling, pooling, profiling. `reference` and `cpu` derive from it and add the arithmetic.
// Steps run inside `submit`, on the calling thread; `wait` only hands over the results.
//
// A padded step has extra rows after those of each class. An op may compute them like any other, since nobody reads
// the results, but skips them where it would touch the cache, a state or a count.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "backend/device_lock.h"
#include "backend/op_work.h"
#include "backend/sampler_state.h"
#include "backend/step_check.h"
#include "base/aligned_buffer.h"

namespace quarrel {

// A row whose result is wanted; padding has none.
struct HostOutput {
  std::int32_t row = -1;           // of the padded step; -1: padding
  std::int32_t index = -1;         // among the outputs of the step as it came
  std::int32_t logits_place = -1;  // among the logits that are returned; -1: none are
  std::int32_t vector_place = -1;  // the same for vectors
  const StepOutput* wanted = nullptr;
};

class HostBackend : public Backend {
 public:
  static constexpr std::int32_t kBlockTokens = 16;

  static constexpr std::int32_t kLogitRows = 64;

  HostBackend(DeviceLock& lock, bool plan_only) : plan_only_(plan_only), user_(lock) {}

  Activation make_activation(std::int32_t width, RowSet rows) override;
  void reserve(const StepLimits& limits, std::int32_t vocabulary) override;
  std::size_t workspace_bytes(const StepLimits& limits, std::int32_t vocabulary) const noexcept override;
  Rope prepare_rope(const RopeSource& source) override;

  std::int32_t block_tokens() const noexcept override { return kBlockTokens; }
  std::size_t kv_bytes(const KvGroup& group, KvType type) const noexcept override;
  std::size_t state_bytes(std::span<const StateLayer> layers) const noexcept override;
  void allocate_cache(const CacheConfig& config) override;
  // Transfers are done when they are started.
  Ticket start_export_block(std::int32_t group, std::int32_t block, std::span<std::byte> out) override;
  Ticket start_import_block(std::int32_t group, std::int32_t block, std::span<const std::byte> in) override;
  Ticket start_export_slot(std::int32_t slot, std::span<std::byte> out) override;
  Ticket start_import_slot(std::int32_t slot, std::span<const std::byte> in) override;
  bool transfer_done(Ticket ticket) override;
  void await_transfer(Ticket ticket) override;

  StepShape shape_of(const Step& step) const noexcept override;
  Ticket submit(const Step& step, const Forward& forward) override;
  StepResults wait(Ticket ticket) override;
  std::int32_t logit_rows() const noexcept override { return kLogitRows; }
  std::int64_t pace() const override { return user_.pace(); }

  void set_profiling(bool on) override;
  std::vector<OpTime> profile() const override;
  BackendCounters counters() const noexcept override { return counters_; }
  std::vector<ExpertUse> expert_use() const override;
  std::size_t released_bytes() const noexcept override { return 0; }
  std::size_t expert_cache_bytes() const noexcept override { return 0; }
  std::size_t expert_workspace_bytes(const StepLimits& /*limits*/) const noexcept override { return 0; }

  void select_rows(const SelectRowsOp& op) override;
  void sample(const SampleOp& op) override;
  void pool(const PoolOp& op) override;

  // ---- What the parts of a backend ask of the step and its memory; nobody else holds a HostBackend ----

  struct RopeTable {
    RopeKind kind;
    std::vector<double> frequencies;
    double magnitude;
  };

  // Adds the time until its destruction to a kind of op. The op may say how much work it has. Nothing is counted when
  // profiling is off.
  class Timer {
   public:
    Timer(HostBackend& backend, std::string_view name);
    ~Timer();
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;

    // `rows` rows are multiplied with each of these weights; those that are none do not count. Of experts `read` are
    // read, and a row counts once for each that it goes to.
    void gemm(std::size_t rows, std::initializer_list<Weight> weights, std::size_t read = 1);
    void embedding(const EmbedOp& op);
    void attention(const AttendOp& op);
    void convolution(const SsmOp& op);
    void scan(const SsmOp& op);

   private:
    void add(const OpWork& work);

    HostBackend* backend_;  // null when profiling is off
    std::string_view name_;
    std::chrono::steady_clock::time_point start_;
  };

  // ---- The running step, with its padding ----
  const StepShape& shape() const noexcept { return shape_; }
  std::int32_t row_count(RowSet rows) const noexcept { return rows == RowSet::all ? shape_.rows() : shape_.outputs(); }
  // How many of an activation's rows are of class generated: they come first.
  std::int32_t generated_count(RowSet rows) const noexcept {
    return rows == RowSet::all ? shape_.generated_rows : shape_.generated_outputs;
  }
  std::span<const std::int32_t> tokens() const noexcept { return tokens_; }
  std::span<const StepRow> rows() const noexcept { return rows_; }  // padding has no sequence: -1
  bool is_padding(RowSet rows, std::int32_t row) const noexcept {
    const auto index = static_cast<std::size_t>(row);
    return rows == RowSet::all ? rows_[index].sequence < 0 : outputs_[index].row < 0;
  }
  std::span<const StepSequence> sequences() const noexcept { return sequences_; }
  const StepSequence& sequence_of(std::int32_t row) const noexcept {  // of a row that is no padding
    return sequences_[static_cast<std::size_t>(rows_[static_cast<std::size_t>(row)].sequence)];
  }
  std::span<const std::int32_t> table_of(std::int32_t row, std::int32_t group) const noexcept {
    return sequence_of(row).tables[static_cast<std::size_t>(group)].blocks;
  }
  std::span<const HostOutput> outputs() const noexcept { return outputs_; }
  std::span<const StateSnapshot> snapshots() const noexcept { return snapshots_; }
  void flag_bad_row(RowSet rows, std::int32_t row, std::int32_t layer) noexcept;
  // Makes room for the step's vectors, all of that width; before the first of them is written.
  void begin_vectors(std::int32_t width);
  float* output_vector(const HostOutput& output) noexcept;  // null: none is wanted
  // Whether some output of a slice wants more than its vector.
  bool wants_logits(std::int32_t slice) const noexcept;

  // ---- Memory ----
  float* data(const Activation& activation) noexcept;  // [rows][width], rows 64-byte aligned only if width allows
  float* row(const Activation& activation, std::int32_t index) noexcept;
  float* logits_row(std::int32_t index) noexcept;  // of the current slice
  // Of the position at `offset` in a KV block.
  std::byte* key_at(std::int32_t group, std::int32_t layer, std::int32_t block, std::int32_t head,
                    std::int32_t offset) noexcept;
  std::byte* value_at(std::int32_t group, std::int32_t layer, std::int32_t block, std::int32_t head,
                      std::int32_t offset) noexcept;
  KvType kv_type() const noexcept { return cache_.kv_type; }
  const CacheConfig& cache() const noexcept { return cache_; }
  // A slot's state in a layer; `scan` begins after the convolution's values.
  float* conv_state(std::int32_t slot, std::int32_t state_layer) noexcept;
  float* scan_state(std::int32_t slot, std::int32_t state_layer) noexcept;
  const RopeTable& rope_table(const Rope& rope) const noexcept { return ropes_[static_cast<std::size_t>(rope.id)]; }
  bool plan_only() const noexcept { return plan_only_; }
  // Refuses a weight that no backend on the host could use: sizes out of range, a row that is not a whole number of
  // blocks, rows that overlap, places that are missing.
  void check_weight(const WeightSource& source) const;
  // Bytes from a row of a checked weight to the next.
  static std::size_t row_stride(const WeightSource& source);
  // Where each expert of a checked weight begins; a weight that is none has one.
  static std::vector<ExpertPlace> expert_places(const WeightSource& source);
  // All values of a weight of role `vector`, and the memory they take.
  static std::vector<float> decode_vector(const WeightSource& source);
  static std::size_t vector_bytes(const WeightSource& source);
  void count_saturated(std::uint64_t values) noexcept { counters_.kv_saturated += values; }
  // Notes which of a layer's experts were chosen.
  void count_experts(std::int32_t layer, std::int32_t experts, std::span<const std::int32_t> chosen);

 protected:
  virtual WeightSize weight_size(const Weight& weight) const = 0;

  // Norms one row; false if its sum of squares was not finite. `out` may be `in`.
  virtual bool norm_row(const Norm& norm, const float* in, float* out, std::size_t count) const = 0;
  // All values of a weight of role `vector`.
  virtual std::span<const float> vector_values(const Weight& weight) const = 0;

  // The loops over the logits, and their threads: run_for_each calls task(i) for every i below `count`.
  virtual const SamplingKernels& sampling_kernels() const noexcept { return scalar_sampling_kernels(); }
  virtual void run_for_each(std::size_t count, const std::function<void(std::size_t)>& task) {
    for (std::size_t i = 0; i < count; ++i) task(i);
  }

  // Called before the forward of each step, when the device lock is held.
  virtual void begin_step() {}
  // Called when a step gets the device and when it releases it: at its start and end, and where it gives way.
  virtual void enter_device() {}
  virtual void leave_device() {}

  // Between two ops of a long step: lets the shorter steps of other models go first, if any wait. A step is one unit to
  // whoever submits it, so nothing that an op keeps for the next may lie in what backends of a device share.
  void give_way();

 private:
  // What a branch carries from step to step.
  struct Lane {
    SamplerState sampler;
    Pooling pooling = Pooling::none;  // none: it samples
    std::int64_t rows = 0;            // gathered so far
    std::vector<double> sum;          // of them, or the one that counts
  };
  // Results of a step live in buffers that are used again two steps later.
  struct ResultMemory {
    std::vector<float> logits;
    std::vector<float> vectors;
  };

  void load_step(const Step& step);
  void load_outputs(const Step& step);
  void copy_blocks(const Step& step);
  void start_lanes(const Step& step);
  void run_step(const Step& step, const Forward& forward);
  void finish_step(const Step& step);
  void gather(const PoolOp& op, std::int32_t first, std::int32_t count, float* normed);
  void rank(const PoolOp& op, std::span<const double> row, float* out) const;
  std::span<std::byte> slot_span(std::int32_t slot);
  ResultMemory& result_memory() noexcept { return result_memory_[(last_ticket_ + 1) % 2]; }
  std::size_t kv_element_bytes(KvType type) const noexcept { return type == KvType::f32 ? 4 : 2; }
  std::span<std::byte> block_span(std::int32_t group, std::int32_t block);

  struct ActivationSlot {
    std::int32_t width;
    RowSet rows;
    AlignedBuffer memory;
  };
  const bool plan_only_;
  std::vector<ActivationSlot> activations_;
  std::vector<RopeTable> ropes_;
  std::int32_t vocabulary_ = 0;
  AlignedBuffer logits_;

  CacheConfig cache_;
  std::vector<AlignedBuffer> kv_;         // one a group
  std::vector<std::size_t> block_bytes_;  // one a group
  AlignedBuffer states_;
  std::size_t slot_bytes_ = 0;
  std::vector<std::size_t> state_offsets_;  // of each recurrent layer in a slot, in floats

  DeviceLock::User user_;
  DeviceLock::Hold* hold_ = nullptr;  // the running step's
  StepCheck check_;
  std::vector<Lane> lanes_;

  StepShape shape_;
  std::vector<StepRow> rows_;
  std::vector<std::int32_t> tokens_;         // resolved
  std::vector<std::int32_t> origins_;        // each row's place in the step as it came; -1: padding
  std::span<const StepSequence> sequences_;  // the caller's, while it submits
  std::vector<HostOutput> outputs_;
  std::int32_t logits_wanted_ = 0;
  std::int32_t vectors_wanted_ = 0;
  std::vector<StateSnapshot> snapshots_;
  StepResults results_;
  std::array<ResultMemory, 2> result_memory_;  // by parity of the ticket
  std::int32_t logit_width_ = 0;               // of the step's logits; 0: none were computed
  std::int32_t vector_width_ = 0;              // the same for vectors
  std::vector<float> pool_scratch_;
  std::vector<TokenId> last_sampled_;  // by output of the step before
  Ticket last_ticket_ = 0;
  Ticket last_transfer_ = 0;
  struct Finished {
    Ticket ticket = 0;  // 0: there is none
    StepResults results;
  };
  std::array<Finished, 2> finished_;

  BackendCounters counters_;
  std::map<std::int32_t, std::vector<std::uint64_t>> expert_use_;  // by layer
  bool profiling_ = false;
  // There are fewer kinds of op than this. Fixed, so that the end of an op needs no memory.
  std::array<OpTime, 32> times_ = {};
  std::size_t times_used_ = 0;
  OpTime* time_of(std::string_view name) noexcept;  // null: there is no room for another name
};

}  // namespace quarrel
