#include "engine/finish_reason.h"

#include <utility>

namespace quarrel {

std::optional<FinishReason> finish_reason(EndReason reason, std::size_t tokens, std::int32_t max_tokens) noexcept {
  switch (reason) {
    case EndReason::stop: return FinishReason::stop;
    case EndReason::length:
      // The context ended it, if it was not the number of tokens.
      return max_tokens >= 0 && std::cmp_greater_equal(tokens, max_tokens) ? FinishReason::length
                                                                           : FinishReason::context;
    case EndReason::context: return FinishReason::context;
    case EndReason::cancelled: return FinishReason::cancelled;
    case EndReason::deadline: return FinishReason::timeout;
    case EndReason::failed: break;
  }
  return std::nullopt;
}

}  // namespace quarrel
