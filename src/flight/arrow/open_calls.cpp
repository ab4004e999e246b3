#include "flight/arrow/open_calls.h"

#include <algorithm>
#include <exception>
#include <string_view>
#include <utility>

namespace quarrel::flight {

using arrow::Status;
using arrow::flight::FlightStatusCode;
using arrow::flight::MakeFlightError;

namespace {

Status refused(const FlightRefusal& refusal) {
  const auto of = [&](FlightStatusCode code) { return MakeFlightError(code, refusal.what()); };
  switch (refusal.fault()) {
    case FlightFault::invalid: return Status::Invalid(refusal.what());
    case FlightFault::not_found: return Status::KeyError(refusal.what());
    case FlightFault::unsupported: return Status::NotImplemented(refusal.what());
    case FlightFault::unauthenticated: return of(FlightStatusCode::Unauthenticated);
    case FlightFault::unauthorized: return of(FlightStatusCode::Unauthorized);
    case FlightFault::unavailable: return of(FlightStatusCode::Unavailable);
    case FlightFault::cancelled: return of(FlightStatusCode::Cancelled);
    case FlightFault::internal: break;
  }
  return of(FlightStatusCode::Internal);
}

}  // namespace

Status status_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const FlightRefusal& refusal) {
    return refused(refusal);
  } catch (...) {
    return MakeFlightError(FlightStatusCode::Internal, "something went wrong; the log says what");
  }
}

FlightCall call_of(const arrow::flight::ServerCallContext& context) {
  FlightCall call{.peer = read_peer(context.peer()).address,
                  .cancelled = [&context] { return context.is_cancelled(); }};
  const auto header = [&](std::string_view name) {
    const auto found = context.incoming_headers().find(name);
    return found == context.incoming_headers().end() ? std::string() : std::string(found->second);
  };
  call.authorization = header("authorization");
  call.request_id = header("x-request-id");
  return call;
}

OpenCall::OpenCall(std::shared_ptr<OpenCalls> calls, std::uint64_t account, PeerAddress peer)
    : calls_(std::move(calls)), account_(account), peer_(std::move(peer)) {}

void OpenCall::wait_for_client() { watch(calls_->message_time_); }

void OpenCall::wait_on_for_client() { watch(left_); }

void OpenCall::watch(std::chrono::milliseconds time) {
  until_ = Clock::now() + time;
  watched_.emplace(calls_->watch_, time, [this] { cut_connection(peer_, calls_->port_); });
}

void OpenCall::work() {
  left_ = std::max(std::chrono::duration_cast<std::chrono::milliseconds>(until_ - Clock::now()),
                   std::chrono::milliseconds(0));
  watched_.reset();
}

bool OpenCall::enter() {
  inside_ = calls_->enter(account_);
  return inside_;
}

void OpenCall::leave() {
  watched_.reset();
  if (std::exchange(inside_, false)) calls_->leave(account_);
}

Status OpenCalls::StartCall(const arrow::flight::CallInfo&, const arrow::flight::ServerCallContext& context,
                            std::shared_ptr<arrow::flight::ServerMiddleware>* middleware) {
  return without_exceptions([&] {
    const std::uint64_t account = handler_->admit(call_of(context));
    const auto call = std::make_shared<OpenCall>(shared_from_this(), account, read_peer(context.peer()));
    if (!call->enter()) return MakeFlightError(FlightStatusCode::Unavailable, "too many calls are open already");
    call->wait_for_client();
    *middleware = call;
    return Status::OK();
  });
}

bool OpenCalls::enter(std::uint64_t account) {
  const std::scoped_lock lock(mutex_);
  int& of_caller = accounts_[account];
  const bool room = open_ < most_ && of_caller < most_of_caller_;
  if (room) {
    ++open_;
    ++of_caller;
  }
  if (of_caller == 0) accounts_.erase(account);
  return room;
}

void OpenCalls::leave(std::uint64_t account) {
  const std::scoped_lock lock(mutex_);
  --open_;
  const auto known = accounts_.find(account);
  if (--known->second == 0) accounts_.erase(known);
}

}  // namespace quarrel::flight
