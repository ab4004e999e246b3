#include "backend/step_check.h"

#include <algorithm>
#include <utility>

#include "base/as_size.h"
#include "base/error.h"

namespace quarrel {
namespace {

void require(bool condition, const char* what) {
  if (!condition) fail(ErrorKind::internal, "a step is malformed: {}", what);
}

bool within(std::int32_t value, std::int32_t end) noexcept { return value >= 0 && value < end; }

}  // namespace

void StepCheck::set_limits(const StepLimits& limits, std::int32_t vocabulary) {
  limits_ = limits;
  vocabulary_ = vocabulary;
  lanes_.assign(as_size(limits.lanes), LaneUse::none);
  next_lanes_ = lanes_;
  marked_.reserve(as_size(std::max(limits.lanes, limits.sequences)));
  last_sampled_.clear();
  last_sampled_.reserve(as_size(limits.outputs));
}

void StepCheck::set_cache(const CacheConfig& cache, std::int32_t block_tokens) {
  block_tokens_ = block_tokens;
  blocks_ = cache.blocks;
  windows_.clear();
  for (const KvGroup& group : cache.groups) windows_.push_back(group.window);
  state_slots_ = cache.state_slots;
  writers_.assign(as_size(state_slots_), -1);
}

void StepCheck::check(const Step& step) {
  require(step.rows.size() <= as_size(limits_.rows), "more rows than were reserved");
  require(step.outputs.size() <= as_size(limits_.outputs), "more outputs than were reserved");
  require(step.sequences.size() <= as_size(limits_.sequences), "more sequences than were reserved");
  require(step.generated_rows >= 0 && as_size(step.generated_rows) <= step.rows.size(),
          "more generated rows than rows");
  check_lanes(step);
  check_rows(step);
  check_states(step);
  check_copies(step);
  check_outputs(step);
}

void StepCheck::lanes_started(const Step& step) noexcept {
  for (const LaneStart& start : step.lane_starts) {
    lanes_[as_size(start.lane)] = start.sampling != nullptr ? LaneUse::sampling : LaneUse::pooling;
  }
}

void StepCheck::taken(const Step& step) noexcept {
  last_sampled_.clear();
  for (const StepOutput& output : step.outputs) last_sampled_.push_back(output.kind == OutputKind::sample);
}

StepCheck::LaneUse StepCheck::use_of(std::int32_t lane) const noexcept {
  return within(lane, limits_.lanes) ? next_lanes_[as_size(lane)] : LaneUse::none;
}

void StepCheck::check_lanes(const Step& step) {
  next_lanes_ = lanes_;
  marked_.assign(as_size(limits_.lanes), 0);
  for (const LaneStart& start : step.lane_starts) {
    require(within(start.lane, limits_.lanes), "a lane beyond those reserved begins");
    require(marked_[as_size(start.lane)]++ == 0, "a lane begins twice");
    require((start.sampling != nullptr) != (start.pooling != Pooling::none), "a lane either samples or pools");
    require(start.prompt_tokens >= 0 && as_size(start.prompt_tokens) <= start.text.size(),
            "a lane's prompt is longer than its text");
    for (const TokenId token : start.text) require(within(token, vocabulary_), "a lane's text has an unknown token");
    next_lanes_[as_size(start.lane)] = start.sampling != nullptr ? LaneUse::sampling : LaneUse::pooling;
  }
  marked_.assign(as_size(limits_.lanes), 0);
  for (const StepSequence& sequence : step.sequences) {
    if (sequence.lane == -1) continue;
    require(use_of(sequence.lane) == LaneUse::pooling, "a sequence's lane pools nothing");
    require(marked_[as_size(sequence.lane)]++ == 0, "two sequences pool into one lane");
  }
}

void StepCheck::check_rows(const Step& step) {
  for (const StepSequence& sequence : step.sequences) check_tables(sequence);
  marked_.assign(step.sequences.size(), 0);
  for (std::size_t r = 0; r < step.rows.size(); ++r) {
    const StepRow& row = step.rows[r];
    require(row.sequence >= 0 && as_size(row.sequence) < step.sequences.size(), "a row of no sequence");
    const StepSequence& sequence = step.sequences[as_size(row.sequence)];
    const bool continues = r > 0 && step.rows[r - 1].sequence == row.sequence;
    if (continues) {
      require(row.position > step.rows[r - 1].position, "positions of a sequence do not ascend");
      require(std::cmp_not_equal(r, step.generated_rows), "a sequence has rows of both classes");
    } else {
      require(marked_[as_size(row.sequence)]++ == 0, "rows of a sequence do not follow each other");
    }
    require(within(row.position, sequence.length), "a position outside its text");
    check_row_blocks(sequence, row.position);
    check_token(row.token);
  }
}

void StepCheck::check_token(std::int32_t token) const {
  if (token >= 0) return require(token < vocabulary_, "a token beyond the vocabulary");
  require(as_size(~token) < last_sampled_.size() && last_sampled_[as_size(~token)], "a token that no output sampled");
}

void StepCheck::check_tables(const StepSequence& sequence) const {
  require(sequence.length <= limits_.context, "a text beyond the context");
  require(sequence.tables.size() == windows_.size(), "a block table for each KV group");
  for (std::size_t group = 0; group < windows_.size(); ++group) {
    const BlockTable& table = sequence.tables[group];
    require(table.blocks.size() * as_size(block_tokens_) >= as_size(std::max(0, sequence.length)),
            "a block table shorter than its text");
    std::int64_t end = 0;  // of the entry's positions
    for (const std::int32_t block : table.blocks) {
      end += block_tokens_;
      require(block < blocks_[group], "a block beyond the cache");
      require(block >= 0 || end <= table.first_live, "a freed block among live ones");
    }
  }
}

void StepCheck::check_row_blocks(const StepSequence& sequence, std::int32_t position) const {
  for (std::size_t group = 0; group < windows_.size(); ++group) {
    const std::int32_t window = windows_[group];
    const std::int32_t first = window > 0 ? std::max(0, position - window + 1) : 0;
    const std::span<const std::int32_t> blocks = sequence.tables[group].blocks;
    require(blocks[as_size(position / block_tokens_)] >= 0, "a row without a block");
    require(blocks[as_size(first / block_tokens_)] >= 0, "a row sees a block that was freed");
  }
}

// A slot may be read and written by one sequence in any combination; what one writes no other may touch.
void StepCheck::check_states(const Step& step) {
  std::ranges::fill(writers_, -1);
  const auto write = [&](std::int32_t slot, std::int32_t sequence) {
    require(within(slot, state_slots_), "a state slot that is not there is written");
    std::int32_t& writer = writers_[as_size(slot)];
    require(writer < 0 || writer == sequence, "two sequences write one state slot");
    writer = sequence;
  };
  for (std::size_t s = 0; s < step.sequences.size(); ++s) {
    if (step.sequences[s].state_out != -1) write(step.sequences[s].state_out, static_cast<std::int32_t>(s));
  }
  for (const StateSnapshot& snapshot : step.snapshots) {
    require(snapshot.row >= 0 && as_size(snapshot.row) < step.rows.size(), "a snapshot of no row");
    write(snapshot.slot, step.rows[as_size(snapshot.row)].sequence);
  }
  for (std::size_t s = 0; s < step.sequences.size(); ++s) {
    const std::int32_t slot = step.sequences[s].state_in;
    if (slot == -1) continue;
    require(within(slot, state_slots_), "a state slot that is not there is read");
    require(writers_[as_size(slot)] < 0 || std::cmp_equal(writers_[as_size(slot)], s),
            "a sequence reads a state slot that another writes");
  }
}

void StepCheck::check_copies(const Step& step) const {
  for (const BlockCopy& copy : step.block_copies) {
    require(copy.group >= 0 && as_size(copy.group) < blocks_.size(), "a copy in no KV group");
    const std::int32_t blocks = blocks_[as_size(copy.group)];
    require(within(copy.from, blocks) && within(copy.to, blocks), "a copy of a block beyond the cache");
  }
  for (const SlotCopy& copy : step.slot_copies) {
    require(within(copy.from, state_slots_) && within(copy.to, state_slots_), "a copy of a slot beyond the state");
  }
}

void StepCheck::check_outputs(const Step& step) {
  marked_.assign(as_size(limits_.lanes), 0);
  std::int32_t last_row = 0;
  for (const StepOutput& output : step.outputs) {
    require(output.row >= last_row && as_size(output.row) < step.rows.size(), "outputs in ascending order of rows");
    last_row = output.row;
    check_output(step, output);
  }
}

void StepCheck::check_output(const Step& step, const StepOutput& output) {
  const bool samples = output.kind == OutputKind::sample;
  const bool scores = output.kind == OutputKind::score;
  require(output.top >= 0 && output.top <= kMaxTopTokens, "more likely tokens than can be reported");
  require(output.top == 0 || samples || scores, "likely tokens of an output without a token");
  require(samples || output.mask.empty(), "a mask of an output that samples nothing");
  if (samples) {
    require(use_of(output.lane) == LaneUse::sampling, "a token is sampled with a lane that was not begun for it");
    require(marked_[as_size(output.lane)]++ == 0, "two tokens are sampled with one lane");
    require(output.mask.empty() || output.mask.size() == (as_size(vocabulary_) + 63) / 64, "a mask of another size");
  } else if (scores) {
    require(within(output.score, vocabulary_), "an unknown token is scored");
  } else if (output.kind == OutputKind::pooled) {
    const std::int32_t sequence = step.rows[as_size(output.row)].sequence;
    require(output.lane >= 0 && output.lane == step.sequences[as_size(sequence)].lane,
            "a vector of another lane than its sequence's");
    const std::size_t next = as_size(output.row) + 1;
    require(next == step.rows.size() || step.rows[next].sequence != sequence, "a vector before the last row");
  }
}

}  // namespace quarrel
