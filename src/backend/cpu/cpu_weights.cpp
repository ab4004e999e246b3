#include "backend/cpu/cpu_weights.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "backend/host_backend.h"
#include "base/as_size.h"
#include "base/error.h"
#include "quant/decode.h"

namespace quarrel {

Weight CpuWeights::add(const WeightSource& source) {
  const auto columns = static_cast<std::size_t>(source.columns);
  std::vector<ExpertPlace> places = HostBackend::expert_places(source);
  PreparedWeight weight{.data = places.front().data,
                        .type = source.type,
                        .kernels = &device_.kernels().of(source.type),
                        .packed = false,
                        .rows = static_cast<std::size_t>(source.rows),
                        .columns = columns,
                        .row_bytes = row_bytes(type_info(source.type), columns),
                        .row_stride = HostBackend::row_stride(source),
                        .memory = {},
                        .decoded = {},
                        .places = {}};
  if (source.role == WeightRole::vector) {
    prepared_bytes_ += HostBackend::vector_bytes(source);
    if (!options_.plan_only) weight.decoded = HostBackend::decode_vector(source);
  } else {
    widest_input_ = std::max(widest_input_, columns);
    // Logits have a buffer of their own.
    const bool logits = source.role == WeightRole::embedding || source.role == WeightRole::head;
    if (!logits) widest_output_ = std::max(widest_output_, weight.rows);
  }
  if (wants_packing(source, *weight.kernels)) pack(source, places, weight);
  if (is_expert(source.role) && !weight.packed) weight.places = std::move(places);
  weights_.push_back(std::move(weight));
  return {.id = static_cast<std::int32_t>(weights_.size()) - 1,
          .rows = static_cast<std::int32_t>(source.rows),
          .columns = static_cast<std::int32_t>(source.columns),
          .experts = static_cast<std::int32_t>(source.experts)};
}

bool CpuWeights::wants_packing(const WeightSource& source, const TypeKernels& kernels) const {
  if (!options_.cpu.repack || kernels.panel_bytes == nullptr) return false;
  switch (source.role) {
    case WeightRole::embedding:  // one row a token is read of it
    case WeightRole::vector: return false;
    case WeightRole::expert_column:
    case WeightRole::expert_row: return !options_.cpu.expert_memory.has_value();
    default: return true;
  }
}

// Each worker packs, and so is the first to touch, the weight rows that it or its NUMA node will multiply.
void CpuWeights::pack(const WeightSource& source, std::span<const ExpertPlace> places, PreparedWeight& weight) {
  const std::size_t panel_rows = device_.kernels().panel_rows;
  const std::size_t panel_bytes = weight.kernels->panel_bytes(weight.columns);
  const std::size_t matrix_bytes = (weight.rows + panel_rows - 1) / panel_rows * panel_bytes;
  prepared_bytes_ += padded(matrix_bytes * places.size(), 64);
  released_bytes_ += weight.rows * weight.row_bytes * places.size();
  weight.packed = true;
  if (is_expert(source.role)) weight.places.resize(places.size());
  if (options_.plan_only) return;
  weight.memory = AlignedBuffer(matrix_bytes * places.size(), "repacked weights");
  weight.data = weight.memory.data();
  const auto pack_share = [&](int worker, int workers) {
    const Share share = share_of(weight.rows, worker, workers);
    for (std::size_t place = 0; place < places.size(); ++place) {
      std::byte* const panels = weight.memory.data() + place * matrix_bytes;
      for (std::size_t weight_row = share.first; weight_row < share.last; weight_row += panel_rows) {
        weight.kernels->pack({.weight_rows = places[place].data + weight_row * weight.row_stride,
                              .row_stride = weight.row_stride,
                              .count = std::min(panel_rows, weight.rows - weight_row),
                              .columns = weight.columns,
                              .out = panels + weight_row / panel_rows * panel_bytes});
      }
    }
  };
  {
    const DeviceLock::Hold hold(device_.lock());
    device_.pool().run(pack_share);
  }
  // Without the device lock: whoever hears of progress may wait for another model's answer.
  if (options_.cpu.on_repacked) options_.cpu.on_repacked(released_bytes_);
  for (std::size_t place = 0; place < weight.places.size(); ++place) {
    weight.places[place] = {.data = weight.memory.data() + place * matrix_bytes};
  }
}

const float* CpuWeights::vector(const Weight& weight, std::size_t count) const {
  if (!weight.valid()) return nullptr;
  const std::size_t found = (*this)[weight].decoded.size();
  if (found != count) {
    fail(ErrorKind::internal, "a recurrent layer needs a vector of {} values and was given one of {}", count, found);
  }
  return vector(weight);
}

void CpuWeights::decode_row(const Weight& table, std::size_t weight_row, float* values) const {
  const PreparedWeight& weight = (*this)[table];
  if (!weight.packed) {
    return quarrel::decode_row(weight.type, weight.data + weight_row * weight.row_stride, values, weight.columns);
  }
  const std::size_t panel_rows = device_.kernels().panel_rows;
  const std::size_t panel = weight_row / panel_rows * weight.kernels->panel_bytes(weight.columns);
  weight.kernels->decode_packed(weight.data + panel, weight_row % panel_rows, weight.columns, values);
}

bool CpuWeights::norm_row(const Norm& norm, const float* in, float* out, std::size_t count, std::size_t at) const {
  if (norm.kind == NormKind::none) return true;
  const CpuKernels& kernels = device_.kernels();
  const float* weight = norm.weight.valid() ? vector(norm.weight) + at : nullptr;
  const float* bias = norm.bias.valid() ? vector(norm.bias) + at : nullptr;
  return std::isfinite(norm.kind == NormKind::rms ? kernels.rms_norm(in, weight, out, count, norm.epsilon)
                                                  : kernels.layer_norm(in, weight, bias, out, count, norm.epsilon));
}

}  // namespace quarrel
