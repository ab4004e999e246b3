// What a CancelToken ends: whoever can be cancelled has a watch for as long as it runs. Any thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "api/home_process.h"
#include "quarrel/generate.h"

namespace quarrel::api {

class CancelWatch {
 public:
  // `on_cancel` is called once at most, by whoever cancels, or here and now if that has happened; it must not block.
  CancelWatch(const std::optional<CancelToken>& token, std::function<void()> on_cancel);
  ~CancelWatch();
  CancelWatch(const CancelWatch&) = delete;
  CancelWatch& operator=(const CancelWatch&) = delete;

 private:
  friend class CancelToken;
  std::shared_ptr<CancelToken::State> state_;
  std::function<void()> on_cancel_;
};

// Whoever cancels holds the mutex, so that no watch it calls is gone.
struct CancelToken::State {
  HomeProcess home;
  std::mutex mutex;
  std::vector<CancelWatch*> watches;
  std::atomic<bool> cancelled = false;
};

}  // namespace quarrel::api
