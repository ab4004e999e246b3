// The oracle of every answer: one sequence on an executor, token by token, with no engine, scheduler or cache between.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "support/sequences.h"

namespace quarrel::test {

struct LoneAnswer {
  std::vector<TokenId> tokens = {};
  std::vector<float> logprobs = {};
};

// What the model says to the prompt, in exactly so many tokens. Nobody else may use the executor's blocks meanwhile.
template <typename Executor>
LoneAnswer answer_alone(Executor& executor, std::span<const TokenId> prompt, const SamplingParams& sampling,
                        std::size_t tokens) {
  LoneAnswer answer;
  Sequences sequences(executor);
  TestSequence sequence = sequences.make();
  while (answer.tokens.size() < tokens) {
    const bool first = answer.tokens.empty();
    const auto feed = first ? prompt : std::span<const TokenId>(&answer.tokens.back(), 1);
    const Want want{.index = static_cast<std::int32_t>(feed.size()) - 1, .sampling = &sampling};
    const SampleResult sample = sequences
                                    .run_chunked({.sequence = &sequence,
                                                  .tokens = feed,
                                                  .row_class = first ? RowClass::prompt : RowClass::generated,
                                                  .wants = {&want, 1}})
                                    .back();
    if (sample.outcome != SampleOutcome::token) fail(ErrorKind::bad_file, "the model gave no token a probability");
    answer.tokens.push_back(sample.id);
    answer.logprobs.push_back(sample.logprob);
  }
  return answer;
}

}  // namespace quarrel::test
