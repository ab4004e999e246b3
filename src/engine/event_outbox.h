// Events on their way to their sinks. Its memory is allocated in advance, so that reporting allocates nothing; a sink
// gets all its events in one call, in the order they came. Only the engine's thread uses it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "engine/engine_job.h"

namespace quarrel {

class EventOutbox {
 public:
  explicit EventOutbox(std::size_t capacity);

  bool empty() const noexcept { return waiting_.empty(); }
  bool full() const noexcept { return waiting_.size() == waiting_.capacity(); }
  // There must be room.
  void put(std::shared_ptr<EngineJob> job, TokenEvent event) noexcept;
  // Calls each sink once. `failed` is called for every request among the events of a sink that threw.
  void deliver(const std::function<void(RequestId)>& failed) noexcept;

 private:
  struct Waiting {
    std::shared_ptr<EngineJob> job = {};
    std::size_t order = 0;
    TokenEvent event = {};
  };
  std::vector<Waiting> waiting_;
  std::vector<TokenEvent> batch_;     // of one sink
  std::vector<RequestId> batch_ids_;  // the requests they are of: a sink may move the events away
};

}  // namespace quarrel
