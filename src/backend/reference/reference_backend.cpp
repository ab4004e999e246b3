#include "backend/reference/reference_backend.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "backend/host_memory.h"
#include "backend/reference/reference_math.h"
#include "base/as_size.h"
#include "base/error.h"
#include "quant/decode.h"

namespace quarrel {
// ---- The device ----

std::unique_ptr<Device> make_reference_device(const ThreadOptions& threads) {
  return std::make_unique<ReferenceDevice>(threads);
}

std::string ReferenceDevice::description() const {
  return fmt::format("reference ({} threads{})", pool_.size(), pool_.pinned() ? ", pinned" : "");
}

std::size_t ReferenceDevice::memory_available() const { return host_memory_available(); }
std::size_t ReferenceDevice::memory_total() const { return host_memory_total(); }

std::unique_ptr<Backend> ReferenceDevice::make_backend(const BackendOptions& options) {
  // Activations are always F32, and experts are used where they lie.
  return std::make_unique<ReferenceBackend>(*this, options);
}

// ---- Weights ----

Weight ReferenceBackend::prepare_weight(const WeightSource& source) {
  check_weight(source);
  PreparedWeight weight{.type = source.type,
                        .places = expert_places(source),
                        .row_stride = row_stride(source),
                        .is_vector = source.role == WeightRole::vector,
                        .values = {}};
  if (weight.is_vector) {
    prepared_bytes_ += vector_bytes(source);
    if (!plan_only()) weight.values = decode_vector(source);
  }
  weights_.push_back(std::move(weight));
  return {.id = static_cast<std::int32_t>(weights_.size()) - 1,
          .rows = static_cast<std::int32_t>(source.rows),
          .columns = static_cast<std::int32_t>(source.columns),
          .experts = static_cast<std::int32_t>(source.experts)};
}

WeightSize ReferenceBackend::weight_size(const Weight& weight) const {
  const TypeInfo& info = type_info(prepared(weight).type);
  return {.bytes = as_size(weight.rows) * row_bytes(info, as_size(weight.columns)),
          .quantised = info.block_weights > 1};
}

const ReferenceBackend::PreparedWeight& ReferenceBackend::prepared(const Weight& weight) const {
  if (weight.id < 0 || as_size(weight.id) >= weights_.size()) fail(ErrorKind::internal, "an op lacks a weight");
  return weights_[as_size(weight.id)];
}

const float* ReferenceBackend::vector_of(const Weight& weight, std::size_t count) const {
  if (!weight.valid()) return nullptr;
  const PreparedWeight& found = prepared(weight);
  if (!found.is_vector || found.values.size() != count) {
    fail(ErrorKind::internal, "an op needs a vector of {} values and was given one of {}", count, found.values.size());
  }
  return found.values.data();
}

void ReferenceBackend::decode(const Weight& weight, std::int32_t expert, std::int32_t row,
                              std::span<float> values) const {
  const PreparedWeight& found = prepared(weight);
  if (row < 0 || row >= weight.rows || expert < 0 || expert >= weight.experts ||
      values.size() != as_size(weight.columns)) {
    fail(ErrorKind::internal, "an op reads row {} of a weight of [{}, {}]", row, weight.columns, weight.rows);
  }
  const std::byte* first = found.places[as_size(expert)].data;
  decode_row(found.type, first + as_size(row) * found.row_stride, values.data(), values.size());
}

// ---- Pieces that several ops are made of ----

bool ReferenceBackend::normalise(const Norm& norm, std::span<const float> in, float* out, std::size_t offset) const {
  if (norm.kind == NormKind::none) {
    if (out != in.data()) std::ranges::copy(in, out);
    return true;
  }
  const auto count = static_cast<double>(in.size());
  double mean = 0.0;
  if (norm.kind == NormKind::layer) {
    for (const float value : in) mean += static_cast<double>(value);
    mean /= count;
  }
  double squares = 0.0;
  for (const float value : in) squares += (static_cast<double>(value) - mean) * (static_cast<double>(value) - mean);
  const double scale = 1.0 / std::sqrt(squares / count + static_cast<double>(norm.epsilon));
  const bool finite = std::isfinite(squares);
  const float* weight = norm.weight.valid() ? prepared(norm.weight).values.data() + offset : nullptr;
  const float* bias = norm.bias.valid() ? prepared(norm.bias).values.data() + offset : nullptr;
  for (std::size_t i = 0; i < in.size(); ++i) {
    double value = finite ? (static_cast<double>(in[i]) - mean) * scale : std::numeric_limits<double>::quiet_NaN();
    if (weight != nullptr) value *= static_cast<double>(weight[i]);
    if (bias != nullptr) value += static_cast<double>(bias[i]);
    out[i] = static_cast<float>(value);
  }
  return finite;
}

std::vector<double> ReferenceBackend::input_rows(const Activation& in, const Norm& before, std::int32_t width,
                                                 std::int32_t layer) {
  if (width > in.width) fail(ErrorKind::internal, "an op of layer {} reads {} of {} values", layer, width, in.width);
  vector_of(before.weight, as_size(width));
  vector_of(before.bias, as_size(width));
  const std::size_t columns = as_size(width);
  const std::int32_t count = row_count(in.rows);
  std::vector<double> values(as_size(count) * columns);
  std::vector<float> normed(columns);
  for (std::int32_t r = 0; r < count; ++r) {
    if (!normalise(before, {row(in, r), columns}, normed.data())) flag_bad_row(in.rows, r, layer);
    std::copy(normed.begin(), normed.end(), values.begin() + static_cast<std::ptrdiff_t>(as_size(r) * columns));
  }
  return values;
}

void ReferenceBackend::finish(const BranchEnd& end, std::vector<float>& values, std::int32_t layer) {
  const std::size_t width = as_size(end.x.width);
  if (values.size() != as_size(row_count(end.x.rows)) * width) {
    fail(ErrorKind::internal, "layer {} ends with values of another width than the residual stream's {}", layer, width);
  }
  for (const Norm* norm : {&end.branch, &end.after}) {
    vector_of(norm->weight, width);
    vector_of(norm->bias, width);
  }
  for (std::int32_t r = 0; r < row_count(end.x.rows); ++r) {
    float* value = values.data() + as_size(r) * width;
    float* x = row(end.x, r);
    if (!normalise(end.branch, {value, width}, value)) flag_bad_row(end.x.rows, r, layer);
    for (std::size_t i = 0; i < width; ++i) {
      x[i] = static_cast<float>(static_cast<double>(x[i]) +
                                static_cast<double>(end.scale) * static_cast<double>(value[i]));
    }
    if (!normalise(end.after, {x, width}, x)) flag_bad_row(end.x.rows, r, layer);
  }
}

std::vector<ReferenceBackend::SequenceRows> ReferenceBackend::sequence_rows() const {
  std::vector<SequenceRows> found;
  for (std::int32_t r = 0; r < row_count(RowSet::all); ++r) {
    if (is_padding(RowSet::all, r)) continue;
    const std::int32_t sequence = rows()[as_size(r)].sequence;
    if (found.empty() || found.back().sequence != sequence) found.push_back({.sequence = sequence, .rows = {}});
    found.back().rows.push_back(r);
  }
  return found;
}

// ---- Ops at the ends of a model ----

void ReferenceBackend::embed(const EmbedOp& op) {
  Timer timer(*this, "embedding");
  timer.embedding(op);
  const std::size_t width = as_size(op.table.columns);
  if (op.out.width != op.table.columns) fail(ErrorKind::internal, "the embedding has another width than its output");
  vector_of(op.norm.weight, width);
  vector_of(op.norm.bias, width);
  std::vector<float> token(width);
  std::vector<float> position(width);
  std::vector<float> type(width);
  if (op.types.valid()) decode(op.types, 0, 0, type);
  for (std::int32_t r = 0; r < row_count(op.out.rows); ++r) {
    decode(op.table, 0, tokens()[as_size(r)], token);
    if (op.positions.valid()) decode(op.positions, 0, rows()[as_size(r)].position, position);
    float* out = row(op.out, r);
    for (std::size_t i = 0; i < width; ++i) {
      out[i] = static_cast<float>(static_cast<double>(token[i]) * static_cast<double>(op.scale) +
                                  static_cast<double>(position[i]) + static_cast<double>(type[i]));
    }
    if (!normalise(op.norm, {out, width}, out)) flag_bad_row(op.out.rows, r, 0);
  }
}

void ReferenceBackend::norm(const NormOp& op) {
  const Timer timer(*this, "norms and int8");
  const std::vector<double> values = input_rows(op.in, op.norm, op.out.width, op.layer);
  std::ranges::transform(values, data(op.out), [](double value) { return static_cast<float>(value); });
}

void ReferenceBackend::head(const HeadOp& op) {
  Timer timer(*this, "head");
  const std::size_t width = as_size(op.weight.valid() ? op.weight.columns : op.in.width);
  if (width > as_size(op.in.width)) fail(ErrorKind::internal, "the head is wider than its input");
  vector_of(op.norm.weight, width);
  vector_of(op.norm.bias, width);
  const std::int32_t first = op.slice * kLogitRows;
  const std::int32_t last = std::min(row_count(RowSet::outputs), first + kLogitRows);
  std::vector<float> normed(width);
  std::vector<double> in;
  begin_vectors(static_cast<std::int32_t>(width));
  for (std::int32_t output = first; output < last; ++output) {
    const HostOutput& wanted = outputs()[as_size(output)];
    if (!normalise(op.norm, {row(op.in, output), width}, normed.data())) flag_bad_row(op.in.rows, output, op.layer);
    if (wanted.wanted != nullptr && wanted.wanted->kind == OutputKind::vector) {
      std::ranges::copy(normed, output_vector(wanted));
    }
    in.insert(in.end(), normed.begin(), normed.end());
  }
  if (!op.weight.valid() || !wants_logits(op.slice)) return;
  timer.gemm(as_size(last - first), {op.weight});
  std::vector<float> logits;
  multiply(op.weight, 0, in, vector_of(op.bias, as_size(op.weight.rows)), logits);
  const std::size_t vocabulary = as_size(op.weight.rows);
  for (std::int32_t output = first; output < last; ++output) {
    const float* from = logits.data() + as_size(output - first) * vocabulary;
    std::transform(from, from + vocabulary, logits_row(output - first), [&op](float value) {
      return static_cast<float>(reference::soft_cap(static_cast<double>(op.scale) * static_cast<double>(value),
                                                    static_cast<double>(op.soft_cap)));
    });
  }
}

}  // namespace quarrel
