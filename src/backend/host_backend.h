// What every backend on the host shares: the copied step, F32 activations, the KV cache and state memory, sampling,
// profiling. `reference` and `cpu` derive from it and add the arithmetic. Steps run inside `submit`, on the calling
// thread; `wait` only hands over the results.
#pragma once

#include <chrono>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/aligned_buffer.h"

namespace quarrel {

// A sequence of the running step, with tables that the step owns.
struct HostSequence {
  std::vector<std::vector<std::int32_t>> tables;  // [group][entry]
  std::int32_t length = 0;
  std::int32_t state_in = -1;
  std::int32_t state_out = -1;
};

struct HostOutput {
  std::int32_t row = 0;
  bool wants_sample = false;
  SampleRequest sample;
  std::vector<TokenCount> seen;     // what sample.seen points at
  std::vector<std::uint64_t> mask;  // what sample.mask points at
  float* logits = nullptr;
  float* embedding = nullptr;
};

class HostBackend : public Backend {
 public:
  static constexpr std::int32_t kBlockTokens = 16;

  explicit HostBackend(bool plan_only) noexcept : plan_only_(plan_only) {}

  Activation make_activation(std::int32_t width, RowSet rows) override;
  void reserve(const StepLimits& limits, std::int32_t vocabulary) override;
  std::size_t workspace_bytes(const StepLimits& limits, std::int32_t vocabulary) const noexcept override;
  Rope prepare_rope(const RopeSource& source) override;

  std::int32_t block_tokens() const noexcept override { return kBlockTokens; }
  std::size_t kv_bytes(const KvGroup& group, KvType type) const noexcept override;
  std::size_t state_bytes(std::span<const StateLayer> layers) const noexcept override;
  void allocate_cache(const CacheConfig& config) override;
  void copy_block(std::int32_t group, std::int32_t from, std::int32_t to) override;
  void copy_slot(std::int32_t from, std::int32_t to) override;
  void export_block(std::int32_t group, std::int32_t block, std::span<std::byte> out) const override;
  void import_block(std::int32_t group, std::int32_t block, std::span<const std::byte> in) override;
  void export_slot(std::int32_t slot, std::span<std::byte> out) const override;
  void import_slot(std::int32_t slot, std::span<const std::byte> in) override;

  StepShape shape_of(const Step& step) const noexcept override;
  Ticket submit(const Step& step, const Forward& forward) override;
  StepResults wait(Ticket ticket) override;

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

 protected:
  struct RopeTable {
    RopeKind kind;
    std::vector<double> frequencies;
    double magnitude;
  };

  // What an op cannot do without: see OpTime.
  struct Work {
    std::uint64_t bytes = 0;
    std::uint64_t macs = 0;
    std::uint64_t quantised_macs = 0;
  };

  // Adds the time until its end to a kind of op, when profiling is on. The op may say what it has to do; nothing is
  // counted when profiling is off.
  class Timer {
   public:
    Timer(HostBackend& backend, std::string_view name);
    ~Timer();
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;

    // `rows` rows meet each of these weights; those that are none do not count. Of experts `read` are read, and a row
    // counts once for each that it meets.
    void products(std::size_t rows, std::initializer_list<Weight> weights, std::size_t read = 1);
    void embedding(const EmbedOp& op);
    void attention(const AttendOp& op);
    void convolution(const SsmOp& op);
    void scan(const SsmOp& op);

   private:
    void add(const Work& work);

    HostBackend* backend_;  // null when profiling is off
    std::string_view name_;
    std::chrono::steady_clock::time_point start_;
  };

  // What a projection is called in a profile.
  static std::string_view profile_name(const LinearOp& op) noexcept;

  // What a weight's matrix takes where it is read from, one expert's if it has several.
  struct WeightSize {
    std::size_t bytes = 0;
    bool quantised = false;
  };
  virtual WeightSize weight_size(const Weight& weight) const = 0;

  // Norms one row; false if its sum of squares was not finite. `out` may be `in`.
  virtual bool norm_row(const Norm& norm, const float* in, float* out, std::size_t count) const = 0;
  // All values of a weight of role `vector`.
  virtual std::span<const float> vector_values(const Weight& weight) const = 0;

  // What looks through the logits, and with how many threads: run_for_each calls task(i) for every i below `count`.
  virtual const SamplingKernels& sampling_kernels() const noexcept { return plain_sampling_kernels(); }
  virtual void run_for_each(std::size_t count, const std::function<void(std::size_t)>& task) {
    for (std::size_t i = 0; i < count; ++i) task(i);
  }

  // Called around the forward of each step: take the device's turn, wake workers.
  virtual void begin_step() {}
  virtual void end_step() {}

  // ---- The running step ----
  const StepShape& shape() const noexcept { return shape_; }
  std::int32_t row_count(RowSet rows) const noexcept { return rows == RowSet::all ? shape_.rows() : shape_.outputs(); }
  // How many of an activation's rows are of class generated: they come first.
  std::int32_t generated_count(RowSet rows) const noexcept {
    return rows == RowSet::all ? shape_.generated_rows : shape_.generated_outputs;
  }
  std::span<const std::int32_t> tokens() const noexcept { return tokens_; }
  std::span<const StepRow> rows() const noexcept { return rows_; }
  const HostSequence& sequence_of(std::int32_t row) const noexcept {
    return sequences_[static_cast<std::size_t>(rows_[static_cast<std::size_t>(row)].sequence)];
  }
  std::span<HostOutput> outputs() noexcept { return outputs_; }
  std::span<const StateSnapshot> snapshots() const noexcept { return snapshots_; }
  void flag_bad_row(RowSet rows, std::int32_t row, std::int32_t layer) noexcept;

  // ---- Memory ----
  float* data(const Activation& activation) noexcept;  // [rows][width], rows 64-byte aligned only if width allows
  float* row(const Activation& activation, std::int32_t index) noexcept;
  float* logits_row(std::int32_t index) noexcept;  // of the current slice
  std::byte* key_at(std::int32_t group, std::int32_t layer, std::int32_t block, std::int32_t head,
                    std::int32_t slot) noexcept;
  std::byte* value_at(std::int32_t group, std::int32_t layer, std::int32_t block, std::int32_t head,
                      std::int32_t slot) noexcept;
  KvType kv_type() const noexcept { return cache_.kv_type; }
  const CacheConfig& cache() const noexcept { return cache_; }
  // A slot's state in a layer; `scan` begins after the convolution's values.
  float* conv_state(std::int32_t slot, std::int32_t state_layer) noexcept;
  float* scan_state(std::int32_t slot, std::int32_t state_layer) noexcept;
  const RopeTable& rope_table(const Rope& rope) const noexcept { return ropes_[static_cast<std::size_t>(rope.id)]; }
  bool plan_only() const noexcept { return plan_only_; }
  // Refuses a weight that no backend on the host could use: sizes out of range, a row that is no whole number of
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

 private:
  void load_step(const Step& step);
  Work attention_work(const AttendOp& op) const;
  void rank(const PoolOp& op, std::span<double> row, float* out) const;
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
  StepLimits limits_{.rows = 0, .outputs = 0};
  std::int32_t vocabulary_ = 0;
  AlignedBuffer logits_;

  CacheConfig cache_;
  std::vector<AlignedBuffer> kv_;         // one a group
  std::vector<std::size_t> block_bytes_;  // one a group
  AlignedBuffer states_;
  std::size_t slot_bytes_ = 0;
  std::vector<std::size_t> state_offsets_;  // of each recurrent layer in a slot, in floats

  StepShape shape_;
  std::vector<StepRow> rows_;
  std::vector<std::int32_t> tokens_;  // resolved
  std::vector<HostSequence> sequences_;
  std::vector<HostOutput> outputs_;
  std::vector<StateSnapshot> snapshots_;
  StepResults results_;
  std::vector<TokenId> last_sampled_;  // by output of the step before
  Ticket last_ticket_ = 0;
  std::map<Ticket, StepResults> finished_;

  BackendCounters counters_;
  std::map<std::int32_t, std::vector<std::uint64_t>> expert_use_;  // by layer
  bool profiling_ = false;
  std::map<std::string_view, OpTime> times_;
};

}  // namespace quarrel
