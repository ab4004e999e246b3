// A model's weights on a backend, and its forward pass: the one loop over layers. It holds no state of any sequence, so
// one Model serves all of them. `forward` is called by the backend, on the thread that drives it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "gguf/file.h"
#include "model/blocks/sublayer.h"
#include "model/spec.h"

namespace quarrel {

class Model {
 public:
  // Binds and prepares every weight. `file` and `backend` must outlive the model. Throws Error(bad_file) for a tensor
  // that is missing or of the wrong shape.
  Model(const GgufFile& file, ModelSpec spec, Backend& backend);

  const ModelSpec& spec() const noexcept { return spec_; }
  const std::vector<KvGroup>& kv_groups() const noexcept { return kv_groups_; }
  const std::vector<StateLayer>& state_layers() const noexcept { return state_layers_; }
  const std::vector<std::string>& unused_tensors() const noexcept { return unused_tensors_; }
  std::uint64_t shared_bytes() const noexcept { return shared_bytes_; }  // of matrices in the file that are no experts
  std::uint64_t expert_bytes() const noexcept { return expert_bytes_; }
  std::uint64_t least_expert_bytes() const noexcept { return least_expert_bytes_; }  // that one token needs at once
  // Whether some row sees rows after it, so that a text must be fed in one step.
  bool needs_whole_text() const noexcept;
  bool can_rank() const noexcept { return pool_.score.valid(); }  // the file has the weights for it
  // Values of a vector: those of a row of the step's results, or fewer of them, the scores of a ranking.
  std::int32_t vector_width(Pooling pooling) const noexcept;
  std::int32_t embedding_width() const noexcept {
    return vector_width(spec_.pooling);
  }  // as the model pools by default

  // Issues one step's ops. Depends on the shape alone, so a captured graph can be replayed. `on_layer` is called before
  // each layer, for whoever watches that the pass goes on.
  void forward(Backend& backend, const StepShape& shape, const std::function<void()>& on_layer = {}) const;

 private:
  struct Layer {
    std::unique_ptr<Sublayer> mixer;
    std::unique_ptr<Sublayer> ffn;
  };

  void bind_ranking(WeightBinder& weights);

  ModelSpec spec_;
  std::uint64_t shared_bytes_ = 0;
  std::uint64_t expert_bytes_ = 0;
  std::uint64_t least_expert_bytes_ = 0;
  std::vector<KvGroup> kv_groups_;
  std::vector<StateLayer> state_layers_;
  std::vector<std::string> unused_tensors_;
  EmbedOp embed_;
  std::vector<Layer> layers_;
  SelectRowsOp select_;
  HeadOp head_;
  PoolOp pool_;
};

// Parameters of a file: the elements of all its tensors.
std::uint64_t parameter_count(const GgufFile& file);

// KV groups and recurrent layers of a spec, without loading anything. Layers with the same window share a group.
std::vector<KvGroup> kv_groups_of(const ModelSpec& spec);
std::vector<StateLayer> state_layers_of(const ModelSpec& spec);

}  // namespace quarrel
