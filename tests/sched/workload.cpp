#include "sched/workload.h"

#include <algorithm>

#include "base/as_size.h"

namespace quarrel::sim {

std::uint64_t Random::next() noexcept {
  state_ += 0x9E3779B97F4A7C15U;
  std::uint64_t value = state_;
  value = (value ^ (value >> 30U)) * 0xBF58476D1CE4E5B9U;
  value = (value ^ (value >> 27U)) * 0x94D049BB133111EBU;
  return value ^ (value >> 31U);
}

std::int32_t Random::below(std::int32_t bound) noexcept {
  return static_cast<std::int32_t>(next() % static_cast<std::uint64_t>(std::max(1, bound)));
}

std::uint64_t first_hash(std::uint64_t salt) noexcept { return Random(salt ^ 0x5EEDU).next(); }

std::uint64_t extend_hash(std::uint64_t before, TokenId token, bool generated) noexcept {
  return Random(before ^ ((static_cast<std::uint64_t>(token) << 1U) + (generated ? 1U : 0U))).next();
}

TokenId sample(std::uint64_t hash, std::int32_t branch, std::int32_t vocabulary) noexcept {
  return Random(hash + static_cast<std::uint64_t>(branch) * 7919U).below(vocabulary);
}

void Text::append(TokenId token) {
  const std::uint64_t before = hashes.empty() ? first_hash(salt) : hashes.back();
  hashes.push_back(extend_hash(before, token, length() >= prompt_end));
  tokens.push_back(token);
}

void Text::drop(std::int32_t keep, std::int32_t dropped) {
  Text left{.salt = salt};
  left.prompt_end = std::min(prompt_end, keep) + std::max(0, prompt_end - keep - dropped);
  for (std::int32_t i = 0; i < length(); ++i) {
    if (i < keep || i >= keep + dropped) left.append(tokens[as_size(i)]);
  }
  *this = left;
}

Text make_text(const SchedRequest& request) {
  Text text{.salt = request.salt,
            .prompt_end = request.generated ? 0 : static_cast<std::int32_t>(request.prompt.size())};
  for (const TokenId token : request.prompt) text.append(token);
  return text;
}

Answer expected_answer(const SchedRequest& request, std::int32_t branch, std::int32_t longest,
                       std::int32_t vocabulary) {
  Answer answer;
  if (request.max_tokens == 0) return answer;
  Text text = make_text(request);
  const std::int32_t most = request.max_tokens > 0 ? request.max_tokens : longest - text.length();
  const std::int32_t keep = std::min({request.keep, text.length(), longest / 2});
  while (true) {
    const TokenId token = sample(text.hashes.back(), branch, vocabulary);
    text.append(token);
    answer.tokens.push_back(token);
    if (std::find(request.stop_tokens.begin(), request.stop_tokens.end(), token) != request.stop_tokens.end()) {
      answer.reason = FinishReason::stop;
      return answer;
    }
    if (static_cast<std::int32_t>(answer.tokens.size()) >= most) {
      if (request.max_tokens < 0) answer.reason = FinishReason::context;
      return answer;
    }
    if (text.length() < longest) continue;
    if (request.overflow != Overflow::shift) {
      answer.reason = FinishReason::context;
      return answer;
    }
    const std::int32_t dropped = (text.length() - keep) / 2;
    if (dropped < 1) {
      answer.reason = FinishReason::context;
      return answer;
    }
    answer.shifts.push_back(dropped);
    text.drop(keep, dropped);
  }
}

Workload::Workload(const WorkloadConfig& config, std::uint64_t seed) : config_(config), random_(seed) {
  for (std::int32_t i = 0; i < config_.shared_prompts; ++i) {
    shared_.push_back(random_tokens(random_.between(1, config_.longest_prompt * 2 / 3)));
  }
}

std::vector<TokenId> Workload::random_tokens(std::int32_t count) {
  std::vector<TokenId> tokens(as_size(count));
  for (TokenId& token : tokens) token = random_.below(config_.vocabulary);
  return tokens;
}

void Workload::remember(std::span<const TokenId> prompt, std::span<const TokenId> answer) {
  std::vector<TokenId> whole(prompt.begin(), prompt.end());
  whole.insert(whole.end(), answer.begin(), answer.end());
  if (past_.size() < 8) {
    past_.push_back(std::move(whole));
  } else {
    past_[oldest_++ % 8] = std::move(whole);
  }
}

void Workload::gather() { gathered_ = random_tokens(random_.between(1, config_.longest_prompt)); }

SchedRequest Workload::next(std::int64_t now_us, std::int32_t longest) {
  SchedRequest request;
  const std::int32_t most = std::min(config_.longest_prompt, longest - 1);
  if (!gathered_.empty()) {
    request.prompt = gathered_;
    if (random_.chance(300))
      request.prompt.resize(as_size(random_.between(1, static_cast<std::int32_t>(gathered_.size()))));
  } else if (!past_.empty() && random_.chance(250)) {
    request.prompt = past_[as_size(random_.below(static_cast<std::int32_t>(past_.size())))];
  } else if (random_.chance(700)) {
    request.prompt = shared_[as_size(random_.below(config_.shared_prompts))];
  }
  if (request.prompt.size() > as_size(most)) request.prompt.resize(as_size(most));
  const std::int32_t room = most - static_cast<std::int32_t>(request.prompt.size());
  const std::vector<TokenId> rest = random_tokens(random_.below(std::min(room, config_.longest_prompt / 2) + 1));
  request.prompt.insert(request.prompt.end(), rest.begin(), rest.end());
  if (request.prompt.empty()) request.prompt.push_back(random_.below(config_.vocabulary));

  const std::int32_t special = config_.special_per_mille;
  request.max_tokens = random_.chance(50) ? -1 : random_.below(config_.longest_answer + 1);
  for (std::int32_t i = random_.below(3); i > 0; --i) request.stop_tokens.push_back(random_.below(config_.vocabulary));
  request.branches = random_.chance(special) ? random_.between(1, config_.branches) : 1;
  request.priority = static_cast<Priority>(random_.below(3));
  request.key = static_cast<std::uint64_t>(random_.below(3));
  request.salt = random_.chance(300) ? 1 : 0;
  if (random_.chance(special)) request.deadline_us = now_us + random_.below(400'000);
  if (random_.chance(special)) request.pinned = random_.below(config_.longest_prompt);
  if (random_.chance(special)) {
    request.overflow = Overflow::shift;
    request.keep = random_.below(longest);
    request.max_tokens = random_.between(1, 2 * longest);
  }
  if (random_.chance(special)) request.prompt_outputs = PromptOutputs::scores;
  request.use_cache = !random_.chance(special / 2);
  request.tell_reading = request.prompt.size() % 2 == 0;
  request.stepwise = random_.chance(special);
  request.generated = random_.chance(special / 2);
  if (config_.whole_texts || random_.chance(config_.vectors_per_mille)) {
    request.max_tokens = 0;
    request.branches = 1;
    request.pooled = random_.chance(600);
    request.prompt_outputs = request.pooled ? PromptOutputs::none : PromptOutputs::vectors;
  }
  return request;
}

}  // namespace quarrel::sim
