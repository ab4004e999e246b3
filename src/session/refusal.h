// Turns an engine's refusals and failures into Errors, in one place for all callers. Any thread.
#pragma once

#include <chrono>
#include <string>

#include "base/error.h"
#include "engine/request.h"

namespace quarrel {

// The model accepts no more requests for now.
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

// Throws unless `reason` is a normal end: Error(bad_file) for a failure, with the text of `error`, Error(bad_input) if
// no token was allowed, Error(cancelled) if it was cancelled or timed out.
void require_finished(FinishReason reason, const std::string& error);
// What is said of such an end; empty: it is a good one.
std::string failure_text(FinishReason reason, const std::string& error);

}  // namespace quarrel
