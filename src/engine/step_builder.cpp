#include "engine/step_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "base/as_size.h"
#include "base/damaged_file.h"
#include "base/error.h"

namespace quarrel {
namespace {

OutputKind kind_of(PlanOutput::Kind kind) noexcept {
  switch (kind) {
    case PlanOutput::Kind::sample: return OutputKind::sample;
    case PlanOutput::Kind::score: return OutputKind::score;
    case PlanOutput::Kind::vector: return OutputKind::vector;
    case PlanOutput::Kind::pooled: return OutputKind::pooled;
  }
  return OutputKind::logits;
}

bool gives_values(const StepOutput& output) noexcept {
  return output.kind == OutputKind::vector || output.kind == OutputKind::pooled;
}

}  // namespace

void StepBuilder::add_output(const PlanOutput& planned, EngineJob& job) {
  StepOutput& output = outputs_.emplace_back();
  output.row = planned.row;
  output.kind = kind_of(planned.kind);
  output.lane = planned.lane;
  output.score = planned.score;
  output.top = job.top;
  EngineBranch& branch = job.branches[as_size(planned.branch)];
  // With two steps in flight its first token may not be known yet, but where the row stands is.
  const auto sequence = as_size(plan.rows[as_size(planned.row)].sequence);
  output.logits = job.prompt_logits && plan.sequences[sequence].length <= job.prompt_length;
  if (planned.kind != PlanOutput::Kind::sample) return;
  begin_text(job, branch);
  if (job.keeps_text) make_text_room(branch);
  if (branch.mask == nullptr) return;
  masked_.push_back({.branch = &branch,
                     .answer = std::span<const TokenId>(branch.text).subspan(job.prompt.size()),
                     .output = outputs_.size() - 1});
}

void StepBuilder::build(const EngineJobs& jobs, std::int32_t vocabulary) {
  submitted = false;
  failure.clear();
  outputs_.clear();
  lane_starts_.clear();
  masked_.clear();
  held_.clear();
  held_.reserve(plan.outputs.size() + plan.lane_starts.size());
  for (const PlanOutput& planned : plan.outputs) {
    held_.push_back(jobs.at(planned.request));
    add_output(planned, *held_.back());
  }
  for (const PlanLane& planned : plan.lane_starts) {
    held_.push_back(jobs.at(planned.request));
    EngineJob& job = *held_.back();
    EngineBranch& branch = job.branches[as_size(planned.branch)];
    begin_text(job, branch);
    const bool samples = job.pooling == Pooling::none;
    lane_starts_.push_back({.lane = planned.lane,
                            .sampling = samples ? &branch.sampling : nullptr,
                            .pooling = job.pooling,
                            .draw = branch.drawn,
                            .mirostat_mu = branch.mirostat_mu,
                            .text = branch.text,
                            .prompt_tokens = static_cast<std::int32_t>(job.prompt.size())});
  }
  mask_size_ = (as_size(vocabulary) + 63) / 64;
  mask_words_.assign(masked_.size() * mask_size_, 0);
  for (std::size_t i = 0; i < masked_.size(); ++i) {
    outputs_[masked_[i].output].mask = std::span<const std::uint64_t>(mask_words_).subspan(i * mask_size_, mask_size_);
  }
  sampled_.reserve(outputs_.size());
  bad_.reserve(plan.sequences.size());
  step_ = {.rows = plan.rows,
           .generated_rows = plan.generated_rows,
           .sequences = plan.sequences,
           .outputs = outputs_,
           .snapshots = plan.snapshots,
           .block_copies = plan.block_copies,
           .slot_copies = plan.slot_copies,
           .lane_starts = lane_starts_};
  if (!masked_.empty()) step_.fill_masks = [this] { fill_masks(); };
}

void StepBuilder::begin_text(const EngineJob& job, EngineBranch& branch) {
  if (branch.text.empty()) branch.text = job.prompt;
}

// What a commit appends to is made large enough here, where running out of memory does no harm. Another token may
// already be on its way.
void StepBuilder::make_text_room(EngineBranch& branch) {
  constexpr std::size_t kRoom = 64;
  if (branch.text.capacity() < branch.text.size() + 2) branch.text.reserve(2 * branch.text.size() + kRoom);
}

// A mask that cannot be had leaves no token: its branch ends, and nobody else does.
void StepBuilder::fill_masks() {
  for (std::size_t i = 0; i < masked_.size(); ++i) {
    const std::span<std::uint64_t> words = std::span(mask_words_).subspan(i * mask_size_, mask_size_);
    try {
      masked_[i].branch->mask->allow(masked_[i].answer, words);
    } catch (const std::exception& error) {
      std::ranges::fill(words, 0);
      masked_[i].branch->error = error.what();
    } catch (...) {
      std::ranges::fill(words, 0);
      masked_[i].branch->error = "the mask threw something";
    }
  }
}

bool StepBuilder::bad(const PlanOutput& output) const noexcept {
  return bad_[as_size(plan.rows[as_size(output.row)].sequence)] != 0;
}

void StepBuilder::note_bad(std::size_t sequence, const EngineJobs& jobs, const std::string& why) {
  bad_[sequence] = 1;
  const PlanOwner& owner = plan.owners[sequence];
  const auto found = jobs.find(owner.request);
  if (found == jobs.end()) return;
  EngineJob& job = *found->second;
  // Before its first token a branch's rows are the prompt's, and so those of every branch.
  const bool prompt = job.branches[as_size(owner.branch)].drawn == 0;
  for (std::size_t i = 0; i < job.branches.size(); ++i) {
    const bool concerned = prompt || std::cmp_equal(i, owner.branch);
    if (concerned && job.branches[i].error.empty()) job.branches[i].error = why;
  }
}

void StepBuilder::read(const StepResults& results, const EngineJobs& jobs) {
  bad_.assign(plan.sequences.size(), 0);
  sampled_.clear();
  values_.resize(std::max(values_.size(), outputs_.size()));
  for (std::size_t row = 0; row < results.first_bad_layer.size(); ++row) {
    const std::int32_t layer = results.first_bad_layer[row];
    if (layer < 0) continue;
    note_bad(as_size(plan.rows[row].sequence), jobs,
             fmt::format("the model's numbers are not finite from layer {} on; {}", layer, kDamagedFileHint));
  }
  std::size_t logits = 0;
  std::size_t vectors = 0;
  const auto count = [this](auto&& wanted) {
    return static_cast<std::size_t>(std::ranges::count_if(outputs_, wanted));
  };
  const std::size_t logit_rows = count([](const StepOutput& output) { return output.logits; });
  const std::size_t vector_rows = count(gives_values);
  const auto take = [](std::span<const float> all, std::size_t rows, std::size_t& next) {
    const std::size_t width = all.size() / std::max<std::size_t>(1, rows);
    return all.subspan(width * next++, width);
  };
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    const StepOutput& output = outputs_[i];
    const SampleResult& sample = results.samples[i];
    values_[i].clear();
    if (output.logits) {
      const auto row = take(results.logits, logit_rows, logits);
      values_[i].assign(row.begin(), row.end());
    } else if (gives_values(output)) {
      const auto row = take(results.vectors, vector_rows, vectors);
      // Whoever has ended meanwhile no longer owns the place.
      const auto found = jobs.find(plan.outputs[i].request);
      const std::span<float> into = found == jobs.end() ? std::span<float>{} : found->second->vector_into;
      if (into.empty()) {
        values_[i].assign(row.begin(), row.end());
      } else {
        std::ranges::copy(row.first(std::min(row.size(), into.size())), into.begin());
      }
    }
    const bool chooses = output.kind == OutputKind::sample || output.kind == OutputKind::score;
    if (chooses && sample.outcome == SampleOutcome::bad_logits) {
      note_bad(as_size(plan.rows[as_size(output.row)].sequence), jobs,
               fmt::format("the model's logits are not numbers; {}", kDamagedFileHint));
    }
    sampled_.push_back(output.kind == OutputKind::sample ? sample.id : 0);
  }
}

}  // namespace quarrel
