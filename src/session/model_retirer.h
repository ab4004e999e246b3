// Destroys models on a thread of its own. The last owner of a model may be a sink on the thread of that model's
// engine, which cannot wait for itself, or an I/O thread, which must not wait at all.
//
// Threads: hooks are called from any thread and neither wait nor need memory.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "session/loaded_model.h"

namespace quarrel {

class ModelRetirer {
 public:
  ModelRetirer();
  ~ModelRetirer();  // closes
  ModelRetirer(const ModelRetirer&) = delete;
  ModelRetirer& operator=(const ModelRetirer&) = delete;

  // A LoadOptions::retire for one model, which may outlive this. `ended` is called when the model is gone, on the
  // thread that ended it, and must not throw.
  std::function<void(std::unique_ptr<LoadedModel>)> hook(std::function<void()> ended);

  // Waits for those that were handed over. Models that come later each end on a thread made for them.
  void close();

 private:
  struct State;
  class Place;
  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace quarrel
