// A step on its way through the GPU: its tables are filled and go up, its kernels run one by one or as a graph, what
// the host wants comes down, and the results are read when somebody waits for them.
#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_error.h"
#include "base/as_size.h"
#include "base/error.h"

namespace quarrel::cuda {
namespace {

constexpr int kEagerSteps = 2;  // of a shape, before it is captured: then all of its kernels have been loaded
constexpr int kMaxGraphs = 64;
constexpr int kMaxSamplers = 8;  // threads
static_assert(kMaxTop == kMaxTopTokens);

std::int32_t rounded_up(std::int32_t count, std::int32_t unit) { return (count + unit - 1) / unit * unit; }

// Rows of class generated as graphs have them.
std::int32_t generated_bucket(std::int32_t count) {
  for (const std::int32_t bucket : {0, 1, 2, 4, 8, 16}) {
    if (count <= bucket) return bucket;
  }
  return rounded_up(count, count <= 64 ? 16 : 32);
}

}  // namespace

// Only steps without prompts are replayed. Rows of prompts are rounded up so that GEMMs of few sizes come.
StepShape CudaBackend::shape_of(const Step& step) const noexcept {
  StepShape shape = exact_shape(step);
  if (shape.prompt_rows == 0) {
    shape.generated_rows = generated_bucket(shape.generated_rows);
    shape.generated_outputs = generated_bucket(shape.generated_outputs);
  } else if (shape.prompt_rows > kMaxPackedGemmRows) {
    shape.prompt_rows = rounded_up(shape.prompt_rows, 32);
  }
  return shape;
}

// ---- What a step is made of ----

// A token that the step before sampled and nobody has seen yet is read on the device.
std::int32_t CudaBackend::token_of(std::int32_t token) {
  if (token >= 0) return token;
  const std::size_t output = as_size(~token);
  require(output < last_.places.size(), "a token of an output that is not there");
  if (!last_.is_known && last_.on_host[output]) finish_last();
  // Where no token could be chosen any will do: whoever reads that result drops the row.
  return last_.is_known ? std::max(0, last_.ids[output]) : ~last_.places[output];
}

void CudaBackend::finish_last() {
  Record* record = record_of(last_.ticket);
  require(record != nullptr, "a token of a step that is gone");
  finish(*record);
  if (record->error) std::rethrow_exception(record->error);
}

// A token that a lane counts and that nobody has seen yet is read where the row that follows it reads it. Should
// another row be wanted, its step must be over first.
void CudaBackend::finish_where_counts_lag(const Step& step) {
  if (last_.ticket == 0 || last_.is_known) return;
  count_tokens_ahead();
  for (const StepOutput& output : step.outputs) {
    if (!changes_logits(output) || tokens_ahead_[as_size(output.lane)] == 0) continue;
    const std::int32_t token = step.rows[as_size(output.row)].token;
    if (token < 0 && last_.lanes[as_size(~token)] == output.lane) continue;
    return finish_last();
  }
}

void CudaBackend::load_rows(const Step& step, Record& record) {
  const std::int32_t shift = shape_.generated_rows - step.generated_rows;  // of the prompt rows
  rows_.assign(as_size(shape_.rows()), {.sequence = -1, .position = 0, .token = 0});
  tokens_.assign(rows_.size(), 0);
  record.places.resize(step.rows.size());
  for (std::size_t r = 0; r < step.rows.size(); ++r) {
    const std::size_t place = r + (std::cmp_less(r, step.generated_rows) ? 0 : as_size(shift));
    rows_[place] = step.rows[r];
    tokens_[place] = token_of(step.rows[r].token);
    record.places[r] = static_cast<std::int32_t>(place);
  }
  tables_.set_rows(which_, rows_, tokens_);
  tables_.set_sequences(which_, step.sequences);
  sequence_lengths_.clear();
  for (const StepSequence& sequence : step.sequences) sequence_lengths_.push_back(sequence.length);
  tiles_ = tables_.set_tiles(which_, rows_, shape_.generated_rows);
  const std::vector<StateSnapshot> snapshots = first_snapshots(step, record);
  runs_ = tables_.set_runs(which_, rows_, step.sequences, snapshots);
  // A graph looks at all that there may be.
  if (shape_.prompt_rows == 0) runs_ = std::min(shape_.generated_rows, limits_.sequences);
  load_pooled_rows(step);
}

// By padded row, one a row: what another slot is to have of it is copied there once the rows have been computed.
std::vector<StateSnapshot> CudaBackend::first_snapshots(const Step& step, const Record& record) {
  std::vector<StateSnapshot> first;
  late_copies_.clear();
  for (const StateSnapshot& snapshot : step.snapshots) {
    const std::int32_t row = record.places[as_size(snapshot.row)];
    const auto known = std::ranges::find(first, row, &StateSnapshot::row);
    if (known == first.end()) {
      first.push_back({.row = row, .slot = snapshot.slot});
    } else {
      late_copies_.push_back({.from = known->slot, .to = snapshot.slot});
    }
  }
  return first;
}

void CudaBackend::load_pooled_rows(const Step& step) {
  pooled_rows_.clear();
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    const std::int32_t sequence = rows_[r].sequence;
    if (sequence < 0 || step.sequences[as_size(sequence)].lane < 0) continue;
    if (r == 0 || rows_[r - 1].sequence != sequence) {
      pooled_rows_.push_back(
          {.first = static_cast<std::int32_t>(r), .count = 0, .lane = step.sequences[as_size(sequence)].lane});
    }
    ++pooled_rows_.back().count;
  }
}

// How many tokens of each lane are being drawn that it has not noted yet.
void CudaBackend::count_tokens_ahead() {
  tokens_ahead_.assign(lanes_.size(), 0);
  for (const Record& record : records_) {
    if (record.ticket == 0 || record.is_finished) continue;
    for (const OutputRecord& output : record.outputs) {
      if (output.wanted.kind == OutputKind::sample) ++tokens_ahead_[as_size(output.wanted.lane)];
    }
  }
}

bool CudaBackend::changes_logits(const StepOutput& output) const {
  return output.kind == OutputKind::sample && (!output.mask.empty() || lanes_[as_size(output.lane)].changes_logits());
}

// `row`: with padding.
OutputEdits CudaBackend::edits_of(const StepOutput& output, const TokenDraw& draw, std::int32_t row) const {
  if (!changes_logits(output) && draw.from != kFromTypical && draw.from != kFromSurprise) return {};
  return {.lane = &lanes_[as_size(output.lane)],
          .mask = output.mask,
          .unseen = tokens_ahead_[as_size(output.lane)] > 0 ? ids_ + row : nullptr,
          .lane_mu = lane_mu_.as<float>() + output.lane};
}

// What the kernel is told of an output: a token to be scored, or to take the likeliest, or a draw. Nothing where the
// host is to see logits that the kernel would change.
std::optional<std::int32_t> CudaBackend::choice_on_device(const StepOutput& output, TokenDraw& draw) const {
  if (output.logits && changes_logits(output)) return std::nullopt;
  draw.top = static_cast<std::int16_t>(output.top);
  if (output.kind == OutputKind::score) return output.score;
  if (output.kind != OutputKind::sample) return std::nullopt;
  const SamplerState& lane = lanes_[as_size(output.lane)];
  if (lane.is_greedy()) return kChooseLargest;
  draw = token_draw(lane.draw(as_size(vocabulary_), tokens_ahead_[as_size(output.lane)]));
  draw.top = static_cast<std::int16_t>(output.top);
  return kChooseDrawn;
}

void CudaBackend::load_outputs(const Step& step, Record& record) {
  const std::int32_t shift = shape_.generated_rows - step.generated_rows;
  count_tokens_ahead();
  std::vector<std::int32_t> rows(as_size(shape_.outputs()), -1);
  std::vector<std::int32_t> targets(rows.size(), kChooseNothing);
  std::vector<TokenDraw> draws(rows.size());
  std::vector<OutputEdits> changes(rows.size());
  std::vector<std::int32_t> edit_places(rows.size());
  record.outputs.clear();
  record.outputs.resize(step.outputs.size());
  record.logits_wanted = 0;
  record.vectors_wanted = 0;
  std::size_t place = 0;
  for (std::size_t o = 0; o < step.outputs.size(); ++o, ++place) {
    const StepOutput& output = step.outputs[o];
    const bool generated = output.row < step.generated_rows;
    if (!generated) place = std::max(place, as_size(shape_.generated_outputs));
    OutputRecord& kept = record.outputs[o];
    kept.wanted = output;
    kept.place = static_cast<int>(place);
    const bool tokens = output.kind == OutputKind::sample || output.kind == OutputKind::score;
    const std::optional<std::int32_t> choice = choice_on_device(output, draws[place]);
    kept.on_host = tokens && !choice;
    if (output.logits) kept.logits_row = record.logits_wanted++;
    const bool vector = output.kind == OutputKind::vector || output.kind == OutputKind::pooled;
    if (vector) kept.vector_row = record.vectors_wanted++;
    if (kept.on_host) kept.mask.assign(output.mask.begin(), output.mask.end());
    kept.wanted.mask = kept.mask;
    rows[place] = output.row + (generated ? 0 : shift);
    if (!choice) continue;
    targets[place] = *choice;
    changes[place] = edits_of(output, draws[place], rows[place]);
    kept.has_report = output.top > 0 || draws[place].from == kFromSurprise;
    kept.has_mu = draws[place].from == kFromSurprise;
  }
  int logits = record.logits_wanted;
  for (OutputRecord& kept : record.outputs) {
    if (kept.on_host && kept.logits_row < 0) kept.logits_row = logits++;
  }
  edits_.gather(which_, changes, edit_places);
  tables_.set_edits(which_, edit_places, edits_.edits());
  tables_.set_outputs(which_, rows, targets, draws);
  ResultMemory& memory = result_memory_[as_size(which_)];
  const std::size_t bytes = as_size(logits) * as_size(vocabulary_) * sizeof(float);
  if (memory.logits.size() < bytes) memory.logits = PinnedBuffer(bytes, "logits");
  const std::size_t report_bytes = as_size(reported_outputs(record)) * sizeof(RowReport);
  if (memory.reports.size() < report_bytes) memory.reports = PinnedBuffer(2 * report_bytes, "reports of rows");
}

void CudaBackend::start_lanes(const Step& step) {
  check_.lanes_started(step);
  for (const LaneStart& start : step.lane_starts) {
    pool_lanes_[as_size(start.lane)] = {.pooling = start.pooling};
    if (start.sampling != nullptr) lanes_[as_size(start.lane)].start(start);
  }
}

// ---- Its way through the device ----

Ticket CudaBackend::submit(const Step& step, const Forward& forward) {
  if (options_.plan_only) fail(ErrorKind::internal, "a backend that only plans runs no steps");
  const auto free = std::ranges::find(records_, Ticket{0}, &Record::ticket);
  require(free != records_.end(), "more than two open tickets");
  device_.make_current();
  check_.check(step);
  if (step.fill_masks) step.fill_masks();
  start_lanes(step);
  const Ticket ticket = last_ticket_ + 1;
  which_ = static_cast<int>(ticket % 2);
  // The memory of the step before the last one is used again.
  if (ticket >= 2) {
    if (Record* old = record_of(ticket - 2)) finish(*old);
  }
  *free = {};
  shape_ = shape_of(step);
  finish_where_counts_lag(step);
  load_rows(step, *free);
  load_outputs(step, *free);
  LastStep next{.ticket = ticket, .is_known = false, .places = {}, .on_host = {}, .lanes = {}, .ids = {}};
  for (const OutputRecord& output : free->outputs) {
    next.places.push_back(output.place);
    next.on_host.push_back(output.on_host);
    next.lanes.push_back(output.wanted.lane);
  }
  issued_ = &*free;
  try {
    issue(step, forward);
  } catch (...) {
    // What was queued still reads this step's tables, which the next attempt writes.
    const cudaError_t status = cudaStreamSynchronize(stream_.get());
    // And it may have written over what the step before has left on the device: from now on that comes from the host.
    if (Record* before = record_of(last_.ticket)) finish(*before);
    if (is_lasting(status)) check(status, "a step");
    throw;
  }
  check_.taken(step);
  free->ticket = last_ticket_ = ticket;
  last_ = std::move(next);
  return ticket;
}

void CudaBackend::copy_slots(std::span<const SlotCopy> copies) {
  for (const SlotCopy& copy : copies) {
    check(cudaMemcpyAsync(slot_place(copy.to), slot_place(copy.from), slot_bytes_, cudaMemcpyDeviceToDevice,
                          stream_.get()),
          "copy of a slot");
  }
}

void CudaBackend::issue(const Step& step, const Forward& forward) {
  const ResultMemory& memory = result_memory_[as_size(which_)];
  memory.begin.record(stream_);
  for (const BlockCopy& copy : step.block_copies) {
    check(cudaMemcpyAsync(block_place(copy.group, copy.to), block_place(copy.group, copy.from),
                          kv_[as_size(copy.group)].block_bytes, cudaMemcpyDeviceToDevice, stream_.get()),
          "copy of a block");
  }
  copy_slots(step.slot_copies);
  tables_.upload(which_, context_);
  edits_.upload(which_, context_);
  if (!step.rows.empty()) run_forward(forward);  // there may be nothing but copies
  copy_slots(late_copies_);
  tables_.download(which_, context_);
  copy_reports();
  issued_->has_expert_counts = copy_expert_counts();
  memory.end.record(stream_);
}

bool CudaBackend::can_be_captured() const noexcept {
  return options_.graphs && !profiling_ && shape_.prompt_rows == 0 && !shape_.vectors && !shape_.pooled &&
         shape_.outputs() <= kLogitRows;
}

void CudaBackend::run_kernels(const Forward& forward) {
  for (RopeTable& rope : ropes_) rope.is_ready = false;
  halved_ = {};
  deferred_norm_ = {};
  pending_join_ = {};
  after_small_kernel_ = true;
  forward(*this, shape_);
  settle_norm();
  settle_join();
}

// A graph has no copies of logits: which rows are wanted differs from step to step.
void CudaBackend::run_forward(const Forward& forward) {
  is_captured_ = false;
  Graph* graph = can_be_captured() ? graph_of(shape_) : nullptr;
  if (graph == nullptr || graph->is_refused) return run_kernels(forward);
  graph->seen_in = last_ticket_ + 1;
  if (graph->seen < kEagerSteps) {
    run_kernels(forward);
    ++graph->seen;
    return;
  }
  if (graph->executable == nullptr && !capture(*graph, forward)) return run_kernels(forward);
  // The first launch takes memory.
  const cudaError_t status = cudaGraphLaunch(graph->executable, stream_.get());
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    cudaGraphExecDestroy(std::exchange(graph->executable, nullptr));
    graph->is_refused = true;
    return run_kernels(forward);
  }
  check(status, "replay of a step");
  is_captured_ = true;
  copy_logits(0, shape_.outputs());
}

// The shape's place in the table, which one that was never captured leaves to it where there is no other; null: there
// is none.
CudaBackend::Graph* CudaBackend::graph_of(const StepShape& shape) {
  const auto known = std::ranges::find(graphs_, shape, &Graph::shape);
  if (known != graphs_.end()) return &*known;
  if (graphs_.size() < kMaxGraphs) return &graphs_.emplace_back(Graph{.shape = shape});
  Graph* oldest = nullptr;
  for (Graph& graph : graphs_) {
    if (graph.executable == nullptr && (oldest == nullptr || graph.seen_in < oldest->seen_in)) oldest = &graph;
  }
  if (oldest != nullptr) *oldest = {.shape = shape};
  return oldest;
}

// False: the device has no room for the graph, or the step cannot be one. Nothing has run then, and it can run without.
bool CudaBackend::capture(Graph& graph, const Forward& forward) {
  check(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal), "capture of a step");
  cudaGraph_t captured = nullptr;
  is_captured_ = true;
  try {
    run_kernels(forward);
  } catch (const std::exception& thrown) {
    is_captured_ = false;
    cudaStreamEndCapture(stream_.get(), &captured);
    if (captured != nullptr) cudaGraphDestroy(captured);
    cudaGetLastError();
    // What fails without a graph too says so itself.
    const auto* error = dynamic_cast<const Error*>(&thrown);
    if (error == nullptr || error->kind() == ErrorKind::device_lost) throw;
    return false;
  }
  is_captured_ = false;
  cudaError_t status = cudaStreamEndCapture(stream_.get(), &captured);
  if (status == cudaSuccess) status = cudaGraphInstantiate(&graph.executable, captured, 0);
  if (captured != nullptr) cudaGraphDestroy(captured);
  if (status == cudaSuccess) return true;
  graph.executable = nullptr;
  graph.is_refused = true;
  if (is_lasting(status)) check(status, "capture of a step");
  cudaGetLastError();  // else the next op is told of it
  return false;
}

// How many outputs have a report, or stand before one that has.
int CudaBackend::reported_outputs(const Record& record) {
  int end = 0;
  for (const OutputRecord& output : record.outputs) {
    if (output.has_report) end = std::max(end, output.place + 1);
  }
  return end;
}

void CudaBackend::copy_reports() {
  const std::size_t bytes = as_size(reported_outputs(*issued_)) * sizeof(RowReport);
  if (bytes == 0) return;
  const PinnedBuffer& memory = result_memory_[as_size(which_)].reports;
  check(cudaMemcpyAsync(memory.data(), reports_, bytes, cudaMemcpyDeviceToHost, stream_.get()), "reports of rows");
}

// Those that the host wants of outputs [first, first + count), which are what `logits_` holds.
void CudaBackend::copy_logits(int first, int count) {
  const std::size_t bytes = as_size(vocabulary_) * sizeof(float);
  std::byte* memory = result_memory_[as_size(which_)].logits.data();
  for (const OutputRecord& output : issued_->outputs) {
    if (output.logits_row < 0 || output.place < first || output.place >= first + count) continue;
    check(cudaMemcpyAsync(memory + as_size(output.logits_row) * bytes,
                          logits_ + as_size(output.place - first) * as_size(vocabulary_), bytes, cudaMemcpyDeviceToHost,
                          stream_.get()),
          "logits");
  }
}

// ---- Its results ----

CudaBackend::Record* CudaBackend::record_of(Ticket ticket) {
  const auto found = std::ranges::find(records_, ticket, &Record::ticket);
  return ticket == 0 || found == records_.end() ? nullptr : &*found;
}

// What a step failed with is kept until somebody waits for it.
void CudaBackend::finish(Record& record) {
  if (record.is_finished) return;
  record.is_finished = true;
  try {
    device_.make_current();
    take_results(record);
  } catch (...) {
    record.error = std::current_exception();
  }
}

void CudaBackend::take_results(Record& record) {
  const int which = static_cast<int>(record.ticket % 2);
  const ResultMemory& memory = result_memory_[as_size(which)];
  memory.end.synchronize();
  StepResults& results = record.results;
  results.micros = static_cast<std::int64_t>(memory.begin.until(memory.end) * 1000.0f);
  saturated_ = tables_.host_saturated(which);
  timers_[as_size(which)].add_to(times_);
  if (record.has_expert_counts) {
    std::memcpy(known_expert_counts_.data(), memory.expert_counts.data(), memory.expert_counts.size());
  }
  results.first_bad_layer.resize(record.places.size());
  std::ranges::transform(record.places, results.first_bad_layer.begin(),
                         [&](std::int32_t place) { return tables_.host_bad_rows(which)[as_size(place)]; });
  const auto* logits = reinterpret_cast<const float*>(memory.logits.data());
  const std::size_t vocabulary = as_size(vocabulary_);
  results.samples.resize(record.outputs.size());
  sample_on_host(record, {logits, memory.logits.size() / sizeof(float)});
  for (std::size_t o = 0; o < record.outputs.size(); ++o) {
    const OutputRecord& output = record.outputs[o];
    std::int32_t& bad = results.first_bad_layer[as_size(output.wanted.row)];
    if (bad < 0) bad = tables_.host_bad_outputs(which)[as_size(output.place)];
    SampleResult& result = results.samples[o];
    const bool samples = output.wanted.kind == OutputKind::sample;
    if (!output.on_host && (samples || output.wanted.kind == OutputKind::score)) {
      const std::int32_t id = tables_.host_ids(which)[as_size(output.place)];
      result.id = std::max(id, -1);
      result.outcome = id == kNoTokenLeft ? SampleOutcome::no_token
                       : id < 0           ? SampleOutcome::bad_logits
                                          : SampleOutcome::token;
      result.logprob = tables_.host_logprob(which, output.place);
      if (samples) result.mirostat_mu = lanes_[as_size(output.wanted.lane)].mirostat_mu();
      if (output.has_report && id != kBadLogits) take_report(output, memory, result);
    }
    if (!samples) continue;
    lanes_[as_size(output.wanted.lane)].make_room();
    lanes_[as_size(output.wanted.lane)].accept(result);
  }
  results.logits = {logits, as_size(record.logits_wanted) * vocabulary};
  results.vectors = {reinterpret_cast<const float*>(memory.vectors.data()),
                     as_size(record.vectors_wanted) * as_size(record.vector_width)};
  if (record.ticket != last_.ticket) return;
  last_.is_known = true;
  last_.ids.clear();
  for (const SampleResult& sample : results.samples) last_.ids.push_back(sample.id);
}

void CudaBackend::take_report(const OutputRecord& output, const ResultMemory& memory, SampleResult& result) const {
  const RowReport& report = reinterpret_cast<const RowReport*>(memory.reports.data())[output.place];
  for (std::int32_t i = 0; i < output.wanted.top && report.top[i].id >= 0; ++i) {
    result.top.push_back({.id = report.top[i].id, .logprob = report.top[i].logprob});
  }
  if (output.has_mu && result.id >= 0) result.mirostat_mu = report.mirostat_mu;
}

// Several rows at a time: each looks through the whole vocabulary.
void CudaBackend::sample_on_host(Record& record, std::span<const float> logits) {
  std::vector<std::size_t> wanted;
  for (std::size_t o = 0; o < record.outputs.size(); ++o) {
    if (record.outputs[o].on_host) wanted.push_back(o);
  }
  const std::size_t vocabulary = as_size(vocabulary_);
  const auto sample = [&](std::size_t o) {
    const OutputRecord& output = record.outputs[o];
    const std::span<const float> row = logits.subspan(as_size(output.logits_row) * vocabulary, vocabulary);
    SampleRequest scored;
    scored.top = output.wanted.top;
    scored.score = output.wanted.score;
    const bool samples = output.wanted.kind == OutputKind::sample;
    record.results.samples[o] =
        sample_row(row, samples ? lanes_[as_size(output.wanted.lane)].request(output.mask, output.wanted.top) : scored);
  };
  if (wanted.size() < 2) {
    for (const std::size_t o : wanted) sample(o);
    return;
  }
  if (!samplers_) samplers_ = std::make_unique<ThreadPool>(std::min(usable_threads(), kMaxSamplers));
  samplers_->for_range(static_cast<std::int64_t>(wanted.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) sample(wanted[static_cast<std::size_t>(i)]);
  });
}

StepResults CudaBackend::wait(Ticket ticket) {
  Record* record = record_of(ticket);
  require(record != nullptr, "a ticket that was never given out or already awaited");
  // Lanes take note of tokens in the order of steps.
  Record* earlier = record_of(ticket - 1);
  if (earlier != nullptr) finish(*earlier);
  finish(*record);
  // What follows a step that failed was computed from what nobody knows.
  if (earlier != nullptr && earlier->error && !record->error) record->error = earlier->error;
  record->ticket = 0;
  if (record->error) {
    if (Record* later = record_of(ticket + 1)) {
      finish(*later);
      if (!later->error) later->error = record->error;
    }
    check_.lost();
    last_ = {};
    std::rethrow_exception(std::exchange(record->error, nullptr));
  }
  return std::move(record->results);
}

}  // namespace quarrel::cuda
