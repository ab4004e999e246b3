// One step of work for a backend: what the scheduler decided (base/step_rows.h), and what is wanted of its rows. It
// knows nothing about layers.
//
// Padding: a backend that replays captured graphs rounds a step's shape up to a bucket and adds rows and outputs of its
// own after those of each class. They belong to no sequence, read and write neither cache nor state nor lanes, flag no
// bad numbers, and do not appear in the results. A step that is submitted never has any.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "backend/sampling.h"
#include "base/step_rows.h"
#include "base/token.h"

namespace quarrel {

enum class Pooling : std::uint8_t { none, mean, cls, last, rank };

// What is done with a row whose result is wanted.
enum class OutputKind : std::uint8_t {
  logits,  // no token is chosen: only what `StepOutput::logits` asks for
  sample,  // a token is drawn with the sampling state of `lane`, which records it
  score,   // the log-probability of `score` is reported
  vector,  // the row after the final norm
  pooled,  // one vector of all rows of the sequence, those of earlier steps included, from its `lane`; at its last row
};

// Lanes: a lane is a place in the backend for what a branch carries from step to step besides the cache. It either
// samples (parameters, draws, mirostat, counts for penalties: sampler_state.h) or gathers a text's rows into one
// vector. A step's lanes record its tokens when all of it has been computed.

// Ascending by row, so those of `generated` rows come first; a row may be wanted more than once, to sample several
// tokens from it.
struct StepOutput {
  std::int32_t row = 0;
  OutputKind kind = OutputKind::sample;
  bool logits = false;                       // all logits of the row are wanted too
  std::int32_t lane = -1;                    // of kinds sample and pooled
  TokenId score = -1;                        // of kind score
  std::int32_t top = 0;                      // how many of the most likely tokens to report, at most kMaxTopTokens
  std::span<const std::uint64_t> mask = {};  // of kind sample: one bit per token, 1 allows it; empty: all
};

// What a lane starts with: before the rows of this step it forgets everything else.
struct LaneStart {
  std::int32_t lane = 0;
  const SamplingParams* sampling = nullptr;  // copied; null: the lane gathers rows into a vector
  Pooling pooling = Pooling::none;           // how it does
  std::uint64_t draw = 0;                    // tokens that the answer has
  float mirostat_mu = 0.0f;                  // of the last result; 0 begins at 2 tau
  std::span<const TokenId> text = {};        // prompt and answer, where penalties ask for it
  std::int32_t prompt_tokens = 0;            // of `text`: those before the answer
};

struct Step {
  std::span<const StepRow> rows = {};
  std::int32_t generated_rows = 0;  // how many of `rows` are of class generated
  std::span<const StepSequence> sequences = {};
  std::span<const StepOutput> outputs = {};
  std::span<const StateSnapshot> snapshots = {};
  std::span<const BlockCopy> block_copies = {};
  std::span<const SlotCopy> slot_copies = {};
  std::span<const LaneStart> lane_starts = {};
  // Called once by `submit`, on its thread, when the rows are being computed or are about to be, without the device
  // lock: what masks point to is good when it returns. May be empty.
  std::function<void()> fill_masks = {};
};

// Everything about a step that a captured graph may depend on. Two steps of equal shape issue exactly the same calls;
// what differs (tokens, positions, tables, slots, sampling) is in buffers that are rewritten before each run.
struct StepShape {
  std::int32_t generated_rows = 0;
  std::int32_t prompt_rows = 0;
  std::int32_t generated_outputs = 0;
  std::int32_t prompt_outputs = 0;
  bool tokens = false;   // some output is of kind sample or score
  bool logits = false;   // some output wants its logits
  bool vectors = false;  // some output is of kind vector
  bool pooled = false;   // some output is of kind pooled, or a lane sums rows for one

  std::int32_t rows() const noexcept { return generated_rows + prompt_rows; }
  std::int32_t outputs() const noexcept { return generated_outputs + prompt_outputs; }
  bool operator==(const StepShape&) const = default;
};

// A step's own shape, before a backend rounds it up.
StepShape exact_shape(const Step& step) noexcept;

// The largest step a backend must be ready for.
struct StepLimits {
  std::int32_t rows = 512;
  std::int32_t outputs = 512;
  std::int32_t sequences = 64;  // of one step
  std::int32_t lanes = 128;     // two steps may be in flight, and a lane is given away when both are over
  std::int32_t context = 4096;  // positions of one sequence
};

struct StepResults {
  std::vector<SampleResult> samples;          // one an output; default where none was asked for
  std::vector<std::int32_t> first_bad_layer;  // one per row: the first layer whose norm had a non-finite sum; -1: none
  // In memory of the backend, good until two more steps have been submitted.
  std::span<const float> logits = {};   // [outputs that want them][vocabulary]
  std::span<const float> vectors = {};  // [outputs of kind vector or pooled][width]; `rank` gives fewer values a row
  std::int64_t micros = 0;              // that the device computed: no waiting for the device lock
};

}  // namespace quarrel
