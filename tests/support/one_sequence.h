// The oracle of every answer: one sequence on an executor, token by token, with no engine, scheduler or cache between.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "engine/executor.h"
#include "engine/token_counts.h"

namespace quarrel::test {

struct LoneAnswer {
  std::vector<TokenId> tokens = {};
  std::vector<float> logprobs = {};
};

// What the model says to the prompt, in exactly so many tokens. The executor's sequences must be free, and are again.
inline LoneAnswer answer_alone(Executor& executor, std::span<const TokenId> prompt, const SamplingParams& sampling,
                               std::size_t tokens) {
  LoneAnswer answer;
  std::vector<TokenId> text(prompt.begin(), prompt.end());
  SampleRequest request{.params = sampling};
  std::vector<TokenCount> seen;
  Sequence sequence = executor.make_sequence();
  while (answer.tokens.size() < tokens) {
    if (has_penalties(sampling)) {
      seen = count_seen(text, sampling.penalty_window);
      request.seen = seen;
    }
    request.draw = answer.tokens.size();
    const bool first = answer.tokens.empty();
    const auto feed = first ? prompt : std::span<const TokenId>(&text.back(), 1);
    const Want want{.index = static_cast<std::int32_t>(feed.size()) - 1, .sample = &request};
    const SampleResult sample = executor
                                    .run_chunked({.sequence = &sequence,
                                                  .tokens = feed,
                                                  .row_class = first ? RowClass::prompt : RowClass::generated,
                                                  .wants = {&want, 1}})
                                    .back();
    if (sample.id < 0) fail(ErrorKind::bad_file, "the model gave no token a probability");
    request.mirostat_mu = sample.mirostat_mu;
    text.push_back(sample.id);
    answer.tokens.push_back(sample.id);
    answer.logprobs.push_back(sample.logprob);
  }
  executor.truncate(sequence, 0);
  return answer;
}

}  // namespace quarrel::test
