#include "app/chat_session.h"

#include <algorithm>

namespace quarrel {

ChatParameters ChatSession::parameters(const GivenParameters& given) const {
  ChatParameters result;
  result.system = system_;
  apply_recommended(result, facts_.recommended);
  apply_given(result, given);
  return result;
}

void ChatSession::check(const ChatParameters& parameters, std::string_view bias_name) const {
  const std::int32_t vocabulary = facts_.vocabulary;
  for (const auto& [token, bias] : parameters.sampling.logit_bias) {
    if (vocabulary == 0 || token < vocabulary) continue;
    fail(ErrorKind::usage, "{}: token {} is not in the model's vocabulary of {} tokens", bias_name, token, vocabulary);
  }
}

std::optional<std::size_t> ChatSession::first_fitting(const Conversation& conversation,
                                                      const ChatParameters& parameters, std::size_t first) {
  const auto context = static_cast<std::size_t>(facts_.context);
  std::size_t answer = context / 4;
  if (parameters.max_tokens >= 0) answer = std::min(answer, static_cast<std::size_t>(parameters.max_tokens));
  const ContextLimits limits{
      .comfortable = context / 2, .roomy = context - std::max<std::size_t>(answer, 1), .most = context - 1};
  return first_sent(conversation, first, limits, [&](std::size_t from) { return prompt_tokens(conversation, from); });
}

}  // namespace quarrel
