#include "api/cancel_watch.h"

#include <utility>

namespace quarrel::api {

CancelToken::CancelToken() : state_(guarded([] { return std::make_shared<State>(); })) {}

void CancelToken::cancel() const {
  if (!state_) return;
  state_->home.require();
  const std::scoped_lock lock(state_->mutex);
  if (state_->cancelled.exchange(true)) return;
  for (CancelWatch* watch : state_->watches) watch->on_cancel_();
}

bool CancelToken::cancelled() const noexcept { return state_ && state_->cancelled; }

CancelWatch::CancelWatch(const std::optional<CancelToken>& token, std::function<void()> on_cancel)
    : state_(token ? token->state_ : nullptr), on_cancel_(std::move(on_cancel)) {
  if (!state_) return;
  state_->home.require();
  const std::scoped_lock lock(state_->mutex);
  state_->watches.push_back(this);
  if (state_->cancelled) on_cancel_();
}

CancelWatch::~CancelWatch() {
  if (!state_) return;
  const std::scoped_lock lock(state_->mutex);
  std::erase(state_->watches, this);
}

}  // namespace quarrel::api
