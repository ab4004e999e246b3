#include "engine/generate.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "engine/token_counts.h"

namespace quarrel {

GenerateResult generate(Executor& executor, Sequence& sequence, std::span<const TokenId> history,
                        std::span<const TokenId> prompt, const GenerateOptions& options, const TokenSink& sink) {
  if (prompt.empty()) fail(ErrorKind::bad_input, "the prompt is empty");
  check(options.sampling);
  GenerateResult result;
  std::vector<TokenId> text(history.begin(), history.end());
  text.insert(text.end(), prompt.begin(), prompt.end());

  SampleRequest request{.params = options.sampling};
  const bool penalties = has_penalties(options.sampling);
  std::vector<TokenCount> seen;
  const auto next = [&](std::span<const TokenId> tokens, RowClass row_class) {
    if (penalties) {
      seen = count_seen(text, options.sampling.penalty_window);
      request.seen = seen;
    }
    request.draw = result.tokens.size();
    const Want want{.index = static_cast<std::int32_t>(tokens.size()) - 1, .sample = &request};
    const SampleResult sample =
        executor.run_chunked({.sequence = &sequence, .tokens = tokens, .row_class = row_class, .wants = {&want, 1}})
            .back();
    if (sample.id < 0) fail(ErrorKind::bad_file, "the model gave no token a probability; its file may be damaged");
    request.mirostat_mu = sample.mirostat_mu;
    return sample;
  };

  if (options.max_tokens == 0) {
    result.reason = FinishReason::length;
    return result;
  }
  const auto start = Clock::now();
  SampleResult sample = next(prompt, RowClass::prompt);
  executor.mark(sequence);  // the next turn often shares the prompt, but not how the answer is written into it
  result.prompt_seconds = seconds_since(start);
  const auto generating = Clock::now();
  for (;;) {
    result.tokens.push_back(sample.id);
    text.push_back(sample.id);
    const bool wanted = sink(sample);
    if (!wanted || std::ranges::binary_search(options.stop_tokens, sample.id)) {
      result.reason = FinishReason::stop;
      break;
    }
    if (options.max_tokens >= 0 && std::ssize(result.tokens) >= options.max_tokens) {
      result.reason = FinishReason::length;
      break;
    }
    if (options.cancel != nullptr && options.cancel->load(std::memory_order_relaxed)) {
      result.reason = FinishReason::cancelled;
      break;
    }
    if (sequence.length() >= executor.context()) {
      result.reason = FinishReason::context;
      break;
    }
    const TokenId last = sample.id;
    sample = next({&last, 1}, RowClass::generated);
  }
  result.generate_seconds = seconds_since(generating);
  return result;
}

}  // namespace quarrel
