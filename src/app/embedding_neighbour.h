// Another model on the same device that turns texts into vectors while something else is measured: what `bench --serve
// --beside` sets beside a stream. It has a thread of its own, from the making to `stop`.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "session/loaded_model.h"

namespace quarrel {

struct NeighbourLoad {
  std::int32_t texts = 200;   // at once, again and again
  std::int32_t tokens = 256;  // of each
};

struct NeighbourResult {
  std::int64_t texts = 0;
  double seconds = 0.0;
  double texts_per_s() const noexcept { return seconds > 0.0 ? static_cast<double>(texts) / seconds : 0.0; }
};

class EmbeddingNeighbour {
 public:
  EmbeddingNeighbour(std::shared_ptr<LoadedModel> model, const NeighbourLoad& load);
  ~EmbeddingNeighbour();
  EmbeddingNeighbour(const EmbeddingNeighbour&) = delete;
  EmbeddingNeighbour& operator=(const EmbeddingNeighbour&) = delete;

  // Ends it, and throws what the embedding failed with, if it did.
  NeighbourResult stop();

 private:
  void run();

  std::shared_ptr<LoadedModel> model_;
  std::vector<std::vector<TokenId>> texts_;
  std::atomic<bool> stopping_ = false;
  NeighbourResult result_;      // of the thread, until it has ended
  std::exception_ptr failure_;  // the same
  std::thread thread_;
};

}  // namespace quarrel
