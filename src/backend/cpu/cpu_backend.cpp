#include "backend/cpu/cpu_backend.h"

#include <algorithm>
#include <vector>

#include "base/as_size.h"

namespace quarrel {
namespace {

std::size_t most_rows(const StepLimits& limits) noexcept {
  return static_cast<std::size_t>(std::max(limits.rows, limits.outputs));
}

}  // namespace

CpuBackend::CpuBackend(CpuDevice& device, const BackendOptions& options)
    : HostBackend(device.lock(), options.plan_only),
      device_(device),
      options_(options),
      weights_(device, options_),
      linear_(*this, device, weights_, options_),
      attention_(*this, device, weights_, linear_),
      experts_(*this, device, weights_, linear_, options_),
      scan_(*this, device, weights_, linear_) {}

Weight CpuBackend::prepare_weight(const WeightSource& source) {
  check_weight(source);
  const Weight weight = weights_.add(source);
  if (is_expert(source.role)) experts_.add(source, weight);
  return weight;
}

Activation CpuBackend::make_activation(std::int32_t width, RowSet rows) {
  if (rows == RowSet::all) linear_.widen(as_size(width));
  return HostBackend::make_activation(width, rows);
}

std::size_t CpuBackend::workspace_bytes(const StepLimits& limits, std::int32_t vocabulary) const noexcept {
  return HostBackend::workspace_bytes(limits, vocabulary) + linear_.workspace_bytes(most_rows(limits)) +
         attention_.workspace_bytes() + expert_workspace_bytes(limits);
}

std::size_t CpuBackend::expert_workspace_bytes(const StepLimits& limits) const noexcept {
  return experts_.workspace_bytes(most_rows(limits));
}

void CpuBackend::reserve(const StepLimits& limits, std::int32_t vocabulary) {
  HostBackend::reserve(limits, vocabulary);
  linear_.reserve(most_rows(limits));
  attention_.reserve();
  experts_.reserve(most_rows(limits));
}

BackendCounters CpuBackend::counters() const noexcept {
  BackendCounters counters = HostBackend::counters();
  experts_.count(counters);
  return counters;
}

void CpuBackend::begin_step() {
  attention_.begin_step();
  scan_.begin_step();
}

void CpuBackend::enter_device() { caller_.emplace(device_.pool()); }

void CpuBackend::leave_device() { caller_.reset(); }

WeightSize CpuBackend::weight_size(const Weight& weight) const {
  const PreparedWeight& found = weights_[weight];
  return {.bytes = found.rows * found.row_bytes, .quantised = type_info(found.type).block_weights > 1};
}

void CpuBackend::embed(const EmbedOp& op) {
  Timer timer(*this, "embedding");
  timer.embedding(op);
  const CpuKernels& kernels = device_.kernels();
  const std::size_t columns = as_size(op.table.columns);
  device_.for_rows(row_count(op.out.rows), [&](std::int32_t r) {
    float* x = row(op.out, r);
    weights_.decode_row(op.table, as_size(tokens()[as_size(r)]), x);
    kernels.soft_cap(x, op.scale, 0.0f, columns);
    const auto add_table_row = [&](const Weight& table, std::int32_t index) {
      std::vector<float> values(as_size(table.columns));
      weights_.decode_row(table, as_size(index), values.data());
      kernels.add(x, values.data(), values.size());
    };
    if (op.positions.valid()) add_table_row(op.positions, rows()[as_size(r)].position);
    if (op.types.valid()) add_table_row(op.types, 0);
    if (!weights_.norm_row(op.norm, x, x, columns)) flag_bad_row(op.out.rows, r, 0);
  });
}

void CpuBackend::norm(const NormOp& op) {
  const Timer timer(*this, "norms and int8");
  device_.for_rows(row_count(op.in.rows), [&](std::int32_t r) {
    if (!weights_.norm_row(op.norm, row(op.in, r), row(op.out, r), as_size(op.in.width))) {
      flag_bad_row(op.in.rows, r, op.layer);
    }
  });
}

// The ops that take long let shorter steps of other models go first.

void CpuBackend::qkv(const QkvOp& op) {
  give_way();
  attention_.qkv(op);
}

void CpuBackend::attend(const AttendOp& op) {
  give_way();
  attention_.attend(op);
}

void CpuBackend::linear(const LinearOp& op) {
  give_way();
  linear_.linear(op);
}

void CpuBackend::glu(const GluOp& op) {
  give_way();
  linear_.glu(op);
}

void CpuBackend::moe(const MoeOp& op) {
  give_way();
  experts_.moe(op);
}

void CpuBackend::ssm(const SsmOp& op) {
  give_way();
  scan_.ssm(op);
}

void CpuBackend::head(const HeadOp& op) {
  give_way();
  linear_.head(op);
}

}  // namespace quarrel
