// What the ops of a backend on the host took and what they had to do, counted when profiling is on. An op's work is the
// least that any way of doing it needs: what is read more than once counts once.
#include <algorithm>
#include <limits>
#include <span>

#include "backend/host_backend.h"
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

void HostBackend::Timer::add(const Work& work) {
  OpTime* const time = backend_->time_of(name_);
  if (time == nullptr) return;
  time->bytes += work.bytes;
  time->macs += work.macs;
  time->quantised_macs += work.quantised_macs;
}

void HostBackend::Timer::gemm(std::size_t rows, std::initializer_list<Weight> weights, std::size_t read) {
  if (backend_ == nullptr) return;
  Work work;
  for (const Weight& weight : weights) {
    if (!weight.valid()) continue;
    const WeightSize size = backend_->weight_size(weight);
    const std::uint64_t macs = std::uint64_t{rows} * as_size(weight.rows) * as_size(weight.columns);
    work.bytes += std::uint64_t{read} * size.bytes;
    work.macs += macs;
    if (size.quantised) work.quantised_macs += macs;
  }
  add(work);
}

// A row of the table for each token; the same token's row counts again.
void HostBackend::Timer::embedding(const EmbedOp& op) {
  if (backend_ == nullptr) return;
  const std::uint64_t row_bytes = backend_->weight_size(op.table).bytes / as_size(op.table.rows);
  add({.bytes = row_bytes * as_size(backend_->row_count(op.out.rows))});
}

void HostBackend::Timer::attention(const AttendOp& op) {
  if (backend_ != nullptr) add(backend_->attention_work(op));
}

HostBackend::Work HostBackend::attention_work(const AttendOp& op) const {
  struct Span {
    std::int32_t begin = std::numeric_limits<std::int32_t>::max();
    std::int32_t end = 0;
  };
  std::vector<Span> spans(sequences_.size());  // the positions that some row of a sequence sees
  std::uint64_t seen = 0;
  for (const StepRow& row : rows_) {
    if (row.sequence < 0) continue;  // padding
    const std::size_t sequence = as_size(row.sequence);
    const std::int32_t begin = op.window > 0 ? std::max(0, row.position - op.window + 1) : 0;
    const std::int32_t end = op.causal ? row.position + 1 : sequences_[sequence].length;
    seen += as_size(end - begin);
    spans[sequence].begin = std::min(spans[sequence].begin, begin);
    spans[sequence].end = std::max(spans[sequence].end, end);
  }
  std::uint64_t read = 0;
  for (const Span& span : spans) {
    if (span.begin < span.end) read += as_size(span.end - span.begin);
  }
  const std::uint64_t values = as_size(op.key_dim + op.value_dim);
  return {.bytes = read * as_size(op.kv_heads) * values * kv_element_bytes(cache_.kv_type),
          .macs = seen * as_size(op.heads) * values};
}

// Each sequence's last inputs, and each channel's weights with each row.
void HostBackend::Timer::convolution(const SsmOp& op) {
  if (backend_ == nullptr) return;
  const auto history = static_cast<std::uint64_t>(backend_->cache_.state_layers[as_size(op.state_layer)].conv_values);
  const std::uint64_t taps = as_size(op.conv_width);
  const std::uint64_t channels = taps > 1 ? history / (taps - 1) : 0;
  add({.bytes = backend_->sequences_.size() * history * sizeof(float),
       .macs = backend_->rows_.size() * channels * taps});
}

// Each sequence's state; a value of it decays, takes its share of the input and is multiplied with C.
void HostBackend::Timer::scan(const SsmOp& op) {
  if (backend_ == nullptr) return;
  const std::uint64_t state = as_size(op.inner) * as_size(op.state);
  add({.bytes = backend_->sequences_.size() * state * sizeof(float), .macs = 3 * backend_->rows_.size() * state});
}

std::string_view HostBackend::profile_name(const LinearOp& op) noexcept {
  switch (op.sublayer) {
    case SublayerKind::attention: return "attention out";
    case SublayerKind::feed_forward: return "down";
    case SublayerKind::ssm: return op.end.x.valid() ? "ssm out" : "ssm in";
    case SublayerKind::other: break;
  }
  return "other";
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
