// The ops at a model's end that all backends on the host share: which rows are wanted, what is chosen from their
// logits, and what a text's rows are gathered into.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/host_backend.h"
#include "base/as_size.h"
#include "base/error.h"

namespace quarrel {

void HostBackend::select_rows(const SelectRowsOp& op) {
  const Timer timer(*this, "other");
  const std::size_t bytes = as_size(op.in.width) * sizeof(float);
  for (std::int32_t output = 0; output < shape_.outputs(); ++output) {
    const std::int32_t from = outputs_[as_size(output)].row;
    if (from < 0) {
      std::memset(row(op.out, output), 0, bytes);
    } else {
      std::memcpy(row(op.out, output), row(op.in, from), bytes);
    }
  }
}

void HostBackend::begin_vectors(std::int32_t width) {
  if (vectors_wanted_ == 0 || vector_width_ == width) return;
  if (vector_width_ != 0)
    fail(ErrorKind::internal, "a step gives vectors of {} and of {} values", vector_width_, width);
  vector_width_ = width;
  std::vector<float>& vectors = result_memory().vectors;
  vectors.resize(std::max(vectors.size(), as_size(vectors_wanted_) * as_size(width)));
}

float* HostBackend::output_vector(const HostOutput& output) noexcept {
  if (output.vector_place < 0) return nullptr;
  return result_memory().vectors.data() + as_size(output.vector_place) * as_size(vector_width_);
}

bool HostBackend::wants_logits(std::int32_t slice) const noexcept {
  const std::size_t first = as_size(slice * kLogitRows);
  const std::size_t last = std::min(outputs_.size(), first + as_size(kLogitRows));
  for (std::size_t o = first; o < last; ++o) {
    const StepOutput* wanted = outputs_[o].wanted;
    if (wanted == nullptr) continue;
    if (wanted->logits || wanted->kind == OutputKind::sample || wanted->kind == OutputKind::score) return true;
  }
  return false;
}

void HostBackend::sample(const SampleOp& op) {
  const Timer timer(*this, "sampling");
  const std::size_t vocabulary = as_size(op.vocabulary);
  logit_width_ = op.vocabulary;
  std::vector<float>& handed_out = result_memory().logits;
  handed_out.resize(std::max(handed_out.size(), as_size(logits_wanted_) * vocabulary));
  const std::size_t first = as_size(op.slice * kLogitRows);
  const std::size_t last = std::min(outputs_.size(), first + as_size(kLogitRows));
  const auto choose = [&](std::size_t place, const ForEach& for_each) {
    const HostOutput& output = outputs_[place];
    if (output.wanted == nullptr) return;
    const std::span<const float> logits{logits_row(static_cast<std::int32_t>(place - first)), vocabulary};
    if (output.logits_place >= 0) {
      std::ranges::copy(logits, handed_out.data() + as_size(output.logits_place) * vocabulary);
    }
    const StepOutput& wanted = *output.wanted;
    SampleResult& result = results_.samples[as_size(output.index)];
    if (wanted.kind == OutputKind::sample) {
      SamplerState& sampler = lanes_[as_size(wanted.lane)].sampler;
      result = sample_row(logits, sampler.request(wanted.mask, wanted.top), sampling_kernels(), for_each);
    } else if (wanted.kind == OutputKind::score) {
      SampleRequest request;
      request.top = wanted.top;
      request.score = wanted.score;
      result = sample_row(logits, request, sampling_kernels(), for_each);
    }
  };
  const ForEach for_each = [this](std::size_t count, const auto& task) { run_for_each(count, task); };
  if (first + 1 == last) {
    choose(first, for_each);  // its vocabulary is shared out
  } else if (first < last) {
    for_each(last - first, [&](std::size_t index) { choose(first + index, {}); });
  }
}

// What the lane of a sequence's rows takes of them. Sums are of doubles and in the order of the text, so that it does
// not matter how a text was cut into steps.
void HostBackend::gather(const PoolOp& op, std::int32_t first, std::int32_t count, float* normed) {
  Lane& lane = lanes_[as_size(sequence_of(first).lane)];
  const std::size_t width = as_size(op.in.width);
  std::int32_t from = first;
  std::int32_t last = first + count;
  if (lane.pooling == Pooling::last) from = last - 1;
  if (lane.pooling == Pooling::cls || lane.pooling == Pooling::rank) last = lane.rows == 0 ? first + 1 : first;
  if (lane.pooling == Pooling::last || lane.rows == 0) lane.sum.assign(width, 0.0);
  for (std::int32_t r = from; r < last; ++r) {
    const float* values = row(op.in, r);
    if (op.norm.kind != NormKind::none) {
      if (!norm_row(op.norm, values, normed, width)) flag_bad_row(op.in.rows, r, op.layer);
      values = normed;
    }
    for (std::size_t i = 0; i < width; ++i) lane.sum[i] += static_cast<double>(values[i]);
  }
  lane.rows += count;
}

void HostBackend::pool(const PoolOp& op) {
  const Timer timer(*this, "other");
  const std::size_t width = as_size(op.in.width);
  begin_vectors(op.in.width);
  struct Run {
    std::int32_t first = 0;
    std::int32_t count = 0;
  };
  std::vector<Run> runs;  // the rows of each sequence that has a lane
  for (std::int32_t r = 0; r < shape_.rows(); ++r) {
    if (is_padding(RowSet::all, r) || sequence_of(r).lane < 0) continue;
    const bool continues = !runs.empty() && runs.back().first + runs.back().count == r &&
                           rows_[as_size(r - 1)].sequence == rows_[as_size(r)].sequence;
    if (!continues) {
      if (lanes_[as_size(sequence_of(r).lane)].pooling == Pooling::rank && !op.score.valid()) {
        fail(ErrorKind::unsupported, "the model has no weights to rank with");
      }
      lanes_[as_size(sequence_of(r).lane)].sum.reserve(width);  // from here on nothing fails half way
      runs.push_back({.first = r, .count = 0});
    }
    ++runs.back().count;
  }
  pool_scratch_.resize(std::max(pool_scratch_.size(), runs.size() * width));
  run_for_each(runs.size(),
               [&](std::size_t i) { gather(op, runs[i].first, runs[i].count, pool_scratch_.data() + i * width); });
  for (const HostOutput& output : outputs_) {
    if (output.wanted == nullptr || output.wanted->kind != OutputKind::pooled) continue;
    const Lane& lane = lanes_[as_size(output.wanted->lane)];
    float* out = output_vector(output);
    if (lane.pooling == Pooling::rank) {
      std::fill_n(out, width, 0.0f);
      rank(op, lane.sum, out);
    } else {
      const double divisor = lane.pooling == Pooling::mean ? static_cast<double>(lane.rows) : 1.0;
      std::ranges::transform(lane.sum, out, [&](double value) { return static_cast<float>(value / divisor); });
    }
  }
}

void HostBackend::rank(const PoolOp& op, std::span<const double> row, float* out) const {
  const auto product = [this](const Weight& weight, const Weight& bias, std::span<const double> in) {
    const std::span<const float> values = vector_values(weight);
    std::vector<double> result(as_size(weight.rows));
    for (std::size_t o = 0; o < result.size(); ++o) {
      result[o] = bias.valid() ? static_cast<double>(vector_values(bias)[o]) : 0.0;
      for (std::size_t i = 0; i < in.size(); ++i) result[o] += static_cast<double>(values[o * in.size() + i]) * in[i];
    }
    return result;
  };
  std::vector<double> dense(row.begin(), row.end());
  if (op.dense.valid()) {
    dense = product(op.dense, op.dense_bias, dense);
    for (double& value : dense) value = std::tanh(value);
  }
  std::ranges::transform(product(op.score, op.score_bias, dense), out,
                         [](double value) { return static_cast<float>(value); });
}

}  // namespace quarrel
