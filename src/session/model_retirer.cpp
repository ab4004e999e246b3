#include "session/model_retirer.h"

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

namespace quarrel {

struct ModelRetirer::State {
  // Whoever holds the model holds its place here, so `place` outlives it.
  struct Retired {
    std::unique_ptr<LoadedModel> model;
    std::shared_ptr<Place> place;
  };
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Retired> waiting;
  std::size_t places = 0;  // models that may come
  bool closed = false;

  void run();
};

// Room in the queue for one model, kept from before it is loaded.
class ModelRetirer::Place : public std::enable_shared_from_this<Place> {
 public:
  Place(std::shared_ptr<State> state, std::function<void()> ended)
      : state_(std::move(state)), ended_(std::move(ended)) {
    const std::scoped_lock lock(state_->mutex);
    state_->waiting.reserve(state_->places + 1);
    ++state_->places;
  }
  ~Place() {
    const std::scoped_lock lock(state_->mutex);
    --state_->places;
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  void retire(std::unique_ptr<LoadedModel> model) {
    {
      const std::scoped_lock lock(state_->mutex);
      if (!state_->closed) {
        state_->waiting.push_back({std::move(model), shared_from_this()});
        state_->changed.notify_one();
        return;
      }
    }
    LoadedModel* const ending = model.release();
    try {
      std::thread([ending, place = shared_from_this()] { place->end(std::unique_ptr<LoadedModel>(ending)); }).detach();
    } catch (const std::exception&) {
      // Without a thread it stays where it is: better than an engine that waits for itself.
    }
  }

  void end(std::unique_ptr<LoadedModel> model) const {
    model.reset();
    ended_();
  }

 private:
  const std::shared_ptr<State> state_;
  const std::function<void()> ended_;
};

void ModelRetirer::State::run() {
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [this] { return closed || !waiting.empty(); });
    if (waiting.empty()) return;
    Retired next = std::move(waiting.back());
    waiting.pop_back();
    lock.unlock();
    next.place->end(std::move(next.model));
    next.place.reset();
    lock.lock();
  }
}

ModelRetirer::ModelRetirer() : state_(std::make_shared<State>()) {
  thread_ = std::thread([state = state_] { state->run(); });
}

ModelRetirer::~ModelRetirer() { close(); }

std::function<void(std::unique_ptr<LoadedModel>)> ModelRetirer::hook(std::function<void()> ended) {
  return [place = std::make_shared<Place>(state_, std::move(ended))](std::unique_ptr<LoadedModel> model) {
    place->retire(std::move(model));
  };
}

void ModelRetirer::close() {
  {
    const std::scoped_lock lock(state_->mutex);
    state_->closed = true;
    state_->changed.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

}  // namespace quarrel
