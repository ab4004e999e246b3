// The CPU backend: ops as parallel loops over a level's kernels. Weights keep their quantised form; at load time they
// are copied into panels that a vector's lanes read side by side, each part by the worker that will read it.
// Each op is one or two regions of the device's thread pool; a matrix's rows are split evenly and in the same way every
// time, so a worker meets the same weights again at the next token.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/cpu/expert_cache.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/moe_space.h"
#include "backend/cpu/shares.h"
#include "backend/device_lock.h"
#include "backend/host_backend.h"
#include "base/thread_pool.h"

namespace quarrel {

class CpuDevice final : public Device {
 public:
  // The threads' mode is the device's own.
  CpuDevice(const ThreadOptions& threads, IsaLevel level) : CpuDevice(threads, level, read_cpu_topology()) {}
  CpuDevice(const ThreadOptions& threads, IsaLevel level, CpuTopology topology);

  std::string_view name() const noexcept override { return "cpu"; }
  std::string description() const override;
  KvType default_kv_type() const noexcept override { return KvType::f16; }
  bool supports(ActivationPrecision /*activations*/) const noexcept override { return true; }
  std::size_t memory_available() const override;
  std::size_t memory_total() const override;
  std::unique_ptr<Backend> make_backend(const BackendOptions& options) override;

  ThreadPool& pool() noexcept { return pool_; }
  DeviceLock& lock() noexcept { return lock_; }
  const CpuKernels& kernels() const noexcept { return kernels_; }

 private:
  IsaLevel level_;
  const CpuKernels& kernels_;
  ThreadPool pool_;
  DeviceLock lock_;
};

class CpuBackend : public HostBackend {
 public:
  CpuBackend(CpuDevice& device, const BackendOptions& options);

  std::string_view name() const noexcept override { return "cpu"; }
  Weight prepare_weight(const WeightSource& source) override;
  Activation make_activation(std::int32_t width, RowSet rows) override;
  void reserve(const StepLimits& limits, std::int32_t vocabulary) override;
  std::size_t prepared_bytes() const noexcept override { return prepared_bytes_; }
  std::size_t released_bytes() const noexcept override { return released_bytes_; }
  std::size_t expert_cache_bytes() const noexcept override;
  std::size_t workspace_bytes(const StepLimits& limits, std::int32_t vocabulary) const noexcept override;
  std::size_t expert_workspace_bytes(const StepLimits& limits) const noexcept override;
  BackendCounters counters() const noexcept override;

  void embed(const EmbedOp& op) override;
  void norm(const NormOp& op) override;
  void qkv(const QkvOp& op) override;
  void attend(const AttendOp& op) override;
  void linear(const LinearOp& op) override;
  void glu(const GluOp& op) override;
  void moe(const MoeOp& op) override;
  void ssm(const SsmOp& op) override;
  void head(const HeadOp& op) override;

 private:
  struct Prepared {
    const std::byte* data;
    QuantType type;
    bool packed;  // `data` and `places` are panels, in `memory`
    std::size_t rows, columns, row_bytes, row_stride;
    AlignedBuffer memory;
    std::vector<float> decoded;       // vectors only
    std::vector<ExpertPlace> places;  // experts only

    // A product with rows [first, last) of `matrix`, which is `data` or an expert's; with what is yet to be said.
    MatmulTask task(const std::byte* matrix, std::size_t first, std::size_t last) const noexcept {
      return {.weights = matrix,
              .type = type,
              .packed = packed,
              .columns = columns,
              .row_stride = row_stride,
              .first = first,
              .last = last};
    }
  };

  // Rows that a product takes: as they are, and as digits if some weight wants those.
  struct Input {
    const float* plain = nullptr;
    std::size_t stride = 0;
    std::size_t columns = 0;
    std::size_t rows = 0;
    std::size_t generated = 0;  // how many of them, from the first, are of that class
    bool digits = false;        // the rows are in digits_: all, or with `bfloats` the generated ones
    bool bfloats = false;       // the other rows are in bfloats_, for the weights that want them
    bool bfloat_pairs = false;  // as two numbers, because a weight wants them
  };

  struct Product {
    Weight weight;
    float* out;
    std::size_t stride;
  };

  // An activation, with the parameters of the one that has any.
  struct Gate {
    ActivationKind kind = ActivationKind::silu;
    float clamp = 0.0f;
    float alpha = 0.0f;
  };

  // The gated products of a feed-forward, into `out`.
  struct GatedProduct {
    Weight gate = {}, up = {};
    Weight gate_bias = {}, up_bias = {};
    Gate activation = {};
    float* out = nullptr;
    std::size_t stride = 0;
  };

  // Consecutive rows of one sequence that attend together.
  struct AttendTile {
    std::int32_t first = 0;
    std::int32_t rows = 0;
    std::int32_t begin = 0, end = 0;  // positions that any of them sees
  };

  struct RopeRows {
    std::uint64_t step = 0;
    std::vector<float> cosines, sines;  // [rows][pairs]
  };

  // The step's rows by sequence and position, and its snapshots: made once a step, for all recurrent layers.
  struct StateRows {
    struct Sequence {
      std::span<const std::int32_t> rows;
      std::span<const StateSnapshot> snapshots;  // ascending; `row` is a place in `rows`
    };
    std::uint64_t step = 0;
    std::vector<std::int32_t> order;
    std::vector<StateSnapshot> snapshots;
    std::vector<Sequence> sequences;
  };
  struct SsmStep;  // what the stages of one `ssm` hand on

  void begin_step() override { ++step_; }
  void enter_device() override;
  void leave_device() override;

  const SamplingKernels& sampling_kernels() const noexcept override { return kernels_.sampling; }
  void run_for_each(std::size_t count, const std::function<void(std::size_t)>& task) override {
    for_rows(static_cast<std::int64_t>(count), [&](std::int32_t i) { task(static_cast<std::size_t>(i)); });
  }

  const Prepared& prepared(const Weight& weight) const { return weights_[static_cast<std::size_t>(weight.id)]; }
  const float* vector(const Weight& weight) const { return weight.valid() ? prepared(weight).decoded.data() : nullptr; }
  bool wants_digits(const Weight& weight) const;
  // Whether prompt rows meet this weight as bf16 numbers.
  bool wants_bfloats(const Weight& weight) const;
  bool has_bfloats() const noexcept;
  // Whether those are two numbers each: where weights have more digits than one, or both digits were asked for.
  bool wants_bfloat_pairs(const Weight& weight) const;
  bool wants_packing(const WeightSource& source) const;
  void pack(const WeightSource& source, std::span<const ExpertPlace> places, Prepared& weight);
  void decode_table_row(const Prepared& table, std::size_t row, float* values) const;
  // Rows as digits; a row's class chooses how many.
  void quantize(const float* values, const Input& input, const DigitRows& to, std::size_t row) const;
  // One row in the form that its class and the weights ask for.
  void convert(const float* values, const Input& input, const DigitRows& digits, const BfloatRows& bfloats,
               std::size_t row) const;
  void lay_out(const Input& input);
  // A product of rows of which the first `generated` are of that class.
  void multiply_rows(MatmulTask task, std::size_t generated) const;
  void multiply_digits(MatmulTask task) const;
  std::size_t worker_scratch_bytes() const noexcept;
  std::size_t attend_workspace_bytes() const noexcept;

  bool norm_row(const Norm& norm, const float* in, float* out, std::size_t count) const override;
  WeightSize weight_size(const Weight& weight) const override;
  std::span<const float> vector_values(const Weight& weight) const override { return prepared(weight).decoded; }
  // Rows [first, first + rows) of `in`, normed and turned into digits as the weights want.
  Input prepare_input(const Activation& in, std::int32_t first, std::int32_t rows, const Norm& before,
                      std::int32_t layer, std::span<const Weight> weights);
  // The same for rows of the step that lie elsewhere, [rows][stride], and need no norm.
  Input prepare_values(const float* values, std::size_t stride, const Weight& weight);
  // The product with rows [first, last) of its weight.
  void multiply_part(const Input& input, const Product& product, std::size_t first, std::size_t last,
                     std::size_t worker);
  // Up to three products of one input, in one region of the pool.
  void multiply(const Input& input, std::span<const Product> products);
  void finish_branch(const BranchEnd& end, const Weight& bias, float* values, std::size_t stride, std::int32_t layer);
  const RopeRows& rope_rows(const Rope& rope);
  void rotate(const QkvOp& op, std::int32_t row, float* heads, std::int32_t count, const RopeRows& angles) const;
  // Where each row of the step begins and ends to see, and the tiles of rows; sets attend_begins_, attend_ends_ and
  // attend_tiles_.
  void plan_attention(const AttendOp& op);
  AttendTask attend_task(const AttendOp& op, const AttendTile& tile, std::int32_t head, float* scratch);
  // False if there is no room for the sums of partitions.
  bool attend_split(const AttendOp& op, std::int64_t units, std::int32_t partitions);
  std::uint64_t store_cache(const QkvOp& op, std::int32_t row, const float* keys, const float* values);
  void activate(ActivationKind kind, float* values, std::size_t count) const;
  // values = act(values) * up; `up` null: act(values).
  void gate_values(const Gate& gate, float* values, float* up, std::size_t count) const;
  void multiply_gated(const Input& input, const GatedProduct& product);

  // ---- Mixture of experts ----
  void add_experts(const WeightSource& source, std::int32_t id, const Prepared& weight);
  bool caches_experts() const noexcept;  // there is a budget, and not all fit
  void check_experts(const MoeOp& op) const;
  void route(const MoeOp& op, const Input& input);
  std::span<ExpertGroup> group_rows(const MoeOp& op, const Input& input);
  void expert_inner(const MoeOp& op, const Input& input, const ExpertGroup& group, std::size_t first, std::size_t count,
                    std::size_t worker);
  void expert_output(const MoeOp& op, const ExpertGroup& group, const DigitRows* digits, const BfloatRows* bfloats,
                     std::size_t first, std::size_t count, std::size_t worker);
  void run_experts(const MoeOp& op, const Input& input, std::span<const ExpertGroup> groups);
  void run_cached(const MoeOp& op, const Input& input, std::span<ExpertGroup> groups);
  void run_in_place(const MoeOp& op, const Input& input, std::span<ExpertGroup> groups);
  void run_shared(const MoeOp& op, const Input& input);

  // ---- Recurrent layers: cpu_ssm.cpp ----
  const float* vector_of(const Weight& weight, std::size_t count) const;  // null when there is none
  bool norm_part(const Norm& norm, float* values, std::size_t at, std::size_t count) const;
  const StateRows& state_rows();
  void convolve(const SsmStep& step);
  void convolve_block(const SsmStep& step, const StateRows::Sequence& sequence, std::size_t first, float* scratch);
  void project_scan_inputs(SsmStep& step);
  void scan(const SsmStep& step);
  void scan_unit(const SsmStep& step, const StateRows::Sequence& sequence, std::size_t first, float* values);

  // Up to so many rows memory is the limit of a product, beyond them arithmetic.
  static constexpr std::size_t kStreamedRows = 8;
  // task(matrix, rows, worker) for all rows of the matrices that the input meets.
  template <typename Task>
  void for_parts(const Input& input, std::span<const std::size_t> rows, const Task& task) {
    share_rows(device_.pool(), rows, input.rows <= kStreamedRows, task);
  }

  template <typename Task>
  void for_rows(std::int64_t rows, Task&& task) {
    device_.pool().for_range(rows, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) task(static_cast<std::int32_t>(row));
    });
  }

  CpuDevice& device_;
  const CpuKernels& kernels_;
  const BackendOptions options_;
  std::vector<Prepared> weights_;
  std::size_t prepared_bytes_ = 0;
  std::size_t released_bytes_ = 0;
  std::size_t widest_input_ = 0;   // columns of any matrix
  std::size_t widest_output_ = 0;  // rows of any matrix but the embedding and the head, or width of any activation

  DigitRows digits_;
  BfloatRows bfloats_;
  AlignedBuffer bfloat_memory_;
  AlignedBuffer digit_memory_;
  AlignedBuffer normed_;                // [rows][widest_input_]
  AlignedBuffer first_;                 // [rows][widest_output_]
  AlignedBuffer second_;                // [rows][widest_output_]
  std::vector<AlignedBuffer> scratch_;  // one a worker
  AlignedBuffer attend_memory_;         // [workers]: scratch, then sums of partitions
  std::size_t attend_scratch_ = 0;      // floats of a worker's scratch
  std::vector<std::int32_t> attend_begins_, attend_ends_;
  std::vector<AttendTile> attend_tiles_;
  std::vector<RopeRows> ropes_;
  StateRows state_rows_;
  std::uint64_t step_ = 0;
  std::optional<ThreadPool::Caller> caller_;  // while a step runs

  ExpertSets expert_sets_;
  std::unique_ptr<ExpertCache> expert_cache_;  // null: experts are used where they lie
  MoeSpace moe_;
  AlignedBuffer moe_memory_;
  std::size_t step_rows_ = 0;  // the most that a step may have
};

}  // namespace quarrel
