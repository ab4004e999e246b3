#include "support/late_device.h"

#include <algorithm>
#include <bit>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "backend/cpu/cpu_backend.h"
#include "backend/reference/reference_backend.h"
#include "backend/step_check.h"
#include "base/error.h"
#include "support/step_copy.h"

namespace quarrel::test {

std::int32_t bucket_of(std::int32_t count) noexcept {
  if (count <= 0) return 0;
  if (count > 64) return (count + 63) / 64 * 64;
  return static_cast<std::int32_t>(std::bit_ceil(static_cast<std::uint32_t>(count)));
}

StepShape bucket_of(StepShape shape) noexcept {
  for (std::int32_t* count :
       {&shape.generated_rows, &shape.prompt_rows, &shape.generated_outputs, &shape.prompt_outputs}) {
    *count = bucket_of(*count);
  }
  return shape;
}

namespace {

// A backend whose steps are padded.
template <typename Base>
class Bucketed final : public Base {
 public:
  using Base::Base;
  StepShape shape_of(const Step& step) const noexcept override { return bucket_of(exact_shape(step)); }
  void reserve(const StepLimits& limits, std::int32_t vocabulary) override {
    Base::reserve(with_padding(limits), vocabulary);
  }
  std::size_t workspace_bytes(const StepLimits& limits, std::int32_t vocabulary) const noexcept override {
    return Base::workspace_bytes(with_padding(limits), vocabulary);
  }

 private:
  static StepLimits with_padding(StepLimits limits) noexcept {
    limits.rows += 128;  // each class may have almost as many again as a bucket is wide
    limits.outputs += 128;
    return limits;
  }
};

class LateBackend final : public Backend {
 public:
  LateBackend(std::unique_ptr<Backend> inner, const LateOptions& options, bool plan_only)
      : inner_(std::move(inner)), options_(options), plan_only_(plan_only) {}
  ~LateBackend() override {
    {
      const std::lock_guard guard(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  std::string_view name() const noexcept override { return inner_->name(); }
  Weight prepare_weight(const WeightSource& source) override { return inner_->prepare_weight(source); }
  Rope prepare_rope(const RopeSource& source) override { return inner_->prepare_rope(source); }
  Activation make_activation(std::int32_t width, RowSet rows) override { return inner_->make_activation(width, rows); }
  void reserve(const StepLimits& limits, std::int32_t vocabulary) override {
    check_.set_limits(limits, vocabulary);
    inner_->reserve(limits, vocabulary);
  }
  std::size_t prepared_bytes() const noexcept override { return inner_->prepared_bytes(); }
  std::size_t released_bytes() const noexcept override { return inner_->released_bytes(); }
  std::size_t expert_cache_bytes() const noexcept override { return inner_->expert_cache_bytes(); }
  std::size_t workspace_bytes(const StepLimits& limits, std::int32_t vocabulary) const noexcept override {
    return inner_->workspace_bytes(limits, vocabulary);
  }
  std::size_t expert_workspace_bytes(const StepLimits& limits) const noexcept override {
    return inner_->expert_workspace_bytes(limits);
  }
  std::int32_t block_tokens() const noexcept override { return inner_->block_tokens(); }
  std::size_t kv_bytes(const KvGroup& group, KvType type) const noexcept override {
    return inner_->kv_bytes(group, type);
  }
  std::size_t state_bytes(std::span<const StateLayer> layers) const noexcept override {
    return inner_->state_bytes(layers);
  }
  void allocate_cache(const CacheConfig& config) override {
    check_.set_cache(config, inner_->block_tokens());
    inner_->allocate_cache(config);
  }

  Ticket start_export_block(std::int32_t group, std::int32_t block, std::span<std::byte> out) override {
    return start_transfer([=, this] { return inner_->start_export_block(group, block, out); });
  }
  Ticket start_import_block(std::int32_t group, std::int32_t block, std::span<const std::byte> in) override {
    return start_transfer([=, this] { return inner_->start_import_block(group, block, in); });
  }
  Ticket start_export_slot(std::int32_t slot, std::span<std::byte> out) override {
    return start_transfer([=, this] { return inner_->start_export_slot(slot, out); });
  }
  Ticket start_import_slot(std::int32_t slot, std::span<const std::byte> in) override {
    return start_transfer([=, this] { return inner_->start_import_slot(slot, in); });
  }
  bool transfer_done(Ticket ticket) override;
  void await_transfer(Ticket ticket) override;

  StepShape shape_of(const Step& step) const noexcept override { return inner_->shape_of(step); }
  std::int32_t logit_rows() const noexcept override { return inner_->logit_rows(); }
  Ticket submit(const Step& step, const Forward& forward) override;
  StepResults wait(Ticket ticket) override;
  std::int32_t steps_in_flight() const noexcept override { return 2; }
  std::int64_t pace() const override { return inner_->pace(); }

  void set_profiling(bool on) override {
    await_all();
    inner_->set_profiling(on);
  }
  std::vector<OpTime> profile() const override {
    await_all();
    return inner_->profile();
  }
  BackendCounters counters() const noexcept override {
    await_all();
    return inner_->counters();
  }
  std::vector<ExpertUse> expert_use() const override {
    await_all();
    if (options_.when_observed) options_.when_observed();
    return inner_->expert_use();
  }

  // Steps run on the inner backend, and so do their ops.
  void embed(const EmbedOp&) override { misplaced(); }
  void norm(const NormOp&) override { misplaced(); }
  void qkv(const QkvOp&) override { misplaced(); }
  void attend(const AttendOp&) override { misplaced(); }
  void linear(const LinearOp&) override { misplaced(); }
  void glu(const GluOp&) override { misplaced(); }
  void moe(const MoeOp&) override { misplaced(); }
  void ssm(const SsmOp&) override { misplaced(); }
  void select_rows(const SelectRowsOp&) override { misplaced(); }
  void head(const HeadOp&) override { misplaced(); }
  void sample(const SampleOp&) override { misplaced(); }
  void pool(const PoolOp&) override { misplaced(); }

 private:
  struct Ended {
    StepResults results;
    std::exception_ptr error;
  };
  [[noreturn]] static void misplaced() { fail(ErrorKind::internal, "an op outside of a step"); }
  void enqueue(std::function<void()> task);
  void work();
  void await_all() const;
  Ticket start_transfer(std::function<Ticket()> transfer);
  void run_step(Ticket ticket, const StepCopy& step, const Forward& forward);

  std::unique_ptr<Backend> inner_;
  const LateOptions options_;
  const bool plan_only_;
  StepCheck check_;
  Ticket last_ticket_ = 0;
  Ticket last_transfer_ = 0;
  int open_ = 0;  // tickets that were not awaited

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;  // guarded by mutex_, like all below
  bool busy_ = false;
  bool stopping_ = false;
  int failed_ = 0;   // steps that failed and were not awaited: those behind them fail too
  Ticket lost_ = 0;  // those up to here were submitted before a failure was known
  std::map<Ticket, Ended> ended_;
  std::map<Ticket, std::exception_ptr> transfers_;
  std::thread thread_;
};

void LateBackend::enqueue(std::function<void()> task) {
  {
    const std::lock_guard guard(mutex_);
    tasks_.push_back(std::move(task));
  }
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  changed_.notify_all();
}

void LateBackend::work() {
  std::unique_lock guard(mutex_);
  while (true) {
    changed_.wait(guard, [&] { return stopping_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    busy_ = true;
    guard.unlock();
    task();
    guard.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

void LateBackend::await_all() const {
  std::unique_lock guard(mutex_);
  changed_.wait(guard, [&] { return tasks_.empty() && !busy_; });
}

Ticket LateBackend::start_transfer(std::function<Ticket()> transfer) {
  const Ticket ticket = ++last_transfer_;
  enqueue([this, ticket, transfer = std::move(transfer)] {
    std::exception_ptr error;
    try {
      inner_->await_transfer(transfer());
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard guard(mutex_);
    transfers_[ticket] = error;
  });
  return ticket;
}

bool LateBackend::transfer_done(Ticket ticket) {
  const std::lock_guard guard(mutex_);
  return transfers_.contains(ticket);
}

void LateBackend::await_transfer(Ticket ticket) {
  if (ticket == 0 || ticket > last_transfer_) fail(ErrorKind::internal, "a transfer that was never started");
  std::unique_lock guard(mutex_);
  changed_.wait(guard, [&] { return transfers_.contains(ticket); });
  if (transfers_[ticket]) std::rethrow_exception(transfers_[ticket]);
}

Ticket LateBackend::submit(const Step& step, const Forward& forward) {
  if (plan_only_) fail(ErrorKind::internal, "a backend that only plans runs no steps");
  if (open_ == 2) fail(ErrorKind::internal, "more than two open tickets");
  check_.check(step);
  auto copy = std::make_shared<StepCopy>(step);
  if (step.fill_masks) step.fill_masks();
  copy->copy_masks(step);
  check_.lanes_started(step);
  check_.taken(step);
  const Ticket ticket = ++last_ticket_;
  ++open_;
  enqueue([this, ticket, copy, forward] { run_step(ticket, *copy, forward); });
  return ticket;
}

void LateBackend::run_step(Ticket ticket, const StepCopy& step, const Forward& forward) {
  std::this_thread::sleep_for(options_.delay);
  Ended ended;
  try {
    {
      const std::lock_guard guard(mutex_);
      if (failed_ > 0 || ticket <= lost_) fail(ErrorKind::internal, "the step before this one failed");
    }
    if (options_.before_step) options_.before_step(ticket);
    ended.results = inner_->wait(inner_->submit(step.step(), forward));
  } catch (...) {
    ended.error = std::current_exception();
  }
  const std::lock_guard guard(mutex_);
  if (ended.error) ++failed_;
  ended_[ticket] = std::move(ended);
}

StepResults LateBackend::wait(Ticket ticket) {
  std::unique_lock guard(mutex_);
  changed_.wait(guard, [&] { return ended_.contains(ticket) || (tasks_.empty() && !busy_); });
  auto node = ended_.extract(ticket);
  if (node.empty()) fail(ErrorKind::internal, "a ticket that was never given out or already awaited");
  --open_;
  if (node.mapped().error) {
    --failed_;
    lost_ = last_ticket_;
    check_.lost();
    std::rethrow_exception(node.mapped().error);
  }
  return std::move(node.mapped().results);
}

class LateDevice final : public Device {
 public:
  LateDevice(std::unique_ptr<Device> inner, const LateOptions& options) : inner_(std::move(inner)), options_(options) {}
  std::string_view name() const noexcept override { return inner_->name(); }
  std::string description() const override { return "late " + inner_->description(); }
  KvType default_kv_type() const noexcept override { return inner_->default_kv_type(); }
  bool supports(ActivationPrecision activations) const noexcept override { return inner_->supports(activations); }
  std::size_t memory_available() const override { return inner_->memory_available(); }
  std::size_t memory_total() const override { return inner_->memory_total(); }
  std::unique_ptr<Backend> make_backend(const BackendOptions& options) override {
    return std::make_unique<LateBackend>(make_inner(options), options_, options.plan_only);
  }

 private:
  std::unique_ptr<Backend> make_inner(const BackendOptions& options) {
    if (!options_.buckets) return inner_->make_backend(options);
    if (auto* cpu = dynamic_cast<CpuDevice*>(inner_.get())) {
      return std::make_unique<Bucketed<CpuBackend>>(*cpu, options);
    }
    return std::make_unique<Bucketed<ReferenceBackend>>(dynamic_cast<ReferenceDevice&>(*inner_), options);
  }

  std::unique_ptr<Device> inner_;
  const LateOptions options_;
};

}  // namespace

std::unique_ptr<Device> make_late_device(const DeviceOptions& inner, const LateOptions& options) {
  return std::make_unique<LateDevice>(make_device(inner), options);
}

}  // namespace quarrel::test
