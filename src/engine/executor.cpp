#include "engine/executor.h"

#include <algorithm>
#include <new>
#include <utility>
#include <variant>

#include "backend/marking_loss.h"
#include "base/as_size.h"
#include "base/error.h"

namespace quarrel {
namespace {

constexpr std::uint64_t kSampleEvery = 64;
constexpr std::uint64_t kSampleSeldom = 1024;  // where a step with the clocks on is slower than others
// Not the first ones: they touch pages that nobody has touched yet. Only the last step of a model's warm-up is sampled
// too (LoadedModel::warm_up), so that there is a figure from the beginning: its second one, which generates, or the
// only one where nothing is generated.
constexpr std::uint64_t kSampledStep = 8;

}  // namespace

Executor::Executor(GgufFile file, Device& device, const ExecutorOptions& options)
    : device_(device), file_(std::move(file)), plan_(plan_memory(file_, device, options)) {
  marking_loss(device, [&] { prepare(options); });
}

void Executor::prepare(const ExecutorOptions& options) {
  BackendOptions prepared = backend_options(plan_);
  prepared.graphs = options.graphs;
  if (options.on_load) {
    prepared.cpu.on_repacked = [&](std::uint64_t done) { options.on_load(done, plan_.released); };
  }
  warm_step_ = options.logits ? 1 : 0;
  backend_ = device_.make_backend(prepared);
  model_ = std::make_unique<Model>(file_, requested_spec(file_, plan_.context, options), *backend_);
  const auto on_layer = [this] { layer_at_ = Clock::now().time_since_epoch().count(); };
  forward_ = [this, on_layer](Backend& backend, const StepShape& shape) { model_->forward(backend, shape, on_layer); };
  backend_->reserve(plan_.limits, this->spec().vocabulary);
  backend_->allocate_cache({.groups = model_->kv_groups(),
                            .state_layers = model_->state_layers(),
                            .kv_type = plan_.kv_type,
                            .blocks = plan_.blocks,
                            .state_slots = plan_.state_slots});
  for (const LayerSpec& layer : this->spec().layers) {
    recurrent_.push_back(std::holds_alternative<MambaSpec>(layer.mixer.function));
    has_sampled_layers_ |= recurrent_.back() || std::holds_alternative<MoeSpec>(layer.mixer.function) ||
                           std::holds_alternative<MoeSpec>(layer.ffn.function);
  }
  file_.require_whole();
}

Executor::~Executor() = default;

Ticket Executor::submit(const Step& step) {
  const bool sampled = begin_sample();
  try {
    const Ticket ticket = marking_loss(device_, [&] { return backend_->submit(step, forward_); });
    if (sampled) sampled_ = ticket;
    return ticket;
  } catch (...) {
    if (sampled) end_sample(false);
    throw;
  }
}

std::uint64_t Executor::sample_every() const noexcept {
  return backend_->profiling_costs() ? kSampleSeldom : kSampleEvery;
}

bool Executor::begin_sample() {
  const std::uint64_t number = submitted_++;
  const bool due = number == warm_step_ || number % sample_every() == kSampledStep;
  if (!due || !has_sampled_layers_ || times_watched_ || sampled_) return false;
  backend_->set_profiling(true);
  return true;
}

void Executor::end_sample(bool read) noexcept {
  sampled_.reset();
  try {
    if (read) read_sample(backend_->profile());
  } catch (const std::bad_alloc&) {
    // The next sample will tell.
  }
  backend_->set_profiling(false);
}

void Executor::read_sample(std::span<const OpTime> times) noexcept {
  OpTime layer, routing, scan, convolution;
  for (const OpTime& op : times) {
    if (op.name == "router") routing = op;
    if (op.name == "scan") scan = op;
    if (op.name == "conv") convolution = op;
    if (op.name == "router" || op.name == "experts" || op.name == "shared experts") layer.seconds += op.seconds;
  }
  seen_.moe_layers.add(routing.calls, layer.seconds);
  seen_.moe_routing.add(routing.calls, routing.seconds);
  seen_.ssm_scans.add(scan.calls, scan.seconds);
  seen_.ssm_convolutions.add(convolution.calls, convolution.seconds);
}

void Executor::watch_times(bool on) {
  sampled_.reset();
  times_watched_ = on;
  backend_->set_profiling(on);
}

StepResults Executor::wait(Ticket ticket) {
  const bool sampled = sampled_ == ticket;
  StepResults results;
  try {
    results = marking_loss(device_, [&] { return backend_->wait(ticket); });
  } catch (...) {
    if (sampled) end_sample(false);
    throw;
  }
  if (sampled) end_sample(true);
  ++seen_.steps;
  seen_.rows += results.first_bad_layer.size();
  seen_.step_rows.add(results.first_bad_layer.size());
  const auto bad = std::ranges::find_if(results.first_bad_layer, [](std::int32_t layer) { return layer >= 0; });
  if (bad != results.first_bad_layer.end()) {
    ++seen_.divergences;
    seen_.last_bad_layer = *bad;
    // A norm notices what the layer before it has made.
    const std::size_t layer = as_size(*bad);
    const auto is_recurrent = [&](std::size_t index) { return index < recurrent_.size() && recurrent_[index]; };
    if (is_recurrent(layer) || (layer > 0 && is_recurrent(layer - 1))) ++seen_.ssm_divergences;
  }
  return results;
}

Observations Executor::observe() const {
  return marking_loss(device_, [this] { return look(); });
}

Observations Executor::look() const {
  Observations result = seen_;
  const BackendCounters counters = backend_->counters();
  result.kv_saturated = counters.kv_saturated;
  result.weights_saturated = counters.weights_saturated;
  result.expert_hits = counters.expert_hits;
  result.expert_misses = counters.expert_misses;
  result.expert_bytes_read = counters.expert_bytes_read;
  result.expert_cache_bytes = backend_->expert_cache_bytes();
  result.experts = backend_->expert_use();
  result.state_bytes = backend_->state_bytes(model_->state_layers());
  if (times_watched_) result.times = backend_->profile();  // else what sampled steps left, if anything
  return result;
}

}  // namespace quarrel
