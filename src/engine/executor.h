// A model ready to run: file, weights on a backend, cache. It feeds tokens to sequences and returns what was asked for.
// It has no policy (no queue, no batching decisions); whoever calls it decides what a step holds. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "gguf/file.h"
#include "model/model.h"

namespace quarrel {

struct ExecutorOptions {
  std::int32_t context = 0;            // tokens a sequence may hold; 0: what the model was trained for, or what fits
  std::int32_t sequences = 1;          // how many at once
  std::int32_t batch_rows = 512;       // rows a step at most
  std::optional<KvType> kv_type = {};  // none: the device's default
  ActivationDigits activations = ActivationDigits::two;
};

// One text on its way through the model: how many positions are in the cache, and where.
class Sequence {
 public:
  std::int32_t length() const noexcept { return length_; }

 private:
  friend class Executor;
  std::int32_t length_ = 0;
  std::vector<std::vector<std::int32_t>> blocks_;  // [KV group][entry]
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
  std::int32_t context() const noexcept { return context_; }
  KvType kv_type() const noexcept { return kv_type_; }
  std::int32_t batch_rows() const noexcept { return batch_rows_; }
  std::size_t kv_cache_bytes() const noexcept;  // of the whole cache, touched or not

  Sequence make_sequence() const;
  // Forgets what lies beyond the first `length` positions; its blocks are free again.
  void truncate(Sequence& sequence, std::int32_t length);

  // One step; feeds of class generated must come before those of class prompt and the rows must fit a batch. Results
  // come in the order of the wants. Throws Error(bad_input) when a sequence would outgrow the context, and
  // Error(bad_file) when the model's numbers are not finite.
  std::vector<SampleResult> run(std::span<const Feed> feeds);

  // A feed of any length, in steps of at most `chunk` rows (0: the batch).
  std::vector<SampleResult> run_chunked(const Feed& feed, std::int32_t chunk = 0);

 private:
  void append_blocks(Sequence& sequence, std::int32_t length);

  GgufFile file_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  std::int32_t context_ = 0;
  KvType kv_type_ = KvType::f16;
  std::int32_t batch_rows_ = 0;
  std::int32_t blocks_ = 0;                             // of each KV group
  std::vector<std::vector<std::int32_t>> free_blocks_;  // [KV group]
};

}  // namespace quarrel
