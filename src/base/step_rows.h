// A step's rows and where their sequences lie in the cache, as plain values: the scheduler decides them, a backend
// carries them out, and nobody in between translates. Spans point into whoever made the step.
#pragma once

#include <cstdint>
#include <span>

namespace quarrel {

// `generated` rows hold text that was chosen, `prompt` rows text that was given. The class alone chooses a row's
// arithmetic (docs/numerics.md).
enum class RowClass : std::uint8_t { generated, prompt };

// The rows of a step: `generated` ones first, then `prompt` ones. Rows of one sequence are consecutive, ascend in
// position and are all of one class.
struct StepRow {
  std::int32_t sequence = 0;  // index into the step's sequences
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
  // Where the backend gathers its rows into one vector, from step to step; -1: it is no such text.
  std::int32_t lane = -1;
};

// Recurrent state after a row, kept in a slot of its own (prefix sharing, roll-back of refused drafts).
struct StateSnapshot {
  std::int32_t row = 0;
  std::int32_t slot = 0;
};

// Copies are part of a step: made before its rows, after those of the step before, in this order.
struct BlockCopy {
  std::int32_t group = 0;
  std::int32_t from = 0;
  std::int32_t to = 0;
};
struct SlotCopy {
  std::int32_t from = 0;
  std::int32_t to = 0;
};

}  // namespace quarrel
