// The calls that are open at our endpoint: how many there may be, of all callers and of one, and that none holds its
// place without using it. A call counts from its headers on, before anything that it sends is read.
//
// Threads: Arrow's own, one a call; the watch has one more.
#pragma once

#include <arrow/flight/server.h>
#include <arrow/flight/server_middleware.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/clock.h"
#include "flight/arrow/call_watch.h"
#include "flight/arrow/peer_socket.h"
#include "flight/listener.h"

namespace quarrel::flight {

// The status that an exception stands for.
arrow::Status status_of(const std::exception_ptr& error);

// What `work` gives, and never an exception: none may leave through Arrow's functions.
template <typename Work>
arrow::Status without_exceptions(const Work& work) {
  try {
    return work();
  } catch (...) {
    return status_of(std::current_exception());
  }
}

// Who calls.
FlightCall call_of(const arrow::flight::ServerCallContext& context);

class OpenCalls;

// One of them: it waits for its client, or works. Made when it begins and gone when it has ended.
class OpenCall final : public arrow::flight::ServerMiddleware {
 public:
  OpenCall(std::shared_ptr<OpenCalls> calls, std::uint64_t account, PeerAddress peer);
  ~OpenCall() override { leave(); }

  // False: there is no place for it.
  bool enter();
  // For a message of it, or until it has taken one of ours: so long as the options say.
  void wait_for_client();
  // The same, with what was left of that time when `work` began: the message that came brought nothing.
  void wait_on_for_client();
  void work();

  std::string name() const override { return "open call"; }
  void SendingHeaders(arrow::flight::AddCallHeaders*) override {}
  void CallCompleted(const arrow::Status&) override { leave(); }  // before the client hears of it

 private:
  void leave();
  void watch(std::chrono::milliseconds time);

  const std::shared_ptr<OpenCalls> calls_;
  const std::uint64_t account_;
  const PeerAddress peer_;
  bool inside_ = false;
  Clock::time_point until_ = {};         // that it is waited for
  std::chrono::milliseconds left_ = {};  // of that, when it was heard
  std::optional<CallWatch::Guard> watched_;
};

class OpenCalls final : public arrow::flight::ServerMiddlewareFactory, public std::enable_shared_from_this<OpenCalls> {
 public:
  OpenCalls(const FlightListenerOptions& options, std::shared_ptr<FlightHandler> handler)
      : most_(options.calls),
        most_of_caller_(options.calls_of_caller),
        message_time_(options.message_time),
        handler_(std::move(handler)) {}

  static constexpr const char* kName = "open calls";
  static OpenCall& of(const arrow::flight::ServerCallContext& context) {
    return static_cast<OpenCall&>(*context.GetMiddleware(kName));
  }
  // Where it listens, once that is known.
  void set_port(std::uint16_t port) { port_ = port; }

  arrow::Status StartCall(const arrow::flight::CallInfo& info, const arrow::flight::ServerCallContext& context,
                          std::shared_ptr<arrow::flight::ServerMiddleware>* middleware) override;

 private:
  friend OpenCall;
  bool enter(std::uint64_t account);
  void leave(std::uint64_t account);

  const int most_, most_of_caller_;
  const std::chrono::milliseconds message_time_;
  const std::shared_ptr<FlightHandler> handler_;
  std::atomic<std::uint16_t> port_ = 0;
  std::mutex mutex_;
  int open_ = 0;                                     // guarded, like the next
  std::unordered_map<std::uint64_t, int> accounts_;  // those that have calls open
  CallWatch watch_;
};

}  // namespace quarrel::flight
