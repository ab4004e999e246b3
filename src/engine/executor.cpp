#include "engine/executor.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "model/architectures.h"

namespace quarrel {
Executor::Executor(GgufFile file, Device& device, const ExecutorOptions& options)
    : file_(std::move(file)), plan_(plan_memory(file_, device, options)) {
  BackendOptions backend{.activations = plan_.activations, .repack = plan_.repack, .expert_memory = plan_.expert_cache};
  if (options.on_load) {
    backend.on_repacked = [&](std::uint64_t done) { options.on_load(done, plan_.released); };
  }
  backend_ = device.make_backend(backend);
  model_ = std::make_unique<Model>(file_, requested_spec(file_, plan_.context, options), *backend_);
  backend_->reserve(plan_.limits, this->spec().vocabulary);
  backend_->allocate_cache({.groups = model_->kv_groups(),
                            .state_layers = model_->state_layers(),
                            .kv_type = plan_.kv_type,
                            .blocks = plan_.blocks,
                            .state_slots = plan_.state_slots});
  for (const std::int32_t blocks : plan_.blocks) {
    std::vector<std::int32_t>& free_list = free_blocks_.emplace_back();
    for (std::int32_t block = blocks - 1; block >= 0; --block) free_list.push_back(block);
  }
  for (std::int32_t slot = plan_.state_slots - 1; slot >= 0; --slot) free_slots_.push_back(slot);
  file_.require_whole();  // what was prepared of it is what it says
}

Executor::~Executor() = default;

Sequence Executor::make_sequence() const {
  Sequence sequence;
  sequence.blocks_.resize(model_->kv_groups().size());
  return sequence;
}

void Executor::take_slot(std::int32_t& slot) {
  if (slot >= 0) return;
  if (free_slots_.empty()) fail(ErrorKind::out_of_memory, "no slot for recurrent state is free");
  slot = free_slots_.back();
  free_slots_.pop_back();
}

void Executor::free_slot(std::int32_t& slot) {
  if (slot >= 0) free_slots_.push_back(slot);
  slot = -1;
}

void Executor::mark(Sequence& sequence) {
  if (sequence.slot_ < 0) return;
  take_slot(sequence.marked_slot_);
  backend_->copy_slot(sequence.slot_, sequence.marked_slot_);
  sequence.marked_length_ = sequence.length_;
}

std::int32_t Executor::first_entry_seen(std::size_t group, std::int32_t position) const {
  const std::int32_t window = model_->kv_groups()[group].window;
  return window > 0 ? std::max(0, position - window + 1) / backend_->block_tokens() : 0;
}

bool Executor::window_reaches(const Sequence& sequence, std::int32_t length) const {
  for (std::size_t group = 0; group < sequence.blocks_.size(); ++group) {
    const std::int32_t first = first_entry_seen(group, length);
    const std::int32_t end = blocks_for(length, backend_->block_tokens());
    for (std::int32_t entry = first; entry < end; ++entry) {
      if (sequence.blocks_[group][static_cast<std::size_t>(entry)] < 0) return false;
    }
  }
  return true;
}

std::int32_t Executor::truncate(Sequence& sequence, std::int32_t length) {
  length = std::clamp(length, 0, sequence.length_);
  if (sequence.slot_ >= 0 && length < sequence.length_) {
    const bool returns = sequence.marked_slot_ >= 0 && sequence.marked_length_ <= length;
    length = returns ? sequence.marked_length_ : 0;
    if (returns) backend_->copy_slot(sequence.marked_slot_, sequence.slot_);
  }
  if (!window_reaches(sequence, length)) length = 0;
  sequence.length_ = length;
  const auto keep = static_cast<std::size_t>(blocks_for(length, backend_->block_tokens()));
  for (std::size_t group = 0; group < sequence.blocks_.size(); ++group) {
    std::vector<std::int32_t>& blocks = sequence.blocks_[group];
    while (blocks.size() > keep) {
      if (blocks.back() >= 0) free_blocks_[group].push_back(blocks.back());
      blocks.pop_back();
    }
  }
  if (length == 0) {
    free_slot(sequence.slot_);
    free_slot(sequence.marked_slot_);
  }
  return length;
}

void Executor::append_blocks(Sequence& sequence, std::int32_t length) {
  if (length > plan_.context) {
    fail(ErrorKind::bad_input, "the text has {} tokens, but the context holds only {}", length, plan_.context);
  }
  const auto needed = static_cast<std::size_t>(blocks_for(length, backend_->block_tokens()));
  for (std::size_t group = 0; group < sequence.blocks_.size(); ++group) {
    while (sequence.blocks_[group].size() < needed) {
      if (free_blocks_[group].empty()) fail(ErrorKind::out_of_memory, "the KV cache is full");
      sequence.blocks_[group].push_back(free_blocks_[group].back());
      free_blocks_[group].pop_back();
    }
  }
}

void Executor::free_passed_blocks(Sequence& sequence) {
  for (std::size_t group = 0; group < sequence.blocks_.size(); ++group) {
    auto entry = static_cast<std::size_t>(first_entry_seen(group, sequence.length_));
    std::vector<std::int32_t>& blocks = sequence.blocks_[group];
    while (entry > 0 && blocks[entry - 1] >= 0) {
      --entry;
      free_blocks_[group].push_back(std::exchange(blocks[entry], -1));
    }
  }
}

Observations Executor::observe() const {
  Observations result = seen_;
  const BackendCounters counters = backend_->counters();
  result.kv_saturated = counters.kv_saturated;
  result.expert_hits = counters.expert_hits;
  result.expert_misses = counters.expert_misses;
  result.expert_bytes_read = counters.expert_bytes_read;
  result.expert_cache_bytes = backend_->expert_cache_bytes();
  result.experts = backend_->expert_use();
  result.state_bytes = backend_->state_bytes(model_->state_layers());
  result.times = backend_->profile();
  return result;
}

std::vector<SampleResult> Executor::run(std::span<const Feed> feeds) {
  StepResults results;
  try {
    results = submit(feeds);
    for (const std::int32_t layer : results.first_bad_layer) {
      if (layer < 0) continue;
      fail(ErrorKind::bad_file, "the model's numbers are not finite from layer {} on; its file may be damaged", layer);
    }
  } catch (...) {
    for (const Feed& feed : feeds) {
      if (feed.sequence->slot_ >= 0) truncate(*feed.sequence, 0);
    }
    throw;
  }
  for (const Feed& feed : feeds) {
    feed.sequence->length_ += static_cast<std::int32_t>(feed.tokens.size());
    free_passed_blocks(*feed.sequence);
  }
  return std::move(results.samples);
}

StepResults Executor::submit(std::span<const Feed> feeds) {
  std::vector<StepRow> rows;
  std::vector<std::vector<BlockTable>> tables;
  std::vector<StepSequence> sequences;
  std::vector<StepOutput> outputs;
  std::int32_t generated = 0;
  for (const Feed& feed : feeds) {
    Sequence& sequence = *feed.sequence;
    const auto count = static_cast<std::int32_t>(feed.tokens.size());
    append_blocks(sequence, sequence.length_ + count);
    const bool continues = sequence.length_ > 0;
    if (!model_->state_layers().empty()) take_slot(sequence.slot_);
    for (const Want& want : feed.wants) {
      outputs.push_back({.row = static_cast<std::int32_t>(rows.size()) + want.index,
                         .sample = want.sample,
                         .logits = want.logits,
                         .embedding = want.embedding});
    }
    for (std::int32_t i = 0; i < count; ++i) {
      rows.push_back({.sequence = static_cast<std::int32_t>(sequences.size()),
                      .position = sequence.length_ + i,
                      .token = feed.tokens[static_cast<std::size_t>(i)]});
    }
    if (feed.row_class == RowClass::generated) generated += count;
    std::vector<BlockTable>& own = tables.emplace_back();
    for (std::size_t group = 0; group < sequence.blocks_.size(); ++group) {
      own.push_back({.blocks = sequence.blocks_[group],
                     .first_live = first_entry_seen(group, sequence.length_) * backend_->block_tokens()});
    }
    sequences.push_back(
        {.length = sequence.length_ + count, .state_in = continues ? sequence.slot_ : -1, .state_out = sequence.slot_});
  }
  for (std::size_t i = 0; i < sequences.size(); ++i) sequences[i].tables = tables[i];

  return step({.rows = rows, .generated_rows = generated, .sequences = sequences, .outputs = outputs});
}

StepResults Executor::step(const Step& step) {
  StepResults results = backend_->wait(
      backend_->submit(step, [this](Backend& backend, const StepShape& shape) { model_->forward(backend, shape); }));
  ++seen_.steps;
  seen_.rows += results.first_bad_layer.size();
  const auto bad = std::ranges::find_if(results.first_bad_layer, [](std::int32_t layer) { return layer >= 0; });
  if (bad != results.first_bad_layer.end()) {
    ++seen_.divergences;
    seen_.last_bad_layer = *bad;
  }
  return results;
}

std::vector<SampleResult> Executor::run_chunked(const Feed& feed, std::int32_t chunk) {
  const auto step = static_cast<std::size_t>(chunk > 0 ? std::min(chunk, batch_rows()) : batch_rows());
  std::vector<SampleResult> samples;
  for (std::size_t begin = 0; begin < feed.tokens.size(); begin += step) {
    Feed part = feed;
    part.tokens = feed.tokens.subspan(begin, std::min(step, feed.tokens.size() - begin));
    std::vector<Want> wants;
    for (Want want : feed.wants) {
      want.index -= static_cast<std::int32_t>(begin);
      if (want.index >= 0 && static_cast<std::size_t>(want.index) < part.tokens.size()) wants.push_back(want);
    }
    part.wants = wants;
    for (SampleResult& sample : run({&part, 1})) samples.push_back(std::move(sample));
  }
  return samples;
}

}  // namespace quarrel
