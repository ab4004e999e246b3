#include "session/best_of.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/as_size.h"

namespace quarrel {
namespace {

// The lower, the better.
int rank_of(FinishReason reason) noexcept {
  switch (reason) {
    case FinishReason::stop:
    case FinishReason::length:
    case FinishReason::context: return 0;
    case FinishReason::cancelled:
    case FinishReason::timeout: return 1;
    case FinishReason::failed:
    case FinishReason::no_token: break;
  }
  return 2;
}

}  // namespace

BestOf::BestOf(std::int32_t branches) : tallies_(as_size(branches)), open_(branches) {}

bool BestOf::take(const TokenEvent& event) {
  Tally& tally = tallies_.at(as_size(event.branch));
  if (!tally.open) return false;
  if (event.kind == TokenEvent::Kind::token) {
    tally.logprobs += static_cast<double>(event.sample.logprob);
    ++tally.tokens;
  } else if (event.kind == TokenEvent::Kind::finished) {
    end(event.branch, event.reason);
  }
  return true;
}

void BestOf::end(std::int32_t branch, FinishReason reason) {
  Tally& tally = tallies_.at(as_size(branch));
  if (!tally.open) return;
  tally.open = false;
  tally.reason = reason;
  --open_;
}

double BestOf::mean_logprob(std::int32_t branch) const {
  const Tally& tally = tallies_.at(as_size(branch));
  constexpr double kLeast = -std::numeric_limits<double>::infinity();
  if (tally.tokens == 0 || std::isnan(tally.logprobs)) return kLeast;
  return tally.logprobs / static_cast<double>(tally.tokens);
}

std::vector<std::int32_t> BestOf::best(std::int32_t count) const {
  std::vector<std::int32_t> order(tallies_.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](std::int32_t a, std::int32_t b) {
    const int rank_a = rank_of(reason(a));
    const int rank_b = rank_of(reason(b));
    return rank_a != rank_b ? rank_a < rank_b : mean_logprob(a) > mean_logprob(b);
  });
  order.resize(std::min(order.size(), as_size(count)));
  return order;
}

}  // namespace quarrel
