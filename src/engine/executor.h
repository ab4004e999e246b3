// A model ready to run: file, weights on a backend, cache. It feeds tokens to sequences and returns what was asked for.
// It has no policy (no queue, no batching decisions); whoever calls it decides what a step holds. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "engine/memory_plan.h"
#include "engine/observations.h"
#include "gguf/file.h"
#include "model/model.h"

namespace quarrel {

// One text on its way through the model: how many positions are in the cache, and where. A block table, a state slot,
// or both, as the model needs.
class Sequence {
 public:
  std::int32_t length() const noexcept { return length_; }

 private:
  friend class Executor;
  std::int32_t length_ = 0;
  std::vector<std::vector<std::int32_t>> blocks_;  // [KV group][entry]; -1: freed, the window has passed it
  std::int32_t slot_ = -1;                         // recurrent state after `length_` positions
  std::int32_t marked_slot_ = -1;                  // and after `marked_length_`
  std::int32_t marked_length_ = 0;
};

// What is wanted of one token that is fed: `index` counts within the feed's tokens.
struct Want {
  std::int32_t index = 0;
  const SampleRequest* sample = nullptr;
  float* logits = nullptr;
  float* embedding = nullptr;
};

struct Feed {
  Sequence* sequence = nullptr;
  std::span<const TokenId> tokens = {};
  RowClass row_class = RowClass::prompt;
  std::span<const Want> wants = {};  // ascending by index
};

class Executor {
 public:
  // Opens and prepares the model. Throws Error: bad_file, unsupported, or out_of_memory with what was asked, what there
  // is, and which context would fit.
  Executor(GgufFile file, Device& device, const ExecutorOptions& options);
  ~Executor();

  const GgufFile& file() const noexcept { return file_; }
  const ModelSpec& spec() const noexcept { return model_->spec(); }
  const Model& model() const noexcept { return *model_; }
  Backend& backend() noexcept { return *backend_; }
  const MemoryPlan& plan() const noexcept { return plan_; }
  std::int32_t context() const noexcept { return plan_.context; }
  KvType kv_type() const noexcept { return plan_.kv_type; }
  std::int32_t batch_rows() const noexcept { return plan_.limits.rows; }
  Observations observe() const;
  void watch_times(bool on) { backend_->set_profiling(on); }  // starts them at zero

  Sequence make_sequence() const;
  // Remembers the recurrent state of this moment, so that `truncate` can return to it; attention needs no mark.
  void mark(Sequence& sequence);
  // Forgets what lies beyond the first `length` positions; its blocks and slots are free again. Returns how many are
  // kept, which is the sequence's length from now on: a recurrent state can only return to its mark or to the start,
  // and a window that has moved on to the start.
  std::int32_t truncate(Sequence& sequence, std::int32_t length);

  // One step; feeds of class generated must come before those of class prompt and the rows must fit a batch. Results
  // come in the order of the wants. Throws Error(bad_input) when a sequence would outgrow the context, and
  // Error(bad_file) when the model's numbers are not finite, naming the layer. After a throw recurrent sequences are
  // empty: their state may be half of the old and half of the new.
  std::vector<SampleResult> run(std::span<const Feed> feeds);

  // One step as it is: blocks and slots are the caller's business, and so are numbers that are not finite. Whoever
  // calls this makes no Sequence here.
  StepResults step(const Step& step);

  // A feed of any length, in steps of at most `chunk` rows (0: the batch).
  std::vector<SampleResult> run_chunked(const Feed& feed, std::int32_t chunk = 0);

 private:
  void append_blocks(Sequence& sequence, std::int32_t length);
  void take_slot(std::int32_t& slot);
  void free_slot(std::int32_t& slot);
  // The first entry of a group's block table that holds something this position sees.
  std::int32_t first_entry_seen(std::size_t group, std::int32_t position) const;
  // Whether all positions that position `length` sees are still there.
  bool window_reaches(const Sequence& sequence, std::int32_t length) const;
  void free_passed_blocks(Sequence& sequence);
  StepResults submit(std::span<const Feed> feeds);

  GgufFile file_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  MemoryPlan plan_;
  std::vector<std::vector<std::int32_t>> free_blocks_;  // [KV group]
  std::vector<std::int32_t> free_slots_;
  Observations seen_;  // what the executor itself counts
};

}  // namespace quarrel
