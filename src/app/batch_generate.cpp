#include "app/batch_generate.h"

#include <algorithm>
#include <map>

#include "base/clock.h"
#include "base/error.h"

namespace quarrel {
namespace {

// One reply on its way.
struct Running {
  Sequence sequence;
  SampleRequest request;
  std::vector<TokenId> text;  // prompt and reply
  std::vector<TokenCount> seen;
  BatchReply reply;
  bool finished = false;
};

bool has_penalties(const SamplingParams& params) {
  return params.repeat_penalty != 1.0f || params.presence_penalty != 0.0f || params.frequency_penalty != 0.0f;
}

// What the next draw needs to know: its number, and how often each token stands among the last ones.
void prepare_draw(Running& running) {
  running.request.draw = running.reply.tokens.size();
  if (!has_penalties(running.request.params)) return;
  std::span<const TokenId> tokens = running.text;
  const std::int32_t window = running.request.params.penalty_window;
  if (window >= 0) tokens = tokens.last(std::min(tokens.size(), static_cast<std::size_t>(window)));
  std::map<TokenId, std::int32_t> counts;
  for (const TokenId id : tokens) ++counts[id];
  running.seen.clear();
  for (const auto& [id, count] : counts) running.seen.push_back({.id = id, .count = count});
  running.request.seen = running.seen;
}

void take(Running& running, const SampleResult& sample, const BatchOptions& options, std::int32_t context) {
  if (sample.id < 0) fail(ErrorKind::bad_file, "the model gave no token a probability; its file may be damaged");
  running.request.mirostat_mu = sample.mirostat_mu;
  running.text.push_back(sample.id);
  running.reply.tokens.push_back(sample.id);
  running.reply.logprobs.push_back(sample.logprob);
  running.finished = true;
  if (std::ranges::binary_search(options.stop_tokens, sample.id)) {
    running.reply.reason = FinishReason::stop;
  } else if (std::ssize(running.reply.tokens) >= options.max_tokens) {
    running.reply.reason = FinishReason::length;
  } else if (running.sequence.length() >= context) {
    running.reply.reason = FinishReason::context;
  } else {
    running.finished = false;
  }
}

// One step with the last token of every reply that goes on; false when none does.
bool step(Executor& executor, std::vector<Running>& all, const BatchOptions& options) {
  std::vector<Running*> active;
  for (Running& running : all) {
    if (!running.finished) active.push_back(&running);
  }
  if (active.empty()) return false;
  std::vector<Want> wants;
  wants.reserve(active.size());
  for (Running* running : active) {
    prepare_draw(*running);
    wants.push_back({.index = 0, .sample = &running->request});
  }
  std::vector<Feed> feeds;
  feeds.reserve(active.size());
  for (std::size_t i = 0; i < active.size(); ++i) {
    feeds.push_back({.sequence = &active[i]->sequence,
                     .tokens = {&active[i]->text.back(), 1},
                     .row_class = RowClass::generated,
                     .wants = {&wants[i], 1}});
  }
  const std::vector<SampleResult> samples = executor.run(feeds);
  for (std::size_t i = 0; i < active.size(); ++i) take(*active[i], samples[i], options, executor.context());
  return true;
}

}  // namespace

BatchResult generate_together(Executor& executor, std::span<const TokenId> prompt, const BatchOptions& options) {
  if (prompt.empty()) fail(ErrorKind::bad_input, "the prompt is empty");
  check(options.sampling);
  std::vector<Running> all(static_cast<std::size_t>(options.sequences));
  BatchResult result;
  const auto start = Clock::now();
  for (std::size_t i = 0; i < all.size(); ++i) {
    Running& running = all[i];
    running.sequence = executor.make_sequence();
    running.request.params = options.sampling;
    running.request.params.seed += i;
    running.text.assign(prompt.begin(), prompt.end());
    prepare_draw(running);
    const Want want{.index = static_cast<std::int32_t>(prompt.size()) - 1, .sample = &running.request};
    const auto samples = executor.run_chunked(
        {.sequence = &running.sequence, .tokens = prompt, .row_class = RowClass::prompt, .wants = {&want, 1}});
    take(running, samples.back(), options, executor.context());
    if (options.between_steps) options.between_steps();
  }
  result.prompt_seconds = seconds_since(start);
  const auto generating = Clock::now();
  while (step(executor, all, options)) {
    ++result.generated_steps;
    if (options.between_steps) options.between_steps();
  }
  result.generate_seconds = seconds_since(generating);
  for (Running& running : all) {
    executor.truncate(running.sequence, 0);
    result.replies.push_back(std::move(running.reply));
  }
  return result;
}

}  // namespace quarrel
