// Who wants to hear how far the loading of a model is: requests that asked for it, by the model's name. The registry
// reports, watchers are called with no lock held. Any thread.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "session/model_registry.h"

namespace quarrel {

class LoadWatch {
 public:
  // Called on a thread of the registry: it must not block, and what it throws would end the load.
  using Callback = std::function<void(const LoadEvent& event)>;

  // It is called until what this gives back is let go of, and perhaps once more if that happens meanwhile.
  [[nodiscard]] std::shared_ptr<void> watch(std::string name, Callback callback);
  void report(const LoadEvent& event);

 private:
  struct Watcher {
    std::string name;
    Callback callback;
  };

  std::mutex mutex_;
  std::vector<std::weak_ptr<Watcher>> watchers_;  // guarded
};

}  // namespace quarrel
