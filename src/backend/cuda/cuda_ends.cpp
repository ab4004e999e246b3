// The two ends of a model, as kernels on the backend's stream: embedding, the head, what is chosen from its logits, and
// what a text's rows are gathered into.
#include <algorithm>

#include "backend/cuda/choose_tokens.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_error.h"
#include "backend/cuda/pooling.h"
#include "backend/cuda/repack.h"
#include "base/as_size.h"
#include "base/error.h"

namespace quarrel::cuda {

void CudaBackend::look_up(const Weight& table, const std::int32_t* ids, float scale, const RowSpan& out) {
  const StoredWeight& stored = weights_[table];
  if (stored.form == StoredWeight::Form::packed) {
    decode_rows(context_, stored.packed, ids, out.count, scale, out.data, out.stride);
  } else {
    look_up_rows(context_, stored.dense.data, stored.dense.is_f16, table.rows, ids, scale, out);
  }
}

void CudaBackend::embed(const EmbedOp& op) {
  const Timed timed(*this, "embedding");
  const RowSpan out = row_span(op.out);
  if (out.width != op.table.columns) fail(ErrorKind::internal, "the embedding has another width than its output");
  resolve_tokens(context_, tables_.tokens(), tables_.ids(), out.count, ids_);
  look_up(op.table, ids_, op.scale, out);
  RowSpan more{.data = first_value_, .stride = stride_of(out.width), .width = out.width, .count = out.count};
  if (op.positions.valid()) {
    look_up(op.positions, tables_.rows(0).positions, 1.0f, more);
    add_rows(context_, out, more.data, more.stride);
  }
  if (op.types.valid()) {
    more.count = 1;
    look_up(op.types, zeros_, 1.0f, more);
    add_rows(context_, out, more.data, 0);
  }
  if (op.norm.kind != NormKind::none) {
    norm_rows(context_, out, device_norm(op.norm, out.width, op.out.rows, 0, 0), out.data, out.stride);
  }
  after_small_kernel_ = true;
}

void CudaBackend::select_rows(const SelectRowsOp& op) {
  const Timed timed(*this, "other");
  if (row_count(op.out.rows) == 0) return;
  gather_rows(context_, row_span(op.in), tables_.output_rows(), row_span(op.out));
  after_small_kernel_ = true;
}

void CudaBackend::head(const HeadOp& op) {
  const Timed timed(*this, "head");
  const int width = op.weight.valid() ? op.weight.columns : op.in.width;
  const int first = op.slice * kLogitRows;
  const int last = std::min(shape_.outputs(), first + kLogitRows);
  if (last <= first) return;
  if (shape_.vectors) {
    Input input = input_of(op.in, width, op.norm, op.layer, {.first = first, .count = last - first});
    const RowSpan normed = floats_of(input);
    const std::size_t bytes = as_size(width) * sizeof(float);
    std::byte* memory = begin_vectors(width);
    for (const OutputRecord& output : issued_->outputs) {
      const bool wanted_here = output.wanted.kind == OutputKind::vector && output.place >= first && output.place < last;
      if (!wanted_here) continue;
      check(cudaMemcpyAsync(memory + as_size(output.vector_row) * bytes, normed.from(output.place - first, 1).data,
                            bytes, cudaMemcpyDeviceToHost, stream_.get()),
            "vectors");
    }
  }
  if (!op.weight.valid()) return;
  for (Segment rows : segments(op.in.rows)) {
    const int end = std::min(rows.first + rows.count, last);
    rows.first = std::max(rows.first, first);
    rows.count = end - rows.first;
    if (rows.count <= 0) continue;
    Input input = input_of(op.in, width, op.norm, op.layer, rows);
    multiply(input,
             {.weight = op.weight, .bias = op.bias, .out = logits_, .out_first = first, .stride = op.weight.rows});
  }
  if (op.scale != 1.0f || op.soft_cap != 0.0f) {
    finish_logits(context_, {.data = logits_, .stride = op.weight.rows, .width = op.weight.rows, .count = last - first},
                  op.scale, op.soft_cap);
    after_small_kernel_ = true;
  }
}

void CudaBackend::sample(const SampleOp& op) {
  const Timed timed(*this, "sampling");
  const int first = op.slice * kLogitRows;
  const int count = std::min(shape_.outputs(), first + kLogitRows) - first;
  if (count <= 0) return;
  if (op.vocabulary != vocabulary_) fail(ErrorKind::internal, "logits of another vocabulary than was reserved for");
  choose_tokens(context_, {.logits = logits_,
                           .targets = tables_.targets() + first,
                           .draws = tables_.draws() + first,
                           .edit_places = tables_.edit_places() + first,
                           .edits = tables_.edits(),
                           .rows = count,
                           .vocabulary = op.vocabulary,
                           .ids = tables_.ids() + first,
                           .logprobs = tables_.logprobs() + first,
                           .reports = reports_ + first});
  after_small_kernel_ = true;
  if (!is_captured_) copy_logits(first, count);
}

// Room for the step's vectors, all of that width.
std::byte* CudaBackend::begin_vectors(int width) {
  if (issued_->vector_width != 0 && issued_->vector_width != width) {
    fail(ErrorKind::internal, "a step gives vectors of {} and of {} values", issued_->vector_width, width);
  }
  issued_->vector_width = width;
  PinnedBuffer& memory = result_memory_[as_size(which_)].vectors;
  const std::size_t wanted = as_size(issued_->vectors_wanted) * as_size(width) * sizeof(float);
  if (memory.size() < wanted) memory = PinnedBuffer(wanted, "vectors");
  return memory.data();
}

// What the lanes of the step's sequences take of their rows.
void CudaBackend::gather(const PoolOp& op, const RowSpan& rows) {
  GatherLanesOp batch{.rows = rows, .sums = lane_sums_.as<double>()};
  const auto flush = [&] {
    if (batch.count > 0) gather_lanes(context_, batch);
    batch.count = 0;
  };
  for (const PooledRows& run : pooled_rows_) {
    PoolLane& lane = pool_lanes_[as_size(run.lane)];
    if (lane.pooling == Pooling::rank && !op.score.valid()) {
      fail(ErrorKind::unsupported, "the model has no weights to rank with");
    }
    PoolRun part{.first = run.first, .count = run.count, .lane = run.lane, .begins = lane.rows == 0 ? 1 : 0};
    const bool first_alone = lane.pooling == Pooling::cls || lane.pooling == Pooling::rank;
    if (lane.pooling == Pooling::last) {
      part = {.first = run.first + run.count - 1, .count = 1, .lane = run.lane, .begins = 1};
    } else if (first_alone) {
      part.count = lane.rows == 0 ? 1 : 0;
    }
    lane.rows += run.count;
    if (part.count == 0) continue;
    batch.runs[batch.count++] = part;
    if (batch.count == kPoolBatch) flush();
  }
  flush();
}

void CudaBackend::pool(const PoolOp& op) {
  const Timed timed(*this, "other");
  const int width = op.in.width;
  const std::size_t sums = lanes_.size() * as_size(width) * sizeof(double);
  if (lane_sums_.size() < sums) lane_sums_ = DeviceBuffer(sums, "sums of texts");
  std::byte* memory = begin_vectors(width);
  Input input = input_of(op.in, width, op.norm, op.layer, {.first = 0, .count = shape_.rows()});
  gather(op, floats_of(input));
  PoolLanesOp batch{.sums = lane_sums_.as<double>(),
                    .width = width,
                    .out = first_value_,
                    .dense = op.dense.valid() ? weights_.vector_of(op.dense, width * width) : nullptr,
                    .dense_bias = weights_.vector_of(op.dense_bias, width),
                    .score = op.score.valid() ? weights_.vector_of(op.score, op.score.rows * width) : nullptr,
                    .score_bias = weights_.vector_of(op.score_bias, op.score.rows),
                    .scores = op.score.rows};
  const std::size_t bytes = as_size(width) * sizeof(float);
  std::vector<int> places;  // of the batch's vectors among those of the step
  const auto flush = [&] {
    if (batch.count == 0) return;
    pool_lanes(context_, batch);
    for (std::size_t i = 0; i < places.size(); ++i) {
      check(cudaMemcpyAsync(memory + as_size(places[i]) * bytes, first_value_ + i * as_size(width), bytes,
                            cudaMemcpyDeviceToHost, stream_.get()),
            "vectors");
    }
    batch.count = 0;
    places.clear();
  };
  for (const OutputRecord& output : issued_->outputs) {
    if (output.wanted.kind != OutputKind::pooled) continue;
    const PoolLane& lane = pool_lanes_[as_size(output.wanted.lane)];
    places.push_back(output.vector_row);
    batch.outputs[batch.count++] = {.lane = output.wanted.lane,
                                    .divisor = lane.pooling == Pooling::mean ? static_cast<float>(lane.rows) : 1.0f,
                                    .is_ranked = lane.pooling == Pooling::rank ? 1 : 0};
    if (batch.count == kPoolBatch) flush();
  }
  flush();
  after_small_kernel_ = true;
}

}  // namespace quarrel::cuda
