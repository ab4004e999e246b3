#include "server/watch/figures.h"

#include <algorithm>
#include <utility>

namespace quarrel {
namespace {

// What is counted of a model starts again from 0 when it is loaded again.
std::uint64_t grown(std::uint64_t before, std::uint64_t after) noexcept {
  return after >= before ? after - before : after;
}

std::uint64_t at_most(const HistogramReading& histogram, double bound) {
  const auto found = histogram.at_most.find(bound);
  return found == histogram.at_most.end() ? 0 : found->second;
}

double percentile(const HistogramReading& before, const HistogramReading& after, double share) {
  const double wanted = static_cast<double>(after.count - before.count) * share;
  double lower = 0.0, below = 0.0;
  for (const auto& [bound, count] : after.at_most) {
    const auto up_to = static_cast<double>(count - at_most(before, bound));
    if (up_to >= wanted && up_to > below) return lower + (bound - lower) * (wanted - below) / (up_to - below);
    lower = bound;
    below = up_to;
  }
  return lower;
}

Percentiles percentiles_between(const HistogramReading& before, const HistogramReading& after) {
  if (after.count <= before.count) return {};
  return {.count = after.count - before.count,
          .p50 = percentile(before, after, 0.5),
          .p90 = percentile(before, after, 0.9),
          .p99 = percentile(before, after, 0.99)};
}

// Of the prefix cache, by model; one that is exchanged is there twice.
using CacheTokens = std::map<std::string, std::pair<std::uint64_t, std::uint64_t>>;  // hits and misses

CacheTokens cache_tokens(const MetricsReading& reading) {
  CacheTokens tokens;
  for (const ModelFigures& model : reading.models) {
    auto& [hits, misses] = tokens[model.name];
    hits += model.cache_hit_tokens;
    misses += model.cache_miss_tokens;
  }
  return tokens;
}

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

Json percentiles_json(const Percentiles& of) {
  return {{"count", of.count}, {"p50", or_null(of.p50)}, {"p90", or_null(of.p90)}, {"p99", or_null(of.p99)}};
}

Json models_json(const MetricsReading& reading, const std::function<bool(const std::string&)>& may_use) {
  Json models = Json::array();
  for (const ModelFigures& model : reading.models) {
    if (!may_use(model.name)) continue;
    models.push_back({{"name", model.name},
                      {"running", model.running},
                      {"waiting", model.waiting},
                      {"kv_usage", or_null(model.kv_usage)},
                      {"memory_bytes", model.bytes}});
  }
  return models;
}

}  // namespace

MetricsChange change_between(const MetricsReading& before, const MetricsReading& after) {
  MetricsChange change{.seconds = std::chrono::duration<double>(after.at - before.at).count(),
                       .tokens = grown(before.tokens, after.tokens),
                       .first_token = percentiles_between(before.first_token, after.first_token),
                       .token_gap = percentiles_between(before.token_gap, after.token_gap)};
  CacheTokens cached_before = cache_tokens(before);
  for (const auto& [name, now] : cache_tokens(after)) {
    const auto& [hits, misses] = cached_before[name];
    change.cache_hit_tokens += grown(hits, now.first);
    change.cache_miss_tokens += grown(misses, now.second);
  }
  return change;
}

Json metrics_payload(const MetricsNews& news, const std::function<bool(const std::string& model)>& may_use) {
  const MetricsReading& now = news.now;
  std::size_t running = 0, waiting = 0;
  std::uint64_t bytes = 0;
  std::optional<double> fullest;
  for (const ModelFigures& model : now.models) {
    running += model.running;
    waiting += model.waiting;
    bytes += model.bytes;
    if (model.kv_usage) fullest = std::max(*model.kv_usage, fullest.value_or(0.0));
  }
  std::optional<double> seconds, rate, hits;
  MetricsChange change;
  if (news.change) {
    change = *news.change;
    seconds = change.seconds;
    if (change.seconds > 0.0) rate = static_cast<double>(change.tokens) / change.seconds;
    const std::uint64_t read = change.cache_hit_tokens + change.cache_miss_tokens;
    if (read > 0) hits = static_cast<double>(change.cache_hit_tokens) / static_cast<double>(read);
  }
  return {{"running", running},
          {"waiting", waiting},
          {"requests_total", now.requests},
          {"tokens_total", now.tokens},
          {"errors_total", now.errors},
          {"kv_usage", or_null(fullest)},
          {"memory_bytes", bytes},
          {"process_memory_bytes", or_null(now.process_bytes)},
          {"models", models_json(now, may_use)},
          {"interval", or_null(seconds)},
          {"tokens_per_sec", or_null(rate)},
          {"time_to_first_token", percentiles_json(change.first_token)},
          {"token_gap", percentiles_json(change.token_gap)},
          {"cache_hits", or_null(hits)}};
}

std::optional<MetricsFeed::Due> MetricsFeed::look(Clock::time_point now, const Listeners& listeners) {
  if (listeners.all == 0) {
    before_.reset();
    return std::nullopt;
  }
  const bool to_all = !before_ || now - before_->at >= every_;
  if (!to_all && listeners.newcomers == 0) return std::nullopt;
  Due due{.to_all = to_all, .news = {.now = read_()}};
  due.news.now.at = now;
  if (!to_all) return due;  // those who have just come hear of no time that they were not there
  if (before_) due.news.change = change_between(*before_, due.news.now);
  before_ = due.news.now;
  return due;
}

}  // namespace quarrel
