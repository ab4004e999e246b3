#include "app/observation_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/progress_bar.h"

namespace quarrel {
namespace {

std::string expert_lines(const Observations& seen) {
  if (seen.experts.empty()) return {};
  std::uint64_t choices = 0;
  ExpertBalance worst;
  std::int32_t worst_layer = 0;
  for (const ExpertUse& use : seen.experts) {
    for (const std::uint64_t count : use.chosen) choices += count;
    const ExpertBalance balance = balance_of(use);
    if (balance.most >= worst.most) {
      worst = balance;
      worst_layer = use.layer;
    }
  }
  std::string text = fmt::format(
      "{:<22}{} choices in {} layers; least even is layer {}: {:.1f} % to one expert, {} of {} never chosen\n",
      "experts:", choices, seen.experts.size(), worst_layer, 100.0 * worst.most, worst.unused,
      seen.experts.front().chosen.size());
  if (seen.expert_cache_bytes > 0) text += fmt::format("{:<22}{}\n", "expert cache:", expert_cache_text(seen));
  return text;
}

}  // namespace

std::string expert_cache_text(const Observations& seen) {
  if (seen.expert_cache_bytes == 0) return {};
  return fmt::format("{} allowed, hit rate {:.1f} % ({} of {}), {} read", human_bytes(seen.expert_cache_bytes),
                     100.0 * seen.expert_hit_rate(), seen.expert_hits, seen.expert_hits + seen.expert_misses,
                     human_bytes(seen.expert_bytes_read));
}

std::string observation_text(const Observations& seen) {
  std::string text = expert_lines(seen);
  if (seen.state_bytes > 0)
    text += fmt::format("{:<22}{} a sequence\n", "recurrent state:", human_bytes(seen.state_bytes));
  if (seen.kv_saturated > 0) text += fmt::format("{:<22}{} values clamped to F16\n", "KV cache:", seen.kv_saturated);
  if (seen.weights_saturated > 0) {
    text += fmt::format("{:<22}{} values clamped to F16\n", "weights:", seen.weights_saturated);
  }
  if (seen.divergences > 0) {
    text += fmt::format("{:<22}{} steps, the last from layer {} on\n", "not finite:", seen.divergences,
                        seen.last_bad_layer);
  }
  double total = 0.0;
  for (const OpTime& op : seen.times) total += op.seconds;
  for (const OpTime& op : seen.times) {
    text += fmt::format("{:<22}{:.3f} s, {:.1f} %\n", fmt::format("{}:", op.name), op.seconds,
                        100.0 * op.seconds / std::max(total, 1e-12));
  }
  return text;
}

}  // namespace quarrel
