// Runs what Arrow cannot cancel: a call with one answer, and the opening of a stream, which waits until there is a
// connection. It runs on a thread of its own, so that whoever waits for it can leave when a stop is requested; what was
// left behind ends by itself, with its time limit or gRPC's for connecting, and nobody hears of it. Any thread.
#pragma once

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <type_traits>
#include <utility>

#include "flight/arrow/client_state.h"

namespace quarrel::flight {

// Calls of a client that were left and still run. Beyond so many a stop has to wait for the call that it ends, so that
// clients that come and go cannot pile up threads.
inline constexpr int kMostLeftCalls = 16;

// What `call` gives or throws; nothing: a stop was requested first. `call` owns what it uses, and its answer is
// destroyed where nobody waits any more.
template <typename Call>
auto run_leavable(const std::shared_ptr<ClientState>& state, const std::stop_token& stop, Call call)
    -> std::optional<std::invoke_result_t<Call&>> {
  if (!stop.stop_possible()) return call();
  struct Shared {
    std::mutex mutex;
    std::condition_variable_any changed;
    std::optional<std::invoke_result_t<Call&>> answer;
    std::exception_ptr failure;
    bool left = false;
  };
  const auto shared = std::make_shared<Shared>();
  std::thread([state, shared, call = std::move(call)]() mutable {
    std::optional<std::invoke_result_t<Call&>> answer;
    std::exception_ptr failure;
    try {
      answer.emplace(call());
    } catch (...) {
      failure = std::current_exception();
    }
    const std::lock_guard lock(shared->mutex);
    if (shared->left) {
      --state->left_calls;
      return;
    }
    shared->answer = std::move(answer);
    shared->failure = failure;
    shared->changed.notify_all();
  }).detach();
  std::unique_lock lock(shared->mutex);
  const auto answered = [&] { return shared->answer.has_value() || shared->failure != nullptr; };
  if (!shared->changed.wait(lock, stop, answered)) {
    shared->left = ++state->left_calls <= kMostLeftCalls;
    if (shared->left) return std::nullopt;
    --state->left_calls;
    shared->changed.wait(lock, answered);
  }
  if (shared->failure != nullptr) std::rethrow_exception(shared->failure);
  return std::move(shared->answer);
}

}  // namespace quarrel::flight
