#include "sched/echo_backend.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/as_size.h"

namespace quarrel::sim {
namespace {

constexpr std::uint64_t kRubbish = 0xDEADDEADDEADDEADU;

}  // namespace

void SubmittedStep::take(const StepPlan& from, bool second_in_flight) {
  plan = from;
  second = second_in_flight;
  blocks_.clear();
  for (const BlockTable& table : from.tables) blocks_.insert(blocks_.end(), table.blocks.begin(), table.blocks.end());
  std::size_t at = 0;
  for (BlockTable& table : plan.tables) {
    table.blocks = std::span(blocks_).subspan(at, table.blocks.size());
    at += table.blocks.size();
  }
  for (std::size_t i = 0; i < plan.sequences.size(); ++i) plan.sequences[i].tables = plan.tables_of(i);
}

EchoBackend::EchoBackend(const SchedulerConfig& config, std::int32_t vocabulary)
    : config_(config),
      vocabulary_(vocabulary),
      slots_(as_size(config.recurrent ? config.state_slots : 0), kRubbish),
      lanes_(as_size(lanes(config))) {
  for (const KvGroupConfig& group : config.groups) {
    cells_.emplace_back(as_size(group.blocks) * as_size(config.block_tokens), kRubbish);
  }
}

std::uint64_t& EchoBackend::cell(std::size_t group, std::int32_t block, std::int32_t position) {
  return cells_[group][as_size(block) * as_size(config_.block_tokens) + as_size(position % config_.block_tokens)];
}

std::uint64_t EchoBackend::cell(std::size_t group, std::int32_t block, std::int32_t position) const {
  return cells_[group][as_size(block) * as_size(config_.block_tokens) + as_size(position % config_.block_tokens)];
}

void EchoBackend::copy(const StepPlan& plan) {
  for (const BlockCopy& copy : plan.block_copies) {
    for (std::int32_t i = 0; i < config_.block_tokens; ++i) {
      cell(as_size(copy.group), copy.to, i) = cell(as_size(copy.group), copy.from, i);
    }
  }
  for (const SlotCopy& copy : plan.slot_copies) slots_[as_size(copy.to)] = slots_[as_size(copy.from)];
}

std::string EchoBackend::check_shape(const StepPlan& plan) const {
  if (plan.rows.empty()) return "an empty plan";
  if (plan.rows.size() > as_size(config_.max_rows)) return "too many rows";
  const std::int32_t outputs = config_.max_outputs > 0 ? config_.max_outputs : config_.max_rows;
  if (plan.outputs.size() > as_size(outputs)) return "too many outputs";
  if (plan.sequences.size() > as_size(config_.max_sequences)) return "too many sequences";
  if (plan.owners.size() != plan.sequences.size()) return "a sequence without an owner";
  if (plan.tables.size() != plan.sequences.size() * cells_.size()) return "a wrong number of tables";
  std::int32_t next = 0;
  for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
    const StepSequence& sequence = plan.sequences[i];
    const PlanOwner& owner = plan.owners[i];
    if (sequence.tables.size() != cells_.size() || sequence.tables.data() != plan.tables_of(i).data())
      return "another's tables";
    if (owner.first_row != next || owner.rows < 1) return "rows are not consecutive";
    if (config_.whole_texts && owner.rows != sequence.length) return "a part of a whole text";
    next += owner.rows;
    if (owner.first_row < plan.generated_rows && next > plan.generated_rows) return "a sequence of both classes";
    for (std::int32_t row = owner.first_row; row < next; ++row) {
      const StepRow& at = plan.rows[as_size(row)];
      if (as_size(at.sequence) != i) return "a row of another sequence";
      if (at.position != sequence.length - next + row) return "positions do not ascend";
    }
  }
  return as_size(next) == plan.rows.size() ? "" : "rows without a sequence";
}

// Tokens that were named by the outputs of the step before.
std::string EchoBackend::resolve(SubmittedStep& step, const SubmittedStep& before) const {
  for (StepRow& row : step.plan.rows) {
    if (row.token >= 0) continue;
    const auto output = as_size(~row.token);
    if (!step.second) return "a token of a step that is over";
    if (output >= before.plan.outputs.size()) return "a token of no output";
    const PlanOutput& from = before.plan.outputs[output];
    const PlanOwner& owner = step.plan.owners[as_size(row.sequence)];
    const StepRow& source = before.plan.rows[as_size(from.row)];
    if (from.kind != PlanOutput::Kind::sample || from.request != owner.request || source.position + 1 != row.position) {
      return "a token of another text";
    }
    row.token = before.sampled[output];
  }
  return "";
}

std::string EchoBackend::check_rows(const StepPlan& plan, std::size_t index, const Text& text) const {
  const PlanOwner& owner = plan.owners[index];
  for (std::int32_t row = owner.first_row; row < owner.first_row + owner.rows; ++row) {
    const StepRow& at = plan.rows[as_size(row)];
    if (at.position >= text.length()) return "a row beyond the text";
    if (at.token != text.tokens[as_size(at.position)]) return fmt::format("a wrong token at {}", at.position);
    if ((at.position >= text.prompt_end) != (row < plan.generated_rows)) return "a row of the wrong class";
    for (std::size_t group = 0; group < cells_.size(); ++group) {
      const auto& blocks = plan.tables_of(index)[group].blocks;
      const std::size_t entry = as_size(at.position / config_.block_tokens);
      if (entry >= blocks.size()) return "a row without a block";
      if (blocks[entry] < 0 || blocks[entry] >= config_.groups[group].blocks) return "a block that is none";
    }
  }
  return "";
}

std::string EchoBackend::check_states(const StepPlan& plan) {
  written_.assign(slots_.size(), 0);
  for (const StateSnapshot& snapshot : plan.snapshots) ++written_[as_size(snapshot.slot)];
  for (const StepSequence& sequence : plan.sequences) {
    if (sequence.state_out < 0) return "a state without a slot";
    ++written_[as_size(sequence.state_out)];
  }
  for (const int count : written_) {
    if (count > 1) return "two states in one slot";
  }
  for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
    const StepSequence& sequence = plan.sequences[i];
    const std::int32_t first = sequence.length - plan.owners[i].rows;
    if ((first == 0) != (sequence.state_in < 0)) return "a state from nowhere";
    if (first == 0) continue;
    if (texts_[i] != nullptr && slots_[as_size(sequence.state_in)] != texts_[i]->hashes[as_size(first) - 1])
      return "another text's state";
    if (sequence.state_in != sequence.state_out && written_[as_size(sequence.state_in)] > 0) {
      return "a state is read from where another is written";
    }
  }
  const auto state = [&](std::int32_t sequence, std::int32_t position) {
    const Text* text = texts_[as_size(sequence)];
    return text != nullptr ? text->hashes[as_size(position)] : kRubbish;
  };
  for (const StateSnapshot& snapshot : plan.snapshots) {
    const StepRow& row = plan.rows[as_size(snapshot.row)];
    slots_[as_size(snapshot.slot)] = state(row.sequence, row.position);
  }
  for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
    const StepSequence& sequence = plan.sequences[i];
    slots_[as_size(sequence.state_out)] = state(static_cast<std::int32_t>(i), sequence.length - 1);
  }
  return "";
}

// All that the sequence's rows see of each group, after every row of the step has been written.
std::string EchoBackend::check_sight(const StepPlan& plan, std::size_t index, const Text& text) const {
  const StepSequence& sequence = plan.sequences[index];
  for (std::size_t group = 0; group < cells_.size(); ++group) {
    const std::int32_t window = config_.groups[group].window;
    const std::int32_t first_row = sequence.length - plan.owners[index].rows;
    const BlockTable& table = sequence.tables[group];
    const std::int32_t low = window > 0 ? std::max(0, first_row - window + 1) : 0;
    if (low < table.first_live) return "a window reaches beyond what is live";
    for (std::int32_t position = low; position < sequence.length; ++position) {
      const std::int32_t block = table.blocks[as_size(position / config_.block_tokens)];
      if (block < 0) return fmt::format("position {} of group {} is gone", position, group);
      if (cell(group, block, position) != text.hashes[as_size(position)]) {
        return fmt::format("position {} of group {} (block {}) holds another text", position, group, block);
      }
    }
  }
  return "";
}

void EchoBackend::begin_lanes(const StepPlan& plan) {
  for (const PlanLane& start : plan.lane_starts) {
    lanes_[as_size(start.lane)] = {.request = start.request, .branch = start.branch, .spoiled = false};
  }
}

// A pooled text's lane must have seen all its rows, each once and in their order.
std::string EchoBackend::pool(const StepPlan& plan, std::size_t index) {
  const StepSequence& sequence = plan.sequences[index];
  const PlanOwner& owner = plan.owners[index];
  if (sequence.lane < 0) return "";
  Lane& lane = lanes_[as_size(sequence.lane)];
  if (lane.request != owner.request || lane.branch != owner.branch) return "it is pooled in another's lane";
  if (texts_[index] != nullptr && (lane.spoiled || lane.rows != sequence.length - owner.rows))
    return "its lane has not seen all its rows";
  lane.rows += owner.rows;
  return "";
}

std::string EchoBackend::use_lane(const PlanOutput& output, const Text* text, std::int32_t position, TokenId token) {
  Lane& lane = lanes_[as_size(output.lane)];
  if (lane.request != output.request || lane.branch != output.branch) return "it samples in another's lane";
  if (text == nullptr) {
    lane.spoiled = true;
    return "";
  }
  const std::uint64_t hash = text->hashes[as_size(position)];
  if (lane.spoiled || (lane.sampled > 0 && lane.hash != hash)) return "its lane does not know the text";
  ++lane.sampled;
  lane.hash = extend_hash(hash, token, position + 1 >= text->prompt_end);
  return "";
}

std::string EchoBackend::check_output(const StepPlan& plan, const PlanOutput& output, const Text& text) const {
  const StepRow& row = plan.rows[as_size(output.row)];
  switch (output.kind) {
    case PlanOutput::Kind::sample:
    case PlanOutput::Kind::pooled:
      if (row.position != text.length() - 1) return "a token is sampled in the middle";
      break;
    case PlanOutput::Kind::score:
      if (output.score != text.tokens[as_size(row.position) + 1]) return "a wrong score is asked for";
      break;
    case PlanOutput::Kind::vector: break;
  }
  if (output.kind == PlanOutput::Kind::pooled && plan.sequences[as_size(row.sequence)].lane != output.lane)
    return "a lane of another text";
  return "";
}

std::string EchoBackend::sample_outputs(SubmittedStep& step, const Lookup& lookup) {
  const StepPlan& plan = step.plan;
  std::int32_t last = -1;
  step.sampled.clear();
  for (const PlanOutput& output : plan.outputs) {
    if (output.row < last || as_size(output.row) >= plan.rows.size()) return "outputs do not ascend";
    last = output.row;
    const StepRow& row = plan.rows[as_size(output.row)];
    if (plan.owners[as_size(row.sequence)].request != output.request) return "an output of another request";
    const Text* text = lookup(output.request, output.branch, output.kind != PlanOutput::Kind::sample);
    if (text != nullptr) {
      if (std::string wrong = check_output(plan, output, *text); !wrong.empty()) return wrong;
    }
    TokenId token = 0;
    if (output.kind == PlanOutput::Kind::sample) {
      if (text != nullptr) token = sample(text->hashes[as_size(row.position)], output.branch, vocabulary_);
      if (std::string wrong = use_lane(output, text, row.position, token); !wrong.empty()) return wrong;
    }
    step.sampled.push_back(token);
  }
  return "";
}

std::string EchoBackend::run(SubmittedStep& step, const SubmittedStep& before, const Lookup& lookup) {
  if (std::string wrong = resolve(step, before); !wrong.empty()) return wrong;
  const StepPlan& plan = step.plan;
  copy(plan);
  begin_lanes(plan);
  texts_.clear();
  const auto named = [&](std::size_t index, const std::string& wrong) {
    return fmt::format("request {}: {}", plan.owners[index].request, wrong);
  };
  for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
    texts_.push_back(lookup(plan.owners[i].request, plan.owners[i].branch, step.of_all[i] != 0));
    if (std::string wrong = pool(plan, i); !wrong.empty()) return named(i, wrong);
    if (texts_[i] == nullptr) continue;
    if (std::string wrong = check_rows(plan, i, *texts_[i]); !wrong.empty()) return named(i, wrong);
  }
  if (config_.recurrent) {
    if (std::string wrong = check_states(plan); !wrong.empty()) return wrong;
  }
  for (const StepRow& row : plan.rows) {
    const Text* text = texts_[as_size(row.sequence)];
    const std::uint64_t hash = text != nullptr ? text->hashes[as_size(row.position)] : kRubbish;
    for (std::size_t group = 0; group < cells_.size(); ++group) {
      const auto& blocks = plan.tables_of(as_size(row.sequence))[group].blocks;
      cell(group, blocks[as_size(row.position / config_.block_tokens)], row.position) = hash;
    }
  }
  for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
    if (texts_[i] == nullptr) continue;
    if (std::string wrong = check_sight(plan, i, *texts_[i]); !wrong.empty()) return named(i, wrong);
  }
  return sample_outputs(step, lookup);
}

void EchoBackend::spoil(const StepPlan& plan, std::size_t index) {
  const StepSequence& sequence = plan.sequences[index];
  for (std::int32_t position = sequence.length - plan.owners[index].rows; position < sequence.length; ++position) {
    for (std::size_t group = 0; group < cells_.size(); ++group) {
      const auto& blocks = plan.tables_of(index)[group].blocks;
      cell(group, blocks[as_size(position / config_.block_tokens)], position) = kRubbish;
    }
  }
  if (!config_.recurrent) return;
  slots_[as_size(sequence.state_out)] = kRubbish;
  for (const StateSnapshot& snapshot : plan.snapshots) {
    if (as_size(plan.rows[as_size(snapshot.row)].sequence) == index) slots_[as_size(snapshot.slot)] = kRubbish;
  }
}

void EchoBackend::run_badly(const StepPlan& plan, Random& random) {
  if (random.chance(500)) copy(plan);
  for (const PlanLane& start : plan.lane_starts) lanes_[as_size(start.lane)].spoiled = true;
  for (const PlanOutput& output : plan.outputs) {
    if (output.lane >= 0) lanes_[as_size(output.lane)].spoiled = true;
  }
  for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
    if (plan.sequences[i].lane >= 0) lanes_[as_size(plan.sequences[i].lane)].spoiled = true;
    if (random.chance(700)) spoil(plan, i);
  }
}

}  // namespace quarrel::sim
