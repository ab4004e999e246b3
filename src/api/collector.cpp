#include "api/collector.h"

#include <algorithm>

#include "api/conversions.h"
#include "base/as_size.h"

namespace quarrel::api {
namespace {

std::vector<TokenLogprob> top_of(const std::vector<quarrel::TokenLogprob>& top) {
  std::vector<TokenLogprob> result;
  result.reserve(top.size());
  for (const quarrel::TokenLogprob& likely : top) result.push_back({.token = likely.id, .logprob = likely.logprob});
  return result;
}

std::vector<std::vector<TokenLogprob>> tops_of(const std::vector<std::vector<quarrel::TokenLogprob>>& tops) {
  std::vector<std::vector<TokenLogprob>> result;
  result.reserve(tops.size());
  for (const auto& top : tops) result.push_back(top_of(top));
  return result;
}

Event::Kind kind_of(GenerationEvent::Kind kind) noexcept {
  switch (kind) {
    case GenerationEvent::Kind::started:
    case GenerationEvent::Kind::waiting:
    case GenerationEvent::Kind::prompt_read:
      return Event::Kind::started;  // the other two are asked for by the server alone
    case GenerationEvent::Kind::prompt_score: return Event::Kind::prompt_logprob;
    case GenerationEvent::Kind::piece: return Event::Kind::piece;
    case GenerationEvent::Kind::shifted: return Event::Kind::shifted;
    case GenerationEvent::Kind::finished: return Event::Kind::finished;
  }
  return Event::Kind::piece;
}

}  // namespace

Collector::Collector(std::int32_t answers) : open_(as_size(std::max(answers, 0))) {
  collected_.answers.resize(open_);
  for (std::size_t i = 0; i < open_; ++i) ended_.emplace_back(false);
}

std::optional<Event> Collector::take(GenerationEvent& event) {
  const bool of_answer = event.kind != GenerationEvent::Kind::started && as_size(event.answer) < ended_.size();
  const bool ended = of_answer && ended_[as_size(event.answer)];
  if (event.kind == GenerationEvent::Kind::finished) {
    --open_;
    if (ended) {
      // However far the model had come meanwhile.
      event.reason = quarrel::FinishReason::cancelled;
      event.error.clear();
    }
  } else if (ended) {
    return std::nullopt;
  }
  Event result{.kind = kind_of(event.kind),
               .answer = as_size(event.answer),
               .text = event.text,
               .token = event.token,
               .logprob = event.logprob,
               .top = top_of(event.top),
               .cached_tokens = as_size(std::max(event.cached, 0)),
               .dropped_tokens = as_size(std::max(event.dropped, 0)),
               .reason = reason_of(event.reason),
               .error = event.error};
  collected_.add(event);
  return result;
}

void Collector::end(std::size_t answer) noexcept {
  if (answer < ended_.size()) ended_[answer] = true;
}

void Collector::end_all() noexcept {
  for (std::atomic<bool>& ended : ended_) ended = true;
}

std::vector<GenerateResult> Collector::results(const Usage& usage, std::uint64_t seed) const {
  std::vector<GenerateResult> results;
  results.reserve(collected_.answers.size());
  for (const Answer& answer : collected_.answers) {
    results.push_back({.text = answer.text,
                       .tokens = answer.tokens,
                       .logprobs = answer.logprobs,
                       .top = tops_of(answer.top),
                       .reason = reason_of(answer.reason),
                       .error = answer.error,
                       .prompt_tokens = usage.prompt_tokens,
                       .cached_tokens = usage.cached_tokens,
                       .seed = branch_seed(seed, answer.branch),
                       .queue_seconds = usage.queue_seconds,
                       .prompt_seconds = usage.prompt_seconds,
                       .generate_seconds = usage.generate_seconds});
  }
  if (results.empty()) return results;
  for (const PromptScore& score : collected_.prompt_scores) {
    results.front().prompt_logprobs.push_back({.token = score.token, .logprob = score.logprob});
    if (!score.top.empty()) results.front().prompt_top.push_back(top_of(score.top));
  }
  return results;
}

Piece piece_of(const Event& event) noexcept {
  return {.text = event.text, .token = event.token, .logprob = event.logprob, .top = event.top, .answer = event.answer};
}

}  // namespace quarrel::api
