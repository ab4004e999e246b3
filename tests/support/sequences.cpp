#include "support/sequences.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "base/as_size.h"
#include "base/error.h"
#include "model/architectures.h"

namespace quarrel::test {
namespace {

std::int32_t blocks_of(std::int64_t tokens, std::int32_t block_tokens) {
  return static_cast<std::int32_t>((tokens + block_tokens - 1) / block_tokens);
}

std::int32_t take(BlockPool& pool, const char* what) {
  const std::int32_t id = pool.take().id;
  if (id < 0) fail(ErrorKind::out_of_memory, "no {} is free", what);
  return id;
}

void release(BlockPool& pool, std::int32_t& id) {
  if (id >= 0) pool.release(id);
  id = -1;
}

}  // namespace

struct Sequences::Planned {
  std::vector<StepRow> rows;
  std::int32_t generated = 0;
  std::deque<std::vector<BlockTable>> tables;
  std::vector<StepSequence> sequences;
  std::vector<StepOutput> outputs;
  std::vector<LaneStart> lane_starts;
  std::deque<std::vector<TokenId>> texts;
  std::vector<std::size_t> first_output;  // of each want, one after the other
  std::vector<std::int32_t> lent_lanes;   // for this step alone
};

Sequences::Sequences(Backend& backend, const Model& model, const SequenceLimits& limits, RunStep run)
    : backend_(backend),
      model_(model),
      limits_(limits),
      run_(std::move(run)),
      slots_(limits.state_slots, 0),
      lanes_(limits.step.lanes, 0) {
  for (const std::int32_t blocks : limits.blocks) blocks_.emplace_back(blocks, 0);
}

TestSequence Sequences::make() const {
  TestSequence sequence;
  sequence.blocks_.resize(blocks_.size());
  return sequence;
}

std::int32_t Sequences::first_entry_seen(std::size_t group, std::int32_t position) const {
  const std::int32_t window = model_.kv_groups()[group].window;
  return window > 0 ? std::max(0, position - window + 1) / backend_.block_tokens() : 0;
}

bool Sequences::window_reaches(const TestSequence& sequence, std::int32_t length) const {
  for (std::size_t group = 0; group < sequence.blocks_.size(); ++group) {
    const std::int32_t end = blocks_of(length, backend_.block_tokens());
    for (std::int32_t entry = first_entry_seen(group, length); entry < end; ++entry) {
      if (sequence.blocks_[group][as_size(entry)] < 0) return false;
    }
  }
  return true;
}

void Sequences::append_blocks(TestSequence& sequence, std::int32_t length) {
  if (length > limits_.context) {
    fail(ErrorKind::bad_input, "the text has {} tokens, but the context holds only {}", length, limits_.context);
  }
  const std::size_t needed = as_size(blocks_of(length, backend_.block_tokens()));
  for (std::size_t group = 0; group < sequence.blocks_.size(); ++group) {
    while (sequence.blocks_[group].size() < needed) {
      sequence.blocks_[group].push_back(take(blocks_[group], "block of the KV cache"));
    }
  }
}

void Sequences::free_passed_blocks(TestSequence& sequence) {
  for (std::size_t group = 0; group < sequence.blocks_.size(); ++group) {
    std::size_t entry = as_size(first_entry_seen(group, sequence.length()));
    std::vector<std::int32_t>& blocks = sequence.blocks_[group];
    while (entry > 0 && blocks[entry - 1] >= 0) release(blocks_[group], blocks[--entry]);
  }
}

std::int32_t Sequences::truncate(TestSequence& sequence, std::int32_t length) {
  length = std::clamp(length, 0, sequence.length());
  if (length < sequence.length() && (sequence.slot_ >= 0 || !window_reaches(sequence, length))) length = 0;
  sequence.text_.resize(as_size(length));
  sequence.prompt_ = std::min(sequence.prompt_, length);
  const std::size_t keep = as_size(blocks_of(length, backend_.block_tokens()));
  for (std::size_t group = 0; group < sequence.blocks_.size(); ++group) {
    std::vector<std::int32_t>& blocks = sequence.blocks_[group];
    while (blocks.size() > keep) {
      release(blocks_[group], blocks.back());
      blocks.pop_back();
    }
  }
  if (length == 0) {
    release(slots_, sequence.slot_);
    release(lanes_, sequence.lane_);
    sequence.mirostat_mu_ = 0.0f;
  }
  return length;
}

void Sequences::add_want(Planned& planned, const Feed& feed, const Want& want, std::int32_t first_row) {
  const std::int32_t row = first_row + want.index;
  TestSequence& sequence = *feed.sequence;
  planned.first_output.push_back(planned.outputs.size());
  StepOutput main{.row = row, .kind = OutputKind::logits, .logits = want.logits != nullptr};
  if (want.sampling != nullptr) {
    main.kind = OutputKind::sample;
    main.lane = take(lanes_, "lane");
    main.top = want.top;
    main.mask = want.mask;
    planned.lent_lanes.push_back(main.lane);
    std::vector<TokenId>& text = planned.texts.emplace_back(sequence.text_);
    text.insert(text.end(), feed.tokens.begin(), feed.tokens.begin() + want.index + 1);
    const auto length = static_cast<std::int32_t>(text.size());
    const std::int32_t prompt = feed.row_class == RowClass::prompt ? length : sequence.prompt_;
    planned.lane_starts.push_back({.lane = main.lane,
                                   .sampling = want.sampling,
                                   .draw = static_cast<std::uint64_t>(length - prompt),
                                   .mirostat_mu = sequence.mirostat_mu_,
                                   .text = text,
                                   .prompt_tokens = prompt});
  } else if (want.score >= 0) {
    main.kind = OutputKind::score;
    main.score = want.score;
    main.top = want.top;
  }
  planned.outputs.push_back(main);
  if (want.vector != nullptr) planned.outputs.push_back({.row = row, .kind = OutputKind::vector});
  if (want.pooled != nullptr) {
    planned.outputs.push_back({.row = row, .kind = OutputKind::pooled, .lane = sequence.lane_});
  }
}

void Sequences::add(Planned& planned, const Feed& feed) {
  TestSequence& sequence = *feed.sequence;
  const auto count = static_cast<std::int32_t>(feed.tokens.size());
  const std::int32_t length = sequence.length();
  append_blocks(sequence, length + count);
  if (!model_.state_layers().empty() && sequence.slot_ < 0) sequence.slot_ = take(slots_, "slot for recurrent state");
  if (feed.pooling != Pooling::none && length == 0) {
    if (sequence.lane_ < 0) sequence.lane_ = take(lanes_, "lane");
    planned.lane_starts.push_back({.lane = sequence.lane_, .pooling = feed.pooling});
  }
  const auto first_row = static_cast<std::int32_t>(planned.rows.size());
  for (const Want& want : feed.wants) add_want(planned, feed, want, first_row);
  for (std::int32_t i = 0; i < count; ++i) {
    planned.rows.push_back({.sequence = static_cast<std::int32_t>(planned.sequences.size()),
                            .position = length + i,
                            .token = feed.tokens[as_size(i)]});
  }
  if (feed.row_class == RowClass::generated) planned.generated += count;
  std::vector<BlockTable>& tables = planned.tables.emplace_back();
  for (std::size_t group = 0; group < sequence.blocks_.size(); ++group) {
    tables.push_back(
        {.blocks = sequence.blocks_[group], .first_live = first_entry_seen(group, length) * backend_.block_tokens()});
  }
  planned.sequences.push_back({.tables = tables,
                               .length = length + count,
                               .state_in = length > 0 ? sequence.slot_ : -1,
                               .state_out = sequence.slot_,
                               .lane = sequence.lane_});
}

void Sequences::hand_out(std::span<const Feed> feeds) const {
  const std::size_t vocabulary = as_size(model_.spec().vocabulary);
  const std::size_t width = as_size(model_.spec().width);
  std::size_t logits = 0;
  std::size_t vectors = 0;
  const auto take_vector = [&](float* to, Pooling pooling) {
    if (to == nullptr) return;
    std::copy_n(results_.vectors.data() + vectors++ * width, model_.vector_width(pooling), to);
  };
  for (const Feed& feed : feeds) {
    for (const Want& want : feed.wants) {
      if (want.logits != nullptr) std::copy_n(results_.logits.data() + logits++ * vocabulary, vocabulary, want.logits);
      take_vector(want.vector, Pooling::none);
      take_vector(want.pooled, feed.pooling);
    }
  }
  if (logits * vocabulary != results_.logits.size() || vectors * width != results_.vectors.size()) {
    fail(ErrorKind::internal, "the step gave {} logits and {} values of vectors", results_.logits.size(),
         results_.vectors.size());
  }
}

void Sequences::accept(std::span<const Feed> feeds) {
  for (const Feed& feed : feeds) {
    TestSequence& sequence = *feed.sequence;
    sequence.text_.insert(sequence.text_.end(), feed.tokens.begin(), feed.tokens.end());
    if (feed.row_class == RowClass::prompt) sequence.prompt_ = sequence.length();
    free_passed_blocks(sequence);
  }
}

std::vector<SampleResult> Sequences::run(std::span<const Feed> feeds) {
  Planned planned;
  const auto give_back = [&] {
    for (std::int32_t lane : planned.lent_lanes) lanes_.release(lane);
  };
  try {
    for (const Feed& feed : feeds) add(planned, feed);
    results_ = run_({.rows = planned.rows,
                     .generated_rows = planned.generated,
                     .sequences = planned.sequences,
                     .outputs = planned.outputs,
                     .lane_starts = planned.lane_starts});
    for (const std::int32_t layer : results_.first_bad_layer) {
      if (layer < 0) continue;
      fail(ErrorKind::bad_file, "the model's numbers are not finite from layer {} on; its file may be damaged", layer);
    }
  } catch (...) {
    give_back();
    for (const Feed& feed : feeds) truncate(*feed.sequence, feed.sequence->slot_ >= 0 ? 0 : feed.sequence->length());
    throw;
  }
  give_back();
  hand_out(feeds);
  accept(feeds);
  std::vector<SampleResult> samples;
  std::size_t next = 0;
  for (const Feed& feed : feeds) {
    for (const Want& want : feed.wants) {
      samples.push_back(results_.samples[planned.first_output[next++]]);
      if (want.sampling != nullptr) feed.sequence->mirostat_mu_ = samples.back().mirostat_mu;
    }
  }
  return samples;
}

std::vector<SampleResult> Sequences::run_chunked(const Feed& feed, std::int32_t chunk) {
  const std::size_t step = as_size(chunk > 0 ? std::min(chunk, limits_.step.rows) : limits_.step.rows);
  std::vector<SampleResult> samples;
  for (std::size_t begin = 0; begin < feed.tokens.size(); begin += step) {
    Feed part = feed;
    part.tokens = feed.tokens.subspan(begin, std::min(step, feed.tokens.size() - begin));
    std::vector<Want> wants;
    for (Want want : feed.wants) {
      want.index -= static_cast<std::int32_t>(begin);
      if (want.index >= 0 && as_size(want.index) < part.tokens.size()) wants.push_back(want);
    }
    part.wants = wants;
    for (SampleResult& sample : run({&part, 1})) samples.push_back(std::move(sample));
  }
  return samples;
}

LoneModel::LoneModel(GgufFile file, Device& device, const Options& options)
    : file_(std::move(file)), backend_(device.make_backend(options.backend)) {
  model_ = std::make_unique<Model>(file_, read_spec(file_, options.context), *backend_);
  plan_.context = options.context;
  plan_.limits = {.rows = options.rows,
                  .outputs = 3 * options.rows,
                  .sequences = options.sequences,
                  .lanes = 3 * options.rows,
                  .context = options.context};
  const bool recurrent = !model_->state_layers().empty();
  plan_.state_slots = recurrent ? options.sequences : 0;
  for (std::size_t group = 0; group < model_->kv_groups().size(); ++group) {
    plan_.blocks.push_back(options.sequences * blocks_of(options.context, backend_->block_tokens()));
  }
  backend_->reserve(plan_.limits, model_->spec().vocabulary);
  backend_->allocate_cache({.groups = model_->kv_groups(),
                            .state_layers = model_->state_layers(),
                            .kv_type = options.kv_type,
                            .blocks = plan_.blocks,
                            .state_slots = plan_.state_slots});
}

Backend::Forward LoneModel::forward() const {
  return [this](Backend& backend, const StepShape& shape) { model_->forward(backend, shape); };
}

}  // namespace quarrel::test
