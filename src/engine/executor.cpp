#include "engine/executor.h"

#include <algorithm>

#include "base/error.h"
#include "model/architectures.h"

namespace quarrel {
namespace {

std::int32_t blocks_for(std::int32_t tokens, std::int32_t block_tokens) {
  return (tokens + block_tokens - 1) / block_tokens;
}

double mebibytes(std::size_t bytes) { return static_cast<double>(bytes) / (1024.0 * 1024.0); }

}  // namespace

Executor::Executor(GgufFile file, Device& device, const ExecutorOptions& options) : file_(std::move(file)) {
  backend_ = device.make_backend({.activations = options.activations});
  ModelSpec trained = read_spec(file_);
  kv_type_ = options.kv_type.value_or(device.default_kv_type());
  const std::int32_t block_tokens = backend_->block_tokens();

  std::size_t block_bytes = 0;
  for (const KvGroup& group : kv_groups_of(trained)) block_bytes += backend_->kv_bytes(group, kv_type_);
  context_ = options.context > 0 ? options.context : trained.context_length;
  // A share of the memory stays free for activations, the file's pages and everybody else.
  const std::size_t budget = device.memory_available() / 10 * 8;
  const std::size_t per_sequence = block_bytes * static_cast<std::size_t>(options.sequences);
  if (per_sequence > 0 && budget > 0) {
    const auto fitting = static_cast<std::int32_t>(
        std::min<std::size_t>(budget / per_sequence * static_cast<std::size_t>(block_tokens), 1u << 30));
    if (context_ > fitting) {
      if (options.context > 0 || fitting < 1) {
        fail(ErrorKind::out_of_memory,
             "a context of {} tokens for {} sequence(s) needs {:.0f} MiB of KV cache, but only {:.0f} MiB are free; a "
             "context of {} would fit (--ctx)",
             context_, options.sequences,
             mebibytes(per_sequence * static_cast<std::size_t>(blocks_for(context_, block_tokens))), mebibytes(budget),
             fitting);
      }
      context_ = fitting;
    }
  }

  model_ = std::make_unique<Model>(file_, read_spec(file_, context_), *backend_);
  batch_rows_ = std::max(options.batch_rows, options.sequences);
  backend_->reserve({.rows = batch_rows_, .outputs = batch_rows_}, spec().vocabulary);
  blocks_ = blocks_for(context_, block_tokens) * options.sequences;
  backend_->allocate_cache({.groups = model_->kv_groups(),
                            .state_layers = model_->state_layers(),
                            .kv_type = kv_type_,
                            .blocks = std::vector<std::int32_t>(model_->kv_groups().size(), blocks_),
                            .state_slots = options.sequences});
  for (std::size_t group = 0; group < model_->kv_groups().size(); ++group) {
    std::vector<std::int32_t>& free_list = free_blocks_.emplace_back();
    for (std::int32_t block = blocks_ - 1; block >= 0; --block) free_list.push_back(block);
  }
}

Executor::~Executor() = default;

std::size_t Executor::kv_cache_bytes() const noexcept {
  std::size_t bytes = 0;
  for (const KvGroup& group : model_->kv_groups()) bytes += backend_->kv_bytes(group, kv_type_);
  return bytes * static_cast<std::size_t>(blocks_);
}

Sequence Executor::make_sequence() const {
  Sequence sequence;
  sequence.blocks_.resize(model_->kv_groups().size());
  return sequence;
}

void Executor::truncate(Sequence& sequence, std::int32_t length) {
  sequence.length_ = std::min(sequence.length_, std::max(0, length));
  const auto keep = static_cast<std::size_t>(blocks_for(sequence.length_, backend_->block_tokens()));
  for (std::size_t group = 0; group < sequence.blocks_.size(); ++group) {
    std::vector<std::int32_t>& blocks = sequence.blocks_[group];
    while (blocks.size() > keep) {
      free_blocks_[group].push_back(blocks.back());
      blocks.pop_back();
    }
  }
}

void Executor::append_blocks(Sequence& sequence, std::int32_t length) {
  if (length > context_) {
    fail(ErrorKind::bad_input, "the text has {} tokens, but the context holds only {}", length, context_);
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

std::vector<SampleResult> Executor::run(std::span<const Feed> feeds) {
  std::vector<StepRow> rows;
  std::vector<std::vector<BlockTable>> tables;
  std::vector<StepSequence> sequences;
  std::vector<StepOutput> outputs;
  std::int32_t generated = 0;
  for (const Feed& feed : feeds) {
    Sequence& sequence = *feed.sequence;
    const auto count = static_cast<std::int32_t>(feed.tokens.size());
    append_blocks(sequence, sequence.length_ + count);
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
    for (const auto& blocks : sequence.blocks_) own.push_back({.blocks = blocks});
    sequences.push_back({.length = sequence.length_ + count});
  }
  for (std::size_t i = 0; i < sequences.size(); ++i) sequences[i].tables = tables[i];

  const Step step{.rows = rows, .generated_rows = generated, .sequences = sequences, .outputs = outputs};
  const Ticket ticket =
      backend_->submit(step, [this](Backend& backend, const StepShape& shape) { model_->forward(backend, shape); });
  StepResults results = backend_->wait(ticket);
  for (const std::int32_t layer : results.first_bad_layer) {
    if (layer >= 0) {
      fail(ErrorKind::bad_file, "the model's numbers are not finite from layer {} on; its file may be damaged", layer);
    }
  }
  for (const Feed& feed : feeds) feed.sequence->length_ += static_cast<std::int32_t>(feed.tokens.size());
  return std::move(results.samples);
}

std::vector<SampleResult> Executor::run_chunked(const Feed& feed, std::int32_t chunk) {
  const auto step = static_cast<std::size_t>(chunk > 0 ? std::min(chunk, batch_rows_) : batch_rows_);
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
