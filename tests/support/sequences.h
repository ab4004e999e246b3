// Texts on their way through a model, step by step, without an engine: blocks and slots come from `sched`'s pools,
// steps are made by hand. What tests of models use, and the oracle of every answer: each token is sampled with a lane
// that begins anew with the whole text, so nothing here depends on what a backend remembers. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "gguf/file.h"
#include "model/model.h"
#include "sched/block_pool.h"

namespace quarrel::test {

// One text: how many positions are in the cache, and where.
class TestSequence {
 public:
  std::int32_t length() const noexcept { return static_cast<std::int32_t>(text_.size()); }

 private:
  friend class Sequences;
  std::vector<TokenId> text_;
  std::int32_t prompt_ = 0;                        // tokens of it that were fed as a prompt, from the first
  std::vector<std::vector<std::int32_t>> blocks_;  // [KV group][entry]; -1: freed, the window has passed it
  std::int32_t slot_ = -1;                         // recurrent state after the text
  std::int32_t lane_ = -1;                         // where its rows are gathered
  float mirostat_mu_ = 0.0f;
};

// What is wanted of one token that is fed: `index` counts within the feed's tokens. Any of these, where it is to go.
struct Want {
  std::int32_t index = 0;
  float* logits = nullptr;  // [vocabulary]
  float* vector = nullptr;  // [width]: the row after the final norm
  float* pooled = nullptr;  // [vector_width]: one vector of the text; at the last token, of a feed with `pooling`
  const SamplingParams* sampling = nullptr;
  TokenId score = -1;
  std::int32_t top = 0;
  std::span<const std::uint64_t> mask = {};
};

struct Feed {
  TestSequence* sequence = nullptr;
  std::span<const TokenId> tokens = {};
  RowClass row_class = RowClass::prompt;
  std::span<const Want> wants = {};  // ascending by index
  Pooling pooling = Pooling::none;   // of a text that becomes a vector, in all of its feeds
};

// What a model was made ready for.
struct SequenceLimits {
  std::int32_t context = 0;
  StepLimits step = {};
  std::vector<std::int32_t> blocks = {};  // of each KV group
  std::int32_t state_slots = 0;
};

class Sequences {
 public:
  using RunStep = std::function<StepResults(const Step&)>;
  Sequences(Backend& backend, const Model& model, const SequenceLimits& limits, RunStep run);
  // Of anything that has a backend, a model, a plan of memory and steps, which must all be unused.
  template <typename Executor>
  explicit Sequences(Executor& executor)
      : Sequences(executor.backend(), executor.model(),
                  {.context = executor.plan().context,
                   .step = executor.plan().limits,
                   .blocks = executor.plan().blocks,
                   .state_slots = executor.plan().state_slots},
                  [&executor](const Step& step) { return executor.step(step); }) {}

  TestSequence make() const;
  // One step; feeds of class generated must come before those of class prompt and the rows must fit a batch. One result
  // a want, in their order. Throws Error(bad_input) when a text would outgrow the context, and Error(bad_file) when the
  // model's numbers are not finite, naming the layer; sequences are as before then, but recurrent ones are empty.
  std::vector<SampleResult> run(std::span<const Feed> feeds);
  // A feed of any length, in steps of at most `chunk` rows (0: the batch).
  std::vector<SampleResult> run_chunked(const Feed& feed, std::int32_t chunk = 0);
  // Forgets what lies beyond the first `length` positions. Returns how many are kept: a recurrent state, and a window
  // that has moved on, can only return to the start.
  std::int32_t truncate(TestSequence& sequence, std::int32_t length);
  // The last step's.
  const StepResults& results() const noexcept { return results_; }

 private:
  struct Planned;  // a step, with everything it points to
  void add(Planned& planned, const Feed& feed);
  void add_want(Planned& planned, const Feed& feed, const Want& want, std::int32_t first_row);
  void append_blocks(TestSequence& sequence, std::int32_t length);
  void free_passed_blocks(TestSequence& sequence);
  std::int32_t first_entry_seen(std::size_t group, std::int32_t position) const;
  bool window_reaches(const TestSequence& sequence, std::int32_t length) const;
  void hand_out(std::span<const Feed> feeds) const;
  void accept(std::span<const Feed> feeds);

  Backend& backend_;
  const Model& model_;
  SequenceLimits limits_;
  RunStep run_;
  std::vector<BlockPool> blocks_;  // one a KV group
  BlockPool slots_;
  BlockPool lanes_;
  StepResults results_;
};

// A model on a device, and nothing more: what Sequences asks for, where there is no engine.
class LoneModel {
 public:
  struct Options {
    std::int32_t context = 256;
    std::int32_t sequences = 4;
    std::int32_t rows = 64;
    KvType kv_type = KvType::f32;
    BackendOptions backend = {.activations = ActivationPrecision::int8_split};
  };
  struct Plan {
    std::int32_t context = 0;
    StepLimits limits = {};
    std::vector<std::int32_t> blocks = {};
    std::int32_t state_slots = 0;
  };
  LoneModel(GgufFile file, Device& device, const Options& options);

  Backend& backend() noexcept { return *backend_; }
  const Model& model() const noexcept { return *model_; }
  const Plan& plan() const noexcept { return plan_; }
  Backend::Forward forward() const;
  StepResults step(const Step& step) { return backend_->wait(backend_->submit(step, forward())); }

 private:
  GgufFile file_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  Plan plan_;
};

}  // namespace quarrel::test
