// What the ops of a backend on the host took and what they had to do (op_work.h), counted when profiling is on.
#include <algorithm>
#include <span>

#include "backend/host_backend.h"
#include "backend/op_work.h"
#include "base/as_size.h"

namespace quarrel {

HostBackend::Timer::Timer(HostBackend& backend, std::string_view name)
    : backend_(backend.profiling_ ? &backend : nullptr), name_(name) {
  if (backend_ != nullptr) start_ = std::chrono::steady_clock::now();
}

HostBackend::Timer::~Timer() {
  if (backend_ == nullptr) return;
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start_;
  if (OpTime* const time = backend_->time_of(name_)) {
    time->seconds += taken.count();
    ++time->calls;
  }
}

OpTime* HostBackend::time_of(std::string_view name) noexcept {
  const auto used = std::span(times_).first(times_used_);
  const auto found = std::ranges::find(used, name, &OpTime::name);
  if (found != used.end()) return &*found;
  if (times_used_ == times_.size()) return nullptr;
  times_[times_used_] = {.name = name};
  return &times_[times_used_++];
}

void HostBackend::Timer::add(const OpWork& work) {
  if (OpTime* const time = backend_->time_of(name_)) add_work(*time, work);
}

void HostBackend::Timer::gemm(std::size_t rows, std::initializer_list<Weight> weights, std::size_t read) {
  if (backend_ == nullptr) return;
  OpWork work;
  for (const Weight& weight : weights) {
    if (weight.valid()) work += gemm_work(weight, backend_->weight_size(weight), rows, read);
  }
  add(work);
}

void HostBackend::Timer::embedding(const EmbedOp& op) {
  if (backend_ == nullptr) return;
  add(embedding_work(op.table, backend_->weight_size(op.table), as_size(backend_->row_count(op.out.rows))));
}

void HostBackend::Timer::attention(const AttendOp& op) {
  if (backend_ == nullptr) return;
  std::vector<std::int32_t> lengths;
  for (const StepSequence& sequence : backend_->sequences_) lengths.push_back(sequence.length);
  add(attention_work(op, backend_->rows_, lengths, backend_->kv_element_bytes(backend_->cache_.kv_type)));
}

void HostBackend::Timer::convolution(const SsmOp& op) {
  if (backend_ == nullptr) return;
  const auto history = static_cast<std::uint64_t>(backend_->cache_.state_layers[as_size(op.state_layer)].conv_values);
  add(convolution_work(op, history, backend_->sequences_.size(), backend_->rows_.size()));
}

void HostBackend::Timer::scan(const SsmOp& op) {
  if (backend_ != nullptr) add(scan_work(op, backend_->sequences_.size(), backend_->rows_.size()));
}

void HostBackend::set_profiling(bool on) {
  profiling_ = on;
  times_used_ = 0;
}

std::vector<OpTime> HostBackend::profile() const {
  std::vector<OpTime> times(times_.begin(), times_.begin() + static_cast<std::ptrdiff_t>(times_used_));
  std::ranges::sort(times, {}, &OpTime::name);
  return times;
}

}  // namespace quarrel
