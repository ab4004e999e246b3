// One step of work for a backend, as plain arrays: what the scheduler decided, without a word about layers.
//
// A step is a flat list of rows from many sequences, `generated` rows first, then `prompt` rows. A row's class alone
// chooses its arithmetic, so its bits never depend on its neighbours, the chunk or the threads (docs/numerics.md).
// Rows of one sequence are consecutive within a class and in ascending position.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/sampling.h"
#include "base/token.h"

namespace quarrel {

enum class RowClass : std::uint8_t { generated, prompt };

struct StepRow {
  std::int32_t sequence = 0;  // index into Step::sequences
  std::int32_t position = 0;  // in the sequence's text
  // A token id; or, below zero, ~r: what output r of the step before this one sampled.
  std::int32_t token = 0;
};

// Where a sequence's keys and values lie in one KV group: entry i holds positions [i * block_tokens, …). Entries wholly
// before `first_live` may be -1: a sliding window has freed them.
struct BlockTable {
  std::span<const std::int32_t> blocks = {};
  std::int32_t first_live = 0;
};

struct StepSequence {
  std::span<const BlockTable> tables = {};  // one a KV group; empty for a model without attention
  std::int32_t length = 0;                  // positions after this step: what non-causal rows see
  std::int32_t state_in = -1;               // slot the recurrent layers start from; -1: zeros
  std::int32_t state_out = -1;              // slot they leave their state in
};

// A row whose result is wanted. Ascending by row, so those of `generated` rows come first; a row may be wanted more
// than once, to sample several tokens from it.
struct StepOutput {
  std::int32_t row = 0;
  const SampleRequest* sample = nullptr;  // null: no token is chosen
  float* logits = nullptr;                // where to put all of them, [vocabulary]; null: nowhere
  float* embedding = nullptr;             // where to put the row after the final norm, [width]; null: nowhere
};

// Recurrent state after a row, kept in a slot of its own (prefix sharing, roll-back of refused drafts).
struct StateSnapshot {
  std::int32_t row = 0;
  std::int32_t slot = 0;
};

struct Step {
  std::span<const StepRow> rows = {};
  std::int32_t generated_rows = 0;  // how many of `rows` are of class generated
  std::span<const StepSequence> sequences = {};
  std::span<const StepOutput> outputs = {};
  std::span<const StateSnapshot> snapshots = {};
};

// All of a step that a captured graph may depend on. Two steps of equal shape issue exactly the same calls; what
// differs (tokens, positions, tables, slots, sampling) lies in buffers that are rewritten before each run.
struct StepShape {
  std::int32_t generated_rows = 0;
  std::int32_t prompt_rows = 0;
  std::int32_t generated_outputs = 0;
  std::int32_t prompt_outputs = 0;

  std::int32_t rows() const noexcept { return generated_rows + prompt_rows; }
  std::int32_t outputs() const noexcept { return generated_outputs + prompt_outputs; }
  bool operator==(const StepShape&) const = default;
};

// A step's own shape, before a backend rounds it up.
inline StepShape exact_shape(const Step& step) noexcept {
  StepShape shape{.generated_rows = step.generated_rows,
                  .prompt_rows = static_cast<std::int32_t>(step.rows.size()) - step.generated_rows};
  for (const StepOutput& output : step.outputs) {
    ++(output.row < step.generated_rows ? shape.generated_outputs : shape.prompt_outputs);
  }
  return shape;
}

// The largest step a backend must be ready for.
struct StepLimits {
  std::int32_t rows = 512;
  std::int32_t outputs = 512;
};

struct StepResults {
  std::vector<SampleResult> samples;          // one an output; default where none was asked for
  std::vector<std::int32_t> first_bad_layer;  // one a row: the first layer whose norm met a non-finite sum; -1: none
};

}  // namespace quarrel
