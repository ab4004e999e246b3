// A step on its way through a backend on the host: checked, padded, computed under the device lock, its results handed
// over.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "backend/host_backend.h"
#include "base/as_size.h"
#include "base/error.h"

namespace quarrel {
namespace {

void require(bool condition, const char* what) {
  if (!condition) fail(ErrorKind::internal, "a backend was called wrongly: {}", what);
}

}  // namespace

StepShape HostBackend::shape_of(const Step& step) const noexcept { return exact_shape(step); }

// The rows of each class, and padding behind them: of token 0 at position 0, of no sequence.
void HostBackend::load_step(const Step& step) {
  shape_ = shape_of(step);
  sequences_ = step.sequences;
  const std::int32_t generated = step.generated_rows;
  const std::int32_t shift = shape_.generated_rows - generated;  // of the prompt rows
  rows_.assign(as_size(shape_.rows()), {.sequence = -1, .position = 0, .token = 0});
  tokens_.assign(rows_.size(), 0);
  origins_.assign(rows_.size(), -1);
  for (std::size_t r = 0; r < step.rows.size(); ++r) {
    const std::size_t place = r + (r < as_size(generated) ? 0 : as_size(shift));
    const std::int32_t token = step.rows[r].token;
    rows_[place] = step.rows[r];
    // Where no token could be chosen any will do: whoever reads that result drops the row.
    tokens_[place] = token >= 0 ? token : std::max(0, last_sampled_[as_size(~token)]);
    origins_[place] = static_cast<std::int32_t>(r);
  }
  snapshots_.assign(step.snapshots.begin(), step.snapshots.end());
  for (StateSnapshot& snapshot : snapshots_) {
    if (snapshot.row >= generated) snapshot.row += shift;
  }
  load_outputs(step);
}

void HostBackend::load_outputs(const Step& step) {
  const std::int32_t shift = shape_.generated_rows - step.generated_rows;
  outputs_.assign(as_size(shape_.outputs()), {});
  logits_wanted_ = 0;
  vectors_wanted_ = 0;
  std::size_t place = 0;
  for (std::size_t o = 0; o < step.outputs.size(); ++o, ++place) {
    const StepOutput& output = step.outputs[o];
    const bool generated = output.row < step.generated_rows;
    if (!generated) place = std::max(place, as_size(shape_.generated_outputs));
    const bool vector = output.kind == OutputKind::vector || output.kind == OutputKind::pooled;
    outputs_[place] = {.row = output.row + (generated ? 0 : shift),
                       .index = static_cast<std::int32_t>(o),
                       .logits_place = output.logits ? logits_wanted_++ : -1,
                       .vector_place = vector ? vectors_wanted_++ : -1,
                       .wanted = &output};
  }
}

void HostBackend::copy_blocks(const Step& step) {
  for (const BlockCopy& copy : step.block_copies) {
    const std::span<std::byte> from = block_span(copy.group, copy.from);
    std::memmove(block_span(copy.group, copy.to).data(), from.data(), from.size());
  }
  for (const SlotCopy& copy : step.slot_copies) {
    const std::span<std::byte> from = slot_span(copy.from);
    std::memmove(slot_span(copy.to).data(), from.data(), from.size());
  }
}

void HostBackend::start_lanes(const Step& step) {
  check_.lanes_started(step);
  for (const LaneStart& start : step.lane_starts) {
    Lane& lane = lanes_[as_size(start.lane)];
    lane.pooling = start.pooling;
    lane.rows = 0;
    lane.sum.clear();
    if (start.sampling != nullptr) lane.sampler.start(start);
  }
}

void HostBackend::run_step(const Step& step, const Forward& forward) {
  DeviceLock::Hold hold(user_);
  copy_blocks(step);
  hold_ = &hold;
  begin_step();
  enter_device();
  try {
    if (!step.rows.empty()) forward(*this, shape_);  // there may be nothing but copies
  } catch (...) {
    leave_device();
    hold_ = nullptr;
    throw;
  }
  leave_device();
  hold_ = nullptr;
  results_.micros = hold.micros();
}

void HostBackend::give_way() {
  if (hold_ == nullptr || !hold_->should_give_way()) return;
  leave_device();
  hold_->give_way();
  enter_device();
}

void HostBackend::finish_step(const Step& step) {
  ResultMemory& memory = result_memory();
  results_.logits = {memory.logits.data(), as_size(logits_wanted_) * as_size(logit_width_)};
  results_.vectors = {memory.vectors.data(), as_size(vectors_wanted_) * as_size(vector_width_)};
  check_.taken(step);
  last_sampled_.clear();
  for (const SampleResult& sample : results_.samples) last_sampled_.push_back(sample.id);
  for (std::size_t o = 0; o < step.outputs.size(); ++o) {
    const StepOutput& output = step.outputs[o];
    if (output.kind == OutputKind::sample) lanes_[as_size(output.lane)].sampler.accept(results_.samples[o]);
  }
}

Ticket HostBackend::submit(const Step& step, const Forward& forward) {
  if (plan_only_) fail(ErrorKind::internal, "a backend that only plans runs no steps");
  const auto place = std::ranges::find(finished_, Ticket{0}, &Finished::ticket);
  require(place != finished_.end(), "more than two open tickets");
  check_.check(step);
  load_step(step);
  if (step.fill_masks) step.fill_masks();
  start_lanes(step);
  results_ = {};
  results_.samples.resize(step.outputs.size());
  results_.first_bad_layer.assign(step.rows.size(), -1);
  logit_width_ = 0;
  vector_width_ = 0;
  run_step(step, forward);
  finish_step(step);
  place->ticket = ++last_ticket_;
  place->results = std::move(results_);
  return last_ticket_;
}

StepResults HostBackend::wait(Ticket ticket) {
  const auto found = std::ranges::find(finished_, ticket, &Finished::ticket);
  require(ticket != 0 && found != finished_.end(), "a ticket that was never given out or already awaited");
  found->ticket = 0;
  return std::move(found->results);
}

void HostBackend::flag_bad_row(RowSet rows, std::int32_t row, std::int32_t layer) noexcept {
  if (is_padding(rows, row)) return;
  const std::int32_t place = rows == RowSet::all ? row : outputs_[as_size(row)].row;
  // Several outputs of one row may be normed by several workers at once, in the same layer.
  const std::atomic_ref first(results_.first_bad_layer[as_size(origins_[as_size(place)])]);
  if (first.load(std::memory_order_relaxed) < 0) first.store(layer, std::memory_order_relaxed);
}

}  // namespace quarrel
