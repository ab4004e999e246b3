// One model on a GPU: dense layers, experts, recurrent layers and encoders. A step is one upload, kernels on the
// backend's stream and one download; `wait` hands over what came back. Steps of generated rows are padded to a bucket
// and replayed as a graph from the third of their shape on.
//
// Which kernel a row takes depends on how many there are of its class, unless the options say `deterministic`: up to
// four (eight in small models) go through the integer GEMV (or that of F16 weights), whose bits do not depend on how
// many there are, up to 32 (64 where K-quants meet Hopper) through GEMMs in 16 bits on packed weights, and more through
// GEMMs on weights in 16 bits (without mirrors, up to 512 through one that decodes packed weights as it goes).
//
// Tokens are chosen on the device, after bias, mask and penalties, and the next step reads them there; how likely a
// given one is, and which were the likeliest, comes from there too. Only rows that are changed and whose logits
// somebody wants come to the host's sampler, and a step that names such a token waits for it.
//
// Made as a CountedBackend. Driven by one thread at a time; counters() may be asked by any.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/dense_gemm.h"
#include "backend/cuda/device_memory.h"
#include "backend/cuda/expert_gemv.h"
#include "backend/cuda/fused_experts.h"
#include "backend/cuda/gemv.h"
#include "backend/cuda/logit_edits.h"
#include "backend/cuda/op_timer.h"
#include "backend/cuda/packed_gemm.h"
#include "backend/cuda/row_ops.h"
#include "backend/cuda/ssm.h"
#include "backend/cuda/step_tables.h"
#include "backend/cuda/weight_store.h"
#include "backend/sampler_state.h"
#include "backend/step_check.h"
#include "base/clock.h"
#include "base/thread_pool.h"

namespace quarrel::cuda {

class CudaBackend : public Backend {
 public:
  static constexpr std::int32_t kLogitRows = 128;
  static constexpr int kMaxGemvRows = 4;          // of a class; with more it is a GEMM's turn
  static constexpr int kAttentionRows = 64;       // of class generated that have room for their splits at a time
  static constexpr int kMaxArrivals = 32 * 1024;  // kAttentionRows times heads of the cache

  CudaBackend(CudaDevice& device, const BackendOptions& options);
  ~CudaBackend() override;
  std::string_view name() const noexcept override { return "cuda"; }

  Weight prepare_weight(const WeightSource& source) override;
  Rope prepare_rope(const RopeSource& source) override;
  Activation make_activation(std::int32_t width, RowSet rows) override;
  void reserve(const StepLimits& limits, std::int32_t vocabulary) override;
  std::size_t prepared_bytes() const noexcept override { return weights_.prepared_bytes(); }
  std::size_t released_bytes() const noexcept override { return weights_.released_bytes(); }
  std::size_t mirror_bytes() const noexcept override { return weights_.mirror_bytes(); }
  std::size_t expert_cache_bytes() const noexcept override { return 0; }
  std::size_t workspace_bytes(const StepLimits& limits, std::int32_t vocabulary) const noexcept override;
  std::size_t expert_workspace_bytes(const StepLimits& limits) const noexcept override;

  std::int32_t block_tokens() const noexcept override { return kKvBlockTokens; }
  std::size_t kv_bytes(const KvGroup& group, KvType type) const noexcept override;
  std::size_t state_bytes(std::span<const StateLayer> layers) const noexcept override;
  void allocate_cache(const CacheConfig& config) override;
  Ticket start_export_block(std::int32_t group, std::int32_t block, std::span<std::byte> out) override;
  Ticket start_import_block(std::int32_t group, std::int32_t block, std::span<const std::byte> in) override;
  Ticket start_export_slot(std::int32_t slot, std::span<std::byte> out) override;
  Ticket start_import_slot(std::int32_t slot, std::span<const std::byte> in) override;
  bool transfer_done(Ticket ticket) override;
  void await_transfer(Ticket ticket) override;

  StepShape shape_of(const Step& step) const noexcept override;
  std::int32_t logit_rows() const noexcept override { return kLogitRows; }
  Ticket submit(const Step& step, const Forward& forward) override;
  StepResults wait(Ticket ticket) override;
  std::int32_t steps_in_flight() const noexcept override { return 2; }
  std::int64_t pace() const override { return 0; }  // steps of other models are interleaved by the device itself

  void set_profiling(bool on) override;
  bool profiling_costs() const noexcept override {
    return true;
  }  // such steps are no graphs, and kernels do not overlap
  std::vector<OpTime> profile() const override;
  BackendCounters counters() const noexcept override;
  std::vector<ExpertUse> expert_use() const override;

  void embed(const EmbedOp& op) override;
  void norm(const NormOp& op) override;
  void qkv(const QkvOp& op) override;
  void attend(const AttendOp& op) override;
  void linear(const LinearOp& op) override;
  void glu(const GluOp& op) override;
  void moe(const MoeOp& op) override;
  void ssm(const SsmOp& op) override;
  void select_rows(const SelectRowsOp& op) override;
  void head(const HeadOp& op) override;
  void sample(const SampleOp& op) override;
  void pool(const PoolOp& op) override;

 private:
  friend class CountedBackend;  // which looks at a step and its weights

  struct ActivationPlace {
    std::int32_t width = 0;
    RowSet rows = RowSet::all;
    float* data = nullptr;
  };
  struct RopeTable {
    RopeKind kind = RopeKind::interleaved;
    std::vector<double> frequencies = {};
    double magnitude = 1.0;
    DeviceBuffer device = {};  // the frequencies
    float* angles = nullptr;   // [rows][pairs][2]
    bool is_ready = false;     // of the step that is being issued
  };
  // What `reserve` takes, in its order.
  struct WorkspaceSizes {
    std::size_t value = 0;
    std::size_t normed = 0;
    std::size_t halves = 0;
    std::size_t decoded = 0;
    std::size_t split = 0;
    std::size_t attention = 0;
    std::size_t arrivals = 0;
    std::size_t logits = 0;
    std::size_t ids = 0;
    std::size_t reports = 0;
    std::size_t activations = 0;
    std::size_t angles = 0;
    std::size_t parts = 0;
    std::size_t image = 0;
    std::size_t register_image = 0;  // of an op's input and of a gate's results
    std::size_t zeros = 0;
    std::size_t mixed = 0;         // of recurrent layers
    std::size_t shared = 0;        // of shared experts, twice
    std::size_t expert_value = 0;  // of experts, twice
    std::size_t split_hidden = 0;
    std::size_t routing = 0;
    std::size_t expert_counts = 0;
    std::size_t experts() const noexcept {
      return 2 * shared + 2 * expert_value + split_hidden + routing + expert_counts;
    }
    std::size_t total() const noexcept {
      return 2 * value + normed + halves + decoded + split + attention + arrivals + logits + ids + reports +
             activations + angles + parts + image + 2 * register_image + zeros + mixed + experts();
    }
  };
  // Where the rows of a layer with experts go.
  struct Routing {
    std::int32_t* chosen = nullptr;  // [pairs]
    float* weights = nullptr;
    std::int32_t* order = nullptr;
    std::int32_t* places = nullptr;
    std::int32_t* starts = nullptr;  // [experts + 1]
  };
  // What a lane gathers that makes one vector of a text.
  struct PoolLane {
    Pooling pooling = Pooling::none;
    std::int64_t rows = 0;
  };
  struct PooledRows {
    std::int32_t first = 0;
    std::int32_t count = 0;
    std::int32_t lane = 0;
  };
  struct KvMemory {
    DeviceBuffer memory;
    std::size_t block_bytes = 0;
  };
  // Times what is issued until its end, when profiling is on.
  class Timed {
   public:
    Timed(CudaBackend& backend, std::string_view name) : backend_(backend) {
      if (backend.profiling_) backend.timers_[static_cast<std::size_t>(backend.which_)].begin(name, backend.stream_);
    }
    ~Timed() {
      if (backend_.profiling_) backend_.timers_[static_cast<std::size_t>(backend_.which_)].end(backend_.stream_);
    }
    Timed(const Timed&) = delete;
    Timed& operator=(const Timed&) = delete;

   private:
    CudaBackend& backend_;
  };
  // Which kernels rows take, by their number.
  enum class Tier : std::uint8_t {
    gemv,  // integers
    few,   // 16 bits, packed weights
    many,  // 16 bits, weights in 16 bits
  };
  // Rows of one class, or of both where they take the same kernels.
  struct Segment {
    int first = 0;
    int count = 0;
    Tier tier = Tier::gemv;
    bool is_prompt = false;
  };
  struct Segments {
    std::array<Segment, 2> parts = {};
    int count = 0;
    const Segment* begin() const { return parts.data(); }
    const Segment* end() const { return parts.data() + count; }
  };
  // Rows and the norm they go through, in the forms that kernels take; each is made when it is first asked for.
  struct Input {
    RowSpan in = {};
    RowSet set = RowSet::all;
    Norm before = {};
    int layer = 0;
    Segment rows = {};
    const std::uint16_t* halves = nullptr;
    const std::uint16_t* image = nullptr;
    RowSpan floats = {};
  };
  // Rows that still lack a norm, which the GEMV that takes them can do itself.
  struct DeferredNorm {
    Activation rows = {};
    Norm norm = {};
    int layer = 0;
  };
  // Which rows `halves_` (or `hidden_image_`) holds beside their F32 form.
  struct Halved {
    const float* rows = nullptr;
    int count = 0;
    int width = 0;
    bool is_image = false;
    bool operator==(const Halved&) const = default;
  };
  struct Gemm {
    Weight weight = {};
    Weight bias = {};
    float* out = nullptr;  // of row `out_first` of the activation's rows
    int out_first = 0;
    int stride = 0;
    bool is_added = false;
    float scale = 1.0f;
    bool may_wait = false;  // parts may be left to be added up by whoever reads the results
  };
  struct OutputRecord {
    StepOutput wanted = {};
    int place = -1;        // among the padded outputs
    bool on_host = false;  // the host's sampler chooses
    int logits_row = -1;   // of the pinned logits
    int vector_row = -1;
    bool has_report = false;  // the device leaves one
    bool has_mu = false;      // with mirostat's mu
    std::vector<std::uint64_t> mask = {};
  };
  // A step that was submitted and not awaited.
  struct Record {
    Ticket ticket = 0;  // 0: none
    bool is_finished = false;
    std::vector<OutputRecord> outputs;
    std::vector<std::int32_t> places;  // of the step's rows among the padded ones
    int logits_wanted = 0;             // rows of pinned logits that are handed out; those for the sampler follow
    int vectors_wanted = 0;
    int vector_width = 0;
    bool has_expert_counts = false;
    StepResults results;
    std::exception_ptr error;
  };
  // By parity of the ticket: what is handed out stays until two more steps were submitted.
  struct ResultMemory {
    PinnedBuffer logits;
    PinnedBuffer vectors;
    PinnedBuffer expert_counts;
    PinnedBuffer reports;
    Event begin{true};
    Event end{true};
  };
  struct Graph {
    StepShape shape = {};
    int seen = 0;
    Ticket seen_in = 0;  // the last one
    bool is_refused = false;
    cudaGraphExec_t executable = nullptr;
  };
  // What the next step may name tokens by.
  struct LastStep {
    Ticket ticket = 0;
    bool is_known = false;
    std::vector<int> places;
    std::vector<bool> on_host;
    std::vector<std::int32_t> lanes;
    std::vector<TokenId> ids;  // once it is known
  };

  // ---- cuda_backend.cpp: memory ----
  StepLimits padded(StepLimits limits) const noexcept;
  WorkspaceSizes workspace_sizes(const StepLimits& limits, int vocabulary) const noexcept;
  std::size_t activation_bytes(const ActivationPlace& place, const StepLimits& limits) const noexcept;
  std::size_t angle_bytes(const RopeTable& rope, const StepLimits& limits) const noexcept;
  TableLimits table_limits(const StepLimits& limits, int groups) const noexcept;
  void warm_up_gemms(int rows);
  PagedKv paged_kv(std::int32_t group, std::int32_t layer) const;
  std::byte* block_place(std::int32_t group, std::int32_t block) const;
  std::byte* slot_place(std::int32_t slot) const;
  SsmState ssm_state(std::int32_t layer) const;
  Ticket record_transfer();

  // ---- cuda_step.cpp: steps ----
  void load_rows(const Step& step, Record& record);
  void load_outputs(const Step& step, Record& record);
  std::int32_t token_of(std::int32_t token);
  void finish_last();
  void finish_where_counts_lag(const Step& step);
  void start_lanes(const Step& step);
  void load_pooled_rows(const Step& step);
  std::vector<StateSnapshot> first_snapshots(const Step& step, const Record& record);
  void copy_slots(std::span<const SlotCopy> copies);
  void count_tokens_ahead();
  std::optional<std::int32_t> choice_on_device(const StepOutput& output, TokenDraw& draw) const;
  bool changes_logits(const StepOutput& output) const;
  OutputEdits edits_of(const StepOutput& output, const TokenDraw& draw, std::int32_t row) const;
  void issue(const Step& step, const Forward& forward);
  void run_forward(const Forward& forward);
  Graph* graph_of(const StepShape& shape);
  bool capture(Graph& graph, const Forward& forward);
  void run_kernels(const Forward& forward);
  bool can_be_captured() const noexcept;
  void copy_logits(int first, int count);
  static int reported_outputs(const Record& record);
  void copy_reports();
  void take_report(const OutputRecord& output, const ResultMemory& memory, SampleResult& result) const;
  void finish(Record& record);
  void take_results(Record& record);
  void drop_graphs() noexcept;
  void sample_on_host(Record& record, std::span<const float> logits);
  Record* record_of(Ticket ticket);

  // ---- cuda_gemm.cpp: GEMV or GEMM ----
  Tier tier_of(int rows) const noexcept;
  // `by_class`: rows of both classes are together only where nothing tells them apart.
  Segments segments(RowSet rows, bool by_class = false) const;
  RowSpan row_span(const Activation& activation);
  RowSpan unsettled_rows(const Activation& activation);  // those of a pending join as they are
  void settle_norm();
  void settle_join();
  void settle(const Input& input);
  int stride_of(std::int32_t width) const noexcept { return (width + 7) / 8 * 8; }
  std::int32_t* bad_of(RowSet rows) const;
  DeviceNorm device_norm(const Norm& norm, int width, RowSet rows, int first, int layer) const;
  Input input_of(const Activation& in, int width, const Norm& before, int layer, const Segment& rows);
  // Of rows that are no activation; they are those of the segment.
  Input input_of(const RowSpan& in, const Segment& rows) const;
  void forget_halves(const RowSpan& rows);
  RowSpan floats_of(Input& input);
  const std::uint16_t* halves_of(Input& input);
  const std::uint16_t* image_of(Input& input);  // for register_gemm()
  SplitInput split_input(const Input& input, int first, int count) const;
  void multiply(Input& input, const Gemm& wanted);
  // Several matrices one below the other in 16 bits, as one GEMM of `rows` rows; null: they do not lie so.
  const std::uint16_t* joined_halves(std::initializer_list<Weight> weights) const;
  void multiply_joined(Input& input, const std::uint16_t* matrix, int rows, float* out);
  void multiply_by_gemv(const Input& input, const Gemm& wanted);
  bool is_packed(const Weight& weight) const;
  // Whether there is a GEMV with fused norms and ends for all of them together: all are packed, or all of F16.
  bool have_gemv(std::initializer_list<Weight> weights) const;
  GemvMatrix gemv_matrix(const Weight& weight, const Weight& bias, float* out = nullptr, int stride = 0) const;
  bool can_multiply_halves(const Weight& weight) const;
  // Packed matrices one below the other; `end` names neither parts nor their shape. False where that cannot be done.
  // Unless `left` is null, it gets what is left to be done with the parts, if there are any.
  bool multiply_few(Input& input, std::initializer_list<Weight> weights, JoinPartsOp end, JoinPartsOp* left = nullptr);
  void note_halves(const JoinPartsOp& end, const PackedGemmOp& op);
  // As far as `parts_`; how many slabs it has then, 0 where that cannot be done.
  int multiply_in_slabs(Input& input, PackedGemmOp& op);
  int multiply_without_mirror(Input& input, std::initializer_list<Weight> weights, PackedGemmOp& op);
  void add_bias_of(const Gemm& wanted, float* out, int count);
  // With packed matrices or those of F16. Splits the rows where there are too many for the kernel to do it.
  void run_gemv(GemvOp op);

  // ---- cuda_ops.cpp ----
  void fused_qkv(const QkvOp& op, const Input& input);
  void store_qkv(const QkvOp& op, const Input& input, const RowSpan& q, const RowSpan& k, const RowSpan& v);
  void separate_qkv(const QkvOp& op, Input& input);
  void glu_segment(const GluOp& op, Input& input, const RowSpan& out);
  DeferredNorm take_deferred_norm(const LinearOp& op);
  void glu_by_gemms(const GluOp& op, Input& input, const RowSpan& out);
  // Whether it has done it.
  bool glu_by_halves(const GluOp& op, Input& input, const RowSpan& out);
  static bool can_fuse(const RopeTable& rope, int dim);
  bool can_fuse(const QkvOp& op) const;
  const float* angles_of(const Rope& rope);
  bool attend_segment(const AttendOp& op, const Segment& rows);
  int row_count(RowSet rows) const noexcept { return rows == RowSet::all ? shape_.rows() : shape_.outputs(); }

  // ---- cuda_moe.cpp ----
  ExpertMatrix expert_matrix(const Weight& weight, const Weight& bias) const;
  unsigned long long* expert_counts(const MoeOp& op) const;
  bool copy_expert_counts();
  bool are_all_finished() const noexcept;
  RouteRowsOp route_of(const MoeOp& op, const Segment& rows, int first, int count);
  bool has_router_kernel(const MoeOp& op, const Input& input) const;
  void run_router(const MoeOp& op, Input& input);
  void route(const MoeOp& op, Input& input);
  FusedExpertsOp fused_experts_of(const MoeOp& op, const Input& input, int first, int count, const RowSpan& out);
  bool run_fused_experts(const MoeOp& op, Input& input, const RowSpan& out);
  void run_separate_experts(const MoeOp& op, Input& input, const RowSpan& out);
  bool have_one_format(const MoeOp& op) const;
  bool run_experts(const MoeOp& op, Input& input);
  void run_experts_grouped(const MoeOp& op, Input& input);
  void run_experts_one_by_one(const MoeOp& op, Input& input);
  void run_expert_matrices(ExpertGemvOp op, const Input* rows);
  void run_shared_expert(const MoeOp& op, Input& input);

  // ---- cuda_ssm.cpp ----
  enum class ScanEnd : std::uint8_t { none, gated, normed };  // what is done of a scan's end
  bool can_defer_norm(const SsmOp& op) const;
  ScanEnd run_scan(const SsmOp& op, FewScanOp& few, const RowSpan& mixed);
  void end_scan(const SsmOp& op, const FewScanOp& few, ScanEnd end);
  void project_scan_inputs(const SsmOp& op, ScanOp& scan, const RowSpan& mixed);

  // ---- cuda_ends.cpp ----
  void look_up(const Weight& table, const std::int32_t* ids, float scale, const RowSpan& out);
  std::byte* begin_vectors(int width);
  void gather(const PoolOp& op, const RowSpan& rows);

  CudaDevice& device_;
  const BackendOptions options_;
  Stream stream_;
  LaunchContext context_;
  WeightStore weights_;
  std::vector<ActivationPlace> activations_;
  std::deque<RopeTable> ropes_;
  std::unique_ptr<DenseGemm> gemm_;
  StepLimits limits_;
  int vocabulary_ = 0;

  // Room that ops share, of the widest input or output of all weights.
  DeviceBuffer workspace_;
  float* first_value_ = nullptr;   // [rows][widest output]: k, gate, or what a sublayer's end takes
  float* second_value_ = nullptr;  // v, up, or a router's logits
  float* normed_ = nullptr;        // [rows][widest input]
  std::uint16_t* halves_ = nullptr;
  std::uint16_t* decoded_ = nullptr;  // the matrix at hand where there are no mirrors
  std::byte* split_ = nullptr;
  float* parts_ = nullptr;                 // of GEMMs of few rows
  std::uint16_t* image_ = nullptr;         // of their activations
  std::uint16_t* row_image_ = nullptr;     // of an input of register_gemm()
  std::uint16_t* hidden_image_ = nullptr;  // the same of what a gate leaves
  std::size_t part_floats_ = 0;
  std::byte* attention_workspace_ = nullptr;
  int* arrivals_ = nullptr;
  float* logits_ = nullptr;       // [kLogitRows][vocabulary]
  std::int32_t* ids_ = nullptr;   // [rows]: the step's tokens, as they were found
  RowReport* reports_ = nullptr;  // [outputs]
  const std::int32_t* zeros_ = nullptr;
  float* mixed_ = nullptr;          // [rows][widest activation]: what a convolution gives
  float* shared_hidden_ = nullptr;  // [rows][widest output]
  float* shared_value_ = nullptr;
  float* expert_hidden_ = nullptr;  // [pairs][widest expert]
  float* expert_value_ = nullptr;
  std::byte* split_hidden_ = nullptr;  // of fused experts
  Routing routing_;
  Halved halved_ = {};
  DeferredNorm deferred_norm_ = {};
  JoinPartsOp pending_join_ = {};   // of an activation whose last addend is still in `parts_`; no parts: none is
  bool after_small_kernel_ = true;  // the last kernel was no GEMV

  CacheConfig cache_;
  std::vector<KvMemory> kv_;
  DeviceBuffer states_;  // [slots][recurrent layers][convolution, scan]
  std::size_t slot_bytes_ = 0;
  std::vector<std::size_t> state_offsets_;          // of each recurrent layer in a slot, in numbers
  unsigned long long* expert_counts_ = nullptr;     // [layers with experts][most experts]
  std::vector<std::uint64_t> known_expert_counts_;  // the same, as of some step
  Clock::time_point expert_counts_at_ = {};         // when they were last asked for
  StepTables tables_;
  LogitEditMemory edits_;
  DeviceBuffer lane_mu_;  // [lanes]: mirostat's
  StepCheck check_;
  std::vector<SamplerState> lanes_;
  std::vector<std::uint64_t> tokens_ahead_;  // of each lane, as the step is loaded
  std::vector<PoolLane> pool_lanes_;
  DeviceBuffer lane_sums_;                // [lanes][width]
  std::vector<PooledRows> pooled_rows_;   // of the step that is being issued
  std::unique_ptr<ThreadPool> samplers_;  // made when more than one row is sampled on the host
  std::vector<std::pair<Ticket, std::unique_ptr<Event>>> transfers_;  // those that may be under way
  Ticket last_transfer_ = 0;

  StepShape shape_;  // of the step that is being issued
  int which_ = 0;    // its parity
  int tiles_ = 0;    // its tiles of prompt rows
  int runs_ = 0;     // its sequences that have rows
  Record* issued_ = nullptr;
  bool is_captured_ = false;
  std::vector<SlotCopy> late_copies_;  // behind its rows
  std::vector<StepRow> rows_;
  std::vector<std::int32_t> sequence_lengths_;
  std::vector<std::int32_t> tokens_;
  Ticket last_ticket_ = 0;
  std::array<Record, 2> records_;
  std::array<ResultMemory, 2> result_memory_;
  LastStep last_;
  std::vector<Graph> graphs_;
  std::atomic<std::uint64_t> saturated_ = 0;
  bool profiling_ = false;
  std::array<OpTimer, 2> timers_;
  std::map<std::string_view, OpTime> times_;
};

}  // namespace quarrel::cuda
