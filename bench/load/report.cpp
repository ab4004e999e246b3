#include "load/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace quarrel::load {
namespace {

constexpr double kMegabyte = 1e6;

std::string milliseconds(const Percentiles& p) {
  return fmt::format("{:.1f} / {:.1f} / {:.1f} ms", p.p50 * 1e3, p.p95 * 1e3, p.p99 * 1e3);
}

nlohmann::ordered_json json_of(const Percentiles& p) { return {{"p50", p.p50}, {"p95", p.p95}, {"p99", p.p99}}; }

// How many answers were between their first piece and their end at the same time.
std::size_t most_at_once(std::span<const Outcome> outcomes) {
  std::vector<std::pair<double, int>> changes;  // of those that end when others begin, the ends come first
  for (const Outcome& outcome : outcomes) {
    if (!outcome.whole || outcome.first == 0.0) continue;
    changes.emplace_back(outcome.begun + outcome.first, 1);
    changes.emplace_back(outcome.begun + outcome.total, -1);
  }
  std::ranges::sort(changes);
  std::ptrdiff_t now = 0, most = 0;
  for (const auto& change : changes) most = std::max(most, now += change.second);
  return static_cast<std::size_t>(most);
}

}  // namespace

// The nearest rank.
Percentiles percentiles(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  const auto at = [&](double share) {
    const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(values.size())));
    return values[std::clamp<std::size_t>(rank, 1, values.size()) - 1];
  };
  return {.p50 = at(0.50), .p95 = at(0.95), .p99 = at(0.99)};
}

Summary summarize(std::span<const Outcome> outcomes, double seconds) {
  Summary summary{.asked = outcomes.size(), .seconds = seconds};
  std::vector<double> firsts, gaps, totals;
  std::uint64_t prompt = 0;
  for (const Outcome& outcome : outcomes) {
    if (outcome.whole && outcome.error.empty()) {
      ++summary.answered;
      summary.tokens += outcome.tokens;
      prompt += outcome.prompt_tokens;
      firsts.push_back(outcome.first);
      totals.push_back(outcome.total);
      gaps.insert(gaps.end(), outcome.gaps.begin(), outcome.gaps.end());
      continue;
    }
    const bool refused = outcome.status == 429 || outcome.status == 503;
    summary.refused += refused ? 1u : 0u;
    summary.honest += refused && outcome.retry_after ? 1u : 0u;
    summary.failed += refused ? 0u : 1u;
    if (!refused && summary.first_error.empty()) {
      summary.first_error = fmt::format("status {}: {}", outcome.status, outcome.error.substr(0, 300));
    }
  }
  summary.streaming_at_once = most_at_once(outcomes);
  summary.first = percentiles(std::move(firsts));
  summary.gap = percentiles(std::move(gaps));
  summary.total = percentiles(std::move(totals));
  if (seconds > 0.0) summary.tokens_per_second = static_cast<double>(summary.tokens) / seconds;
  if (summary.answered > 0) summary.prompt_tokens = static_cast<double>(prompt) / static_cast<double>(summary.answered);
  return summary;
}

std::string text_of(const Summary& summary) {
  std::string text = fmt::format("requests     {} asked, {} answered, {} refused ({} with Retry-After), {} failed\n",
                                 summary.asked, summary.answered, summary.refused, summary.honest, summary.failed);
  if (!summary.first_error.empty()) text += fmt::format("first error  {}\n", summary.first_error);
  if (summary.compared)
    text += fmt::format("compared     {} answers differ from those given alone\n", summary.differing);
  text += fmt::format("tokens/s     {:.1f} in {:.1f} s, prompts of {:.0f} tokens\n", summary.tokens_per_second,
                      summary.seconds, summary.prompt_tokens);
  text += fmt::format("at once      {} streams at most\n", summary.streaming_at_once);
  text += fmt::format("first token  {} (p50 / p95 / p99)\n", milliseconds(summary.first));
  text += fmt::format("gap          {}\n", milliseconds(summary.gap));
  text += fmt::format("whole        {}\n", milliseconds(summary.total));
  if (summary.after.resident == 0) return text;
  text += fmt::format("memory       {:.0f} MB before, {:.0f} MB at most, {:.0f} MB after (anonymous {:.0f} MB)\n",
                      static_cast<double>(summary.before.resident) / kMegabyte,
                      static_cast<double>(summary.most_resident) / kMegabyte,
                      static_cast<double>(summary.after.resident) / kMegabyte,
                      static_cast<double>(summary.after.anonymous) / kMegabyte);
  double all = 0.0;
  const auto used = used_between(summary.before, summary.after);
  for (const auto& each : used) all += each.second;
  for (const auto& [name, seconds] : used) {
    text +=
        fmt::format("thread       {:<16} {:8.3f} s  {:5.2f} %\n", name, seconds, all > 0.0 ? seconds / all * 100 : 0.0);
  }
  return text;
}

nlohmann::ordered_json json_of(const Summary& summary) {
  return {{"asked", summary.asked},
          {"answered", summary.answered},
          {"refused", summary.refused},
          {"refused_with_retry_after", summary.honest},
          {"failed", summary.failed},
          {"first_error", summary.first_error},
          {"differing", summary.compared ? nlohmann::ordered_json(summary.differing) : nlohmann::ordered_json()},
          {"streaming_at_once", summary.streaming_at_once},
          {"seconds", summary.seconds},
          {"tokens", summary.tokens},
          {"tokens_per_second", summary.tokens_per_second},
          {"prompt_tokens", summary.prompt_tokens},
          {"first_token", json_of(summary.first)},
          {"gap", json_of(summary.gap)},
          {"whole", json_of(summary.total)},
          {"resident_before", summary.before.resident},
          {"resident_most", summary.most_resident},
          {"resident_after", summary.after.resident},
          {"threads", used_between(summary.before, summary.after)}};
}

}  // namespace quarrel::load
