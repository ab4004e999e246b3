#include "sched/echo_backend.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/as_size.h"

namespace quarrel::sim {
namespace {

constexpr std::uint64_t kRubbish = 0xDEADDEADDEADDEADU;

}  // namespace

EchoBackend::EchoBackend(const SchedulerConfig& config)
    : config_(config), slots_(as_size(config.recurrent ? config.state_slots : 0), kRubbish) {
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
  if (plan.rows.size() > as_size(config_.max_rows)) return "too many rows";
  const std::int32_t outputs = config_.max_outputs > 0 ? config_.max_outputs : config_.max_rows;
  if (plan.outputs.size() > as_size(outputs)) return "too many outputs";
  if (plan.sequences.size() > as_size(config_.max_sequences)) return "too many sequences";
  if (plan.tables.size() != plan.sequences.size() * cells_.size()) return "a wrong number of tables";
  std::int32_t next = 0;
  for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
    const PlanSequence& sequence = plan.sequences[i];
    if (sequence.first_row != next || sequence.rows < 1) return "rows are not consecutive";
    next += sequence.rows;
    if (sequence.first_row < plan.generated_rows && next > plan.generated_rows) return "a sequence of both classes";
    for (std::int32_t row = sequence.first_row; row < next; ++row) {
      const PlanRow& at = plan.rows[as_size(row)];
      if (as_size(at.sequence) != i) return "a row of another sequence";
      if (at.position != sequence.length - next + row) return "positions do not ascend";
    }
  }
  return as_size(next) == plan.rows.size() ? "" : "rows without a sequence";
}

std::string EchoBackend::check_rows(const StepPlan& plan, std::size_t index, const Text& text) const {
  const PlanSequence& sequence = plan.sequences[index];
  for (std::int32_t row = sequence.first_row; row < sequence.first_row + sequence.rows; ++row) {
    const PlanRow& at = plan.rows[as_size(row)];
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
  std::vector<int> written(slots_.size(), 0);
  for (const PlanSnapshot& snapshot : plan.snapshots) ++written[as_size(snapshot.slot)];
  for (const PlanSequence& sequence : plan.sequences) {
    if (sequence.state_out < 0) return "a state without a slot";
    ++written[as_size(sequence.state_out)];
  }
  for (const int count : written) {
    if (count > 1) return "two states in one slot";
  }
  for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
    const PlanSequence& sequence = plan.sequences[i];
    const std::int32_t first = sequence.length - sequence.rows;
    if ((first == 0) != (sequence.state_in < 0)) return "a state from nowhere";
    if (first == 0) continue;
    if (slots_[as_size(sequence.state_in)] != texts_[i]->hashes[as_size(first) - 1]) return "another text's state";
    if (sequence.state_in != sequence.state_out && written[as_size(sequence.state_in)] > 0) {
      return "a state is read from where another is written";
    }
  }
  for (const PlanSnapshot& snapshot : plan.snapshots) {
    const PlanRow& row = plan.rows[as_size(snapshot.row)];
    slots_[as_size(snapshot.slot)] = texts_[as_size(row.sequence)]->hashes[as_size(row.position)];
  }
  for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
    slots_[as_size(plan.sequences[i].state_out)] = texts_[i]->hashes[as_size(plan.sequences[i].length) - 1];
  }
  return "";
}

// All that the sequence's rows see of each group, after every row of the step has been written.
std::string EchoBackend::check_sight(const StepPlan& plan, std::size_t index, const Text& text) const {
  const PlanSequence& sequence = plan.sequences[index];
  for (std::size_t group = 0; group < cells_.size(); ++group) {
    const std::int32_t window = config_.groups[group].window;
    const std::int32_t first_row = sequence.length - sequence.rows;
    const PlanTable& table = plan.tables_of(index)[group];
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

std::string EchoBackend::check_outputs(const StepPlan& plan, const Lookup& lookup) const {
  std::int32_t last = -1;
  for (const PlanOutput& output : plan.outputs) {
    if (output.row < last || as_size(output.row) >= plan.rows.size()) return "outputs do not ascend";
    last = output.row;
    const PlanRow& row = plan.rows[as_size(output.row)];
    if (plan.sequences[as_size(row.sequence)].request != output.request) return "an output of another request";
    const Text* text = lookup(output.request, output.branch);
    if (text == nullptr) return "an output of nobody";
    if (output.score < 0 && row.position != text->length() - 1) return "a token is sampled in the middle";
    if (output.score >= 0 && output.score != text->tokens[as_size(row.position) + 1])
      return "a wrong score is asked for";
  }
  return "";
}

std::string EchoBackend::run(const StepPlan& plan, const Lookup& lookup) {
  if (std::string wrong = check_shape(plan); !wrong.empty()) return wrong;
  copy(plan);
  texts_.clear();
  for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
    texts_.push_back(lookup(plan.sequences[i].request, plan.sequences[i].branch));
    if (texts_[i] == nullptr) return "a sequence of nobody";
    if (std::string wrong = check_rows(plan, i, *texts_[i]); !wrong.empty()) return wrong;
  }
  if (config_.recurrent) {
    if (std::string wrong = check_states(plan); !wrong.empty()) return wrong;
  }
  for (const PlanRow& row : plan.rows) {
    const std::uint64_t hash = texts_[as_size(row.sequence)]->hashes[as_size(row.position)];
    for (std::size_t group = 0; group < cells_.size(); ++group) {
      const auto& blocks = plan.tables_of(as_size(row.sequence))[group].blocks;
      cell(group, blocks[as_size(row.position / config_.block_tokens)], row.position) = hash;
    }
  }
  for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
    if (std::string wrong = check_sight(plan, i, *texts_[i]); !wrong.empty()) {
      return fmt::format("request {}: {}", plan.sequences[i].request, wrong);
    }
  }
  return check_outputs(plan, lookup);
}

void EchoBackend::spoil(const StepPlan& plan, std::size_t index) {
  const PlanSequence& sequence = plan.sequences[index];
  for (std::int32_t position = sequence.length - sequence.rows; position < sequence.length; ++position) {
    for (std::size_t group = 0; group < cells_.size(); ++group) {
      const auto& blocks = plan.tables_of(index)[group].blocks;
      cell(group, blocks[as_size(position / config_.block_tokens)], position) = kRubbish;
    }
  }
  if (!config_.recurrent) return;
  slots_[as_size(sequence.state_out)] = kRubbish;
  for (const PlanSnapshot& snapshot : plan.snapshots) {
    if (as_size(plan.rows[as_size(snapshot.row)].sequence) == index) slots_[as_size(snapshot.slot)] = kRubbish;
  }
}

void EchoBackend::run_badly(const StepPlan& plan, Random& random) {
  if (random.chance(500)) copy(plan);
  for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
    if (random.chance(700)) spoil(plan, i);
  }
}

}  // namespace quarrel::sim
