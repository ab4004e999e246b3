// What an engine's refusals and failures are as Errors: written once, for everybody who submits. Any thread.
#pragma once

#include <chrono>
#include <string>

#include "base/error.h"
#include "engine/request.h"

namespace quarrel {

// The model takes no more for now.
class BusyError : public Error {
 public:
  BusyError(const std::string& message, std::chrono::microseconds retry_after)
      : Error(ErrorKind::busy, message), retry_after_(retry_after) {}
  std::chrono::microseconds retry_after() const noexcept { return retry_after_; }  // 0: nobody knows

 private:
  std::chrono::microseconds retry_after_;
};

// What was waited for did not come in time.
class TimedOutError : public Error {
 public:
  explicit TimedOutError(const std::string& message) : Error(ErrorKind::busy, message) {}
};

// The prompt leaves no room for an answer.
class TooLongError : public Error {
 public:
  explicit TooLongError(const std::string& message) : Error(ErrorKind::bad_input, message) {}
};

// Throws unless it was accepted: BusyError, TooLongError with the numbers, or Error(bad_input).
void require_accepted(const SubmitResult& result);

// Throws if `reason` is no good end: Error(bad_file) for a failure, with what `error` says of it, Error(bad_input)
// where no token could come, Error(cancelled) for cancelled and timed out ones.
void require_finished(FinishReason reason, const std::string& error);
// What is said of such an end; empty: it is a good one.
std::string failure_text(FinishReason reason, const std::string& error);

}  // namespace quarrel
