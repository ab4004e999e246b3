#include "backend/cuda/counted_backend.h"

#include <algorithm>
#include <cmath>

#include "base/as_size.h"

namespace quarrel::cuda {

std::uint64_t CountedBackend::rows_of(RowSet rows) const {
  if (rows == RowSet::outputs) return issued_->outputs.size();
  return static_cast<std::uint64_t>(std::ranges::count_if(rows_, [](const StepRow& row) { return row.sequence >= 0; }));
}

WeightSize CountedBackend::size_of(const Weight& weight) const {
  const StoredWeight& stored = weights_[weight];
  if (stored.form == StoredWeight::Form::vector) {
    return {.bytes = as_size(weight.rows) * as_size(weight.columns) * sizeof(float), .quantised = false};
  }
  return {.bytes = stored.expert_bytes, .quantised = stored.form == StoredWeight::Form::packed};
}

OpWork CountedBackend::gemms(std::initializer_list<Weight> weights, std::uint64_t rows, std::uint64_t read) const {
  OpWork work;
  for (const Weight& weight : weights) {
    if (weight.valid()) work += gemm_work(weight, size_of(weight), rows, read);
  }
  return work;
}

// What ran as part of another op has no time of its own: its work belongs where its time is.
std::vector<OpTime> CountedBackend::profile() const {
  std::vector<OpTime> times = CudaBackend::profile();
  const auto fused = std::ranges::find(times, std::string_view("shared experts"), &OpTime::name);
  const auto experts = std::ranges::find(times, std::string_view("experts"), &OpTime::name);
  if (fused == times.end() || experts == times.end() || fused->calls > 0) return times;
  add_work(*experts, {.bytes = fused->bytes, .macs = fused->macs, .quantised_macs = fused->quantised_macs});
  times.erase(fused);
  return times;
}

void CountedBackend::count(std::string_view name, const OpWork& work) {
  OpTime& time = times_[name];
  time.name = name;
  add_work(time, work);
}

void CountedBackend::embed(const EmbedOp& op) {
  if (profiling_) count("embedding", embedding_work(op.table, size_of(op.table), rows_of(RowSet::all)));
  CudaBackend::embed(op);
}

void CountedBackend::qkv(const QkvOp& op) {
  if (profiling_) count("qkv", gemms({op.q, op.k, op.v}, rows_of(RowSet::all)));
  CudaBackend::qkv(op);
}

void CountedBackend::attend(const AttendOp& op) {
  if (profiling_) {
    const std::size_t element = cache_.kv_type == KvType::f32 ? 4 : 2;
    count("attend", attention_work(op, rows_, sequence_lengths_, element));
  }
  CudaBackend::attend(op);
}

void CountedBackend::linear(const LinearOp& op) {
  if (profiling_) count(timed_as(op), gemms({op.weight}, rows_of(op.in.rows)));
  CudaBackend::linear(op);
}

void CountedBackend::glu(const GluOp& op) {
  if (profiling_) count("glu", gemms({op.gate, op.up}, rows_of(op.x.rows)));
  CudaBackend::glu(op);
}

// Which experts were chosen only the device knows: as many are counted as rows that are routed evenly would need.
void CountedBackend::moe(const MoeOp& op) {
  if (profiling_) {
    const std::uint64_t rows = rows_of(op.x.rows);
    const double experts = op.up.experts;
    const double read = experts * (1.0 - std::pow(1.0 - op.used / experts, static_cast<double>(rows)));
    count("router", gemms({op.router}, rows));
    count("experts", gemms({op.gate, op.up, op.down}, rows * as_size(op.used), static_cast<std::uint64_t>(read + 0.5)));
    if (op.shared_up.valid()) count("shared experts", gemms({op.shared_gate, op.shared_up, op.shared_down}, rows));
  }
  CudaBackend::moe(op);
}

void CountedBackend::ssm(const SsmOp& op) {
  if (profiling_) {
    const std::uint64_t rows = rows_of(RowSet::all);
    const std::uint64_t sequences = sequence_lengths_.size();
    const auto history = static_cast<std::uint64_t>(cache_.state_layers[as_size(op.state_layer)].conv_values);
    OpWork work = gemms({op.x_proj, op.dt_proj}, rows);
    work += convolution_work(op, history, sequences, rows);
    work += scan_work(op, sequences, rows);
    count("scan", work);
  }
  CudaBackend::ssm(op);
}

void CountedBackend::head(const HeadOp& op) {
  if (profiling_ && op.weight.valid()) {
    const std::uint64_t first = as_size(op.slice) * as_size(kLogitRows);
    const std::uint64_t outputs = rows_of(RowSet::outputs);
    count("head", gemms({op.weight}, std::min<std::uint64_t>(kLogitRows, outputs > first ? outputs - first : 0)));
  }
  CudaBackend::head(op);
}

}  // namespace quarrel::cuda
