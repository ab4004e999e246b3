#include "session/refusal.h"

namespace quarrel {

void require_accepted(const SubmitResult& result) {
  switch (result.status) {
    case SubmitStatus::accepted: return;
    case SubmitStatus::empty: fail(ErrorKind::bad_input, "the prompt is empty");
    case SubmitStatus::too_long:
      throw TooLongError(fmt::format("this needs {} tokens, but the context holds {} including the answer",
                                     result.tokens, result.limit));
    case SubmitStatus::malformed:
      fail(ErrorKind::bad_input, "the request has a negative token or a number beyond what the model can do");
    case SubmitStatus::queue_full: {
      const std::chrono::microseconds wait(result.retry_after_us);
      throw BusyError(fmt::format("too many requests wait; try again in {} ms", wait.count() / 1000), wait);
    }
    case SubmitStatus::draining: throw BusyError("the model takes no more requests", {});
  }
  fail(ErrorKind::internal, "a request was refused for an unknown reason");
}

std::string failure_text(FinishReason reason, const std::string& error) {
  switch (reason) {
    case FinishReason::stop:
    case FinishReason::length:
    case FinishReason::context: return {};
    case FinishReason::cancelled: return error.empty() ? "it was cancelled" : error;
    case FinishReason::timeout: return "it took longer than its time limit";
    case FinishReason::failed: return error.empty() ? "the model could not compute an answer" : error;
    case FinishReason::no_token: return "no token may come: mask, bias and filters leave none";
  }
  return "it ended for an unknown reason";
}

void require_finished(FinishReason reason, const std::string& error) {
  const std::string text = failure_text(reason, error);
  if (text.empty()) return;
  switch (reason) {
    case FinishReason::cancelled:
    case FinishReason::timeout: fail(ErrorKind::cancelled, "{}", text);
    case FinishReason::no_token: fail(ErrorKind::bad_input, "{}", text);
    default: fail(ErrorKind::bad_file, "{}", text);
  }
}

}  // namespace quarrel
