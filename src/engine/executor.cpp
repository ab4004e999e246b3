#include "engine/executor.h"

#include <algorithm>
#include <utility>

namespace quarrel {

Executor::Executor(GgufFile file, Device& device, const ExecutorOptions& options)
    : file_(std::move(file)), plan_(plan_memory(file_, device, options)) {
  BackendOptions prepared = backend_options(plan_);
  if (options.on_load) {
    prepared.cpu.on_repacked = [&](std::uint64_t done) { options.on_load(done, plan_.released); };
  }
  backend_ = device.make_backend(prepared);
  model_ = std::make_unique<Model>(file_, requested_spec(file_, plan_.context, options), *backend_);
  forward_ = [this](Backend& backend, const StepShape& shape) { model_->forward(backend, shape); };
  backend_->reserve(plan_.limits, this->spec().vocabulary);
  backend_->allocate_cache({.groups = model_->kv_groups(),
                            .state_layers = model_->state_layers(),
                            .kv_type = plan_.kv_type,
                            .blocks = plan_.blocks,
                            .state_slots = plan_.state_slots});
  file_.require_whole();
}

Executor::~Executor() = default;

Ticket Executor::submit(const Step& step) { return backend_->submit(step, forward_); }

StepResults Executor::wait(Ticket ticket) {
  StepResults results = backend_->wait(ticket);
  ++seen_.steps;
  seen_.rows += results.first_bad_layer.size();
  const auto bad = std::ranges::find_if(results.first_bad_layer, [](std::int32_t layer) { return layer >= 0; });
  if (bad != results.first_bad_layer.end()) {
    ++seen_.divergences;
    seen_.last_bad_layer = *bad;
  }
  return results;
}

Observations Executor::observe() const {
  Observations result = seen_;
  const BackendCounters counters = backend_->counters();
  result.kv_saturated = counters.kv_saturated;
  result.expert_hits = counters.expert_hits;
  result.expert_misses = counters.expert_misses;
  result.expert_bytes_read = counters.expert_bytes_read;
  result.expert_cache_bytes = backend_->expert_cache_bytes();
  result.experts = backend_->expert_use();
  result.state_bytes = backend_->state_bytes(model_->state_layers());
  result.times = backend_->profile();
  return result;
}

}  // namespace quarrel
