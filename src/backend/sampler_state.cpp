#include "backend/sampler_state.h"

#include <algorithm>
#include <bit>

#include "base/as_size.h"

namespace quarrel {

void TokenCounts::clear() noexcept {
  counts_.clear();
  std::ranges::fill(index_, -1);
}

void TokenCounts::reserve(std::size_t more) {
  const std::size_t needed = counts_.size() + more;
  if (counts_.capacity() < needed) counts_.reserve(std::max(needed, 2 * counts_.capacity()));
  if (index_.size() >= 2 * needed) return;
  std::vector<std::int32_t> index(std::bit_ceil(std::max<std::size_t>(16, 4 * needed)), -1);
  index_.swap(index);
  for (std::size_t place = 0; place < counts_.size(); ++place) {
    index_[find(counts_[place].id)] = static_cast<std::int32_t>(place);
  }
}

std::size_t TokenCounts::home(TokenId id) const noexcept {
  return (static_cast<std::uint32_t>(id) * 0x9E3779B9u) & (index_.size() - 1);
}

std::size_t TokenCounts::find(TokenId id) const noexcept {
  std::size_t slot = home(id);
  while (index_[slot] >= 0 && counts_[as_size(index_[slot])].id != id) slot = (slot + 1) & (index_.size() - 1);
  return slot;
}

void TokenCounts::add(TokenId id, std::int32_t recent, std::int32_t answered) noexcept {
  const std::size_t slot = find(id);
  if (index_[slot] < 0) {
    index_[slot] = static_cast<std::int32_t>(counts_.size());
    counts_.push_back({.id = id});
  }
  TokenCount& count = counts_[as_size(index_[slot])];
  count.recent += recent;
  count.answered += answered;
  if (count.recent == 0 && count.answered == 0) erase(slot);
}

// The last of the list takes its place there; in the index those behind it move up, as far as that brings them home.
void TokenCounts::erase(std::size_t slot) noexcept {
  const std::size_t place = as_size(index_[slot]);
  if (place + 1 < counts_.size()) {
    index_[find(counts_.back().id)] = static_cast<std::int32_t>(place);
    counts_[place] = counts_.back();
  }
  counts_.pop_back();
  const std::size_t mask = index_.size() - 1;
  for (std::size_t next = (slot + 1) & mask; index_[next] >= 0; next = (next + 1) & mask) {
    const std::size_t wanted = home(counts_[as_size(index_[next])].id);
    if (((next - wanted) & mask) < ((next - slot) & mask)) continue;
    index_[slot] = index_[next];
    slot = next;
  }
  index_[slot] = -1;
}

void SamplerState::start(const LaneStart& start) {
  request_.params = *start.sampling;
  request_.draw = start.draw;
  request_.mirostat_mu = start.mirostat_mu;
  std::ranges::stable_sort(request_.params.logit_bias, {}, &std::pair<TokenId, float>::first);
  const SamplingParams& params = request_.params;
  const bool subtracts = params.presence_penalty != 0.0f || params.frequency_penalty != 0.0f;
  const bool recent = params.penalty_scope == PenaltyScope::recent;
  counts_recent_ = (params.repeat_penalty != 1.0f || (subtracts && recent)) && params.penalty_window != 0;
  counts_answered_ = subtracts && !recent;
  counts_.clear();
  window_.clear();
  oldest_ = 0;
  if (!counts_recent_ && !counts_answered_) return;
  const std::size_t prompt = as_size(start.prompt_tokens);
  const std::size_t seen = params.penalty_window < 0 ? start.text.size() : as_size(params.penalty_window);
  std::size_t first = counts_answered_ ? prompt : start.text.size();
  if (counts_recent_) first = std::min(first, start.text.size() - std::min(start.text.size(), seen));
  if (counts_recent_ && params.penalty_window > 0) window_.reserve(std::min(seen, start.text.size() - first));
  for (std::size_t i = first; i < start.text.size(); ++i) {
    counts_.reserve(1);
    count(start.text[i], i >= prompt);
  }
}

bool SamplerState::changes_logits() const noexcept {
  return !request_.params.logit_bias.empty() || counts_recent_ || counts_answered_;
}

// An unseen token takes the place of the oldest in a full window.
void SamplerState::copy_counts(std::int32_t unseen, std::vector<TokenCount>& counts) const {
  const std::span<const TokenCount> known = counts_.list();
  counts.assign(known.begin(), known.end());
  const std::int32_t window = request_.params.penalty_window;
  if (!counts_recent_ || window < 0) return;
  const std::size_t room = as_size(window) - window_.size();
  const std::size_t leaving = std::min(window_.size(), as_size(unseen) - std::min(room, as_size(unseen)));
  for (std::size_t i = 0; i < leaving; ++i) {
    const TokenId id = window_[(oldest_ + i) % window_.size()];
    --std::ranges::find(counts, id, &TokenCount::id)->recent;
  }
}

SamplerState::Draw SamplerState::draw(std::size_t vocabulary, std::uint64_t ahead) const noexcept {
  const SamplingParams& params = request_.params;
  return {.random = uniform(params.seed, request_.draw + ahead),
          .temperature = static_cast<double>(params.temperature),
          .mirostat = params.mirostat,
          .top_k = as_size(params.top_k) < vocabulary ? params.top_k : 0,
          .typical_p = params.typical_p,
          .top_p = params.top_p,
          .min_p = params.min_p};
}

void SamplerState::make_room() {
  if (counts_recent_ || counts_answered_) counts_.reserve(1);
  if (counts_recent_ && request_.params.penalty_window > 0 && window_.size() == window_.capacity() &&
      window_.size() < as_size(request_.params.penalty_window)) {
    window_.reserve(2 * window_.size() + 1);
  }
}

const SampleRequest& SamplerState::request(std::span<const std::uint64_t> mask, std::int32_t top) {
  make_room();
  request_.seen = counts_.list();
  request_.mask = mask;
  request_.top = top;
  return request_;
}

void SamplerState::accept(const SampleResult& result) noexcept {
  if (result.outcome != SampleOutcome::token) return;
  request_.mirostat_mu = result.mirostat_mu;
  ++request_.draw;
  if (counts_recent_ || counts_answered_) count(result.id, true);
}

void SamplerState::count(TokenId id, bool in_answer) noexcept {
  counts_.add(id, counts_recent_ ? 1 : 0, counts_answered_ && in_answer ? 1 : 0);
  const std::int32_t window = request_.params.penalty_window;
  if (!counts_recent_ || window < 0) return;
  if (window_.size() < as_size(window)) {
    window_.push_back(id);
    return;
  }
  counts_.add(window_[oldest_], -1, 0);
  window_[oldest_] = id;
  oldest_ = (oldest_ + 1) % window_.size();
}

}  // namespace quarrel
