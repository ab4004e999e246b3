#include "api/model_impl.h"

#include <system_error>
#include <thread>
#include <utility>

namespace quarrel::api {
namespace {

// Without a thread the model stays where it is: better than an engine that waits for itself.
void end_elsewhere(std::unique_ptr<LoadedModel> model) noexcept {
  LoadedModel* const ending = model.release();
  try {
    std::thread([ending] { delete ending; }).detach();
  } catch (const std::exception&) {
    return;
  }
}

}  // namespace

std::function<void(std::unique_ptr<LoadedModel>)> LastRest::entrance(std::shared_ptr<LastRest> rest) {
  return [rest = std::move(rest)](std::unique_ptr<LoadedModel> model) { rest->take(std::move(model)); };
}

void LastRest::take(std::unique_ptr<LoadedModel> model) noexcept {
  {
    const std::scoped_lock lock(mutex_);
    if (!abandoned_) {
      model_ = std::move(model);
      came_.notify_all();
      return;
    }
  }
  if (model->engine().on_engine_thread()) end_elsewhere(std::move(model));
}

void LastRest::await_model() noexcept {
  std::unique_lock lock(mutex_);
  came_.wait(lock, [&] { return model_ != nullptr; });
  model_.reset();
}

void LastRest::abandon() noexcept {
  const std::scoped_lock lock(mutex_);
  abandoned_ = true;
}

Model::Impl::~Impl() {
  const bool in_callback = callbacks.on_thread();
  callbacks.stop();
  if (loaded == nullptr) return;
  // Below a callback of its own, or of its engine, the model is still in use.
  const bool can_wait = !in_callback && !loaded->engine().on_engine_thread();
  if (!can_wait) rest->abandon();
  loaded.reset();
  if (can_wait) rest->await_model();
}

}  // namespace quarrel::api
