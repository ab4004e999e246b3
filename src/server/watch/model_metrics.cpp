#include "server/watch/model_metrics.h"

#include <fmt/format.h>

#include <numeric>
#include <optional>

#include "base/printable.h"
#include "server/watch/families.h"

namespace quarrel {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;
using Watched = ModelRegistry::Watched;
using Families = std::vector<MetricFamily>;

constexpr double kMicrosecond = 1e-6;
constexpr std::size_t kLatencyBuckets = 23;  // from 1 µs to 4 s
constexpr std::size_t kRowBuckets = 13;      // from 1 to 4096

LabelValues of_model(const Watched& model) { return {{"model", printable(model.name)}}; }

// Of every model one figure; those of which there is none have no member.
struct Figure {
  const char* name;
  const char* help;
  MetricType type;
  double (*value)(const Watched&);
};

double blocks_of(const Watched& model, std::int32_t GroupCounters::* count) {
  double sum = 0.0;
  for (const GroupCounters& group : model.counters.scheduler.groups) sum += group.*count;
  return sum;
}

// None: a recurrent model has no blocks.
std::optional<double> kv_usage(const Watched& model) {
  const double blocks = blocks_of(model, &GroupCounters::total);
  if (blocks <= 0.0) return std::nullopt;
  return blocks_of(model, &GroupCounters::used) / blocks;
}

constexpr Figure kFigures[] = {
    {"quarrel_model_memory_bytes", "Memory that a loaded model takes, its cache included", MetricType::Gauge,
     [](const Watched& m) { return static_cast<double>(m.bytes); }},
    {"quarrel_requests_running", "Answers that are being computed", MetricType::Gauge,
     [](const Watched& m) { return static_cast<double>(m.counters.scheduler.running); }},
    {"quarrel_requests_waiting", "Requests in the queue", MetricType::Gauge,
     [](const Watched& m) { return static_cast<double>(m.counters.scheduler.waiting); }},
    {"quarrel_waiting_tokens", "Tokens of the requests in the queue", MetricType::Gauge,
     [](const Watched& m) { return static_cast<double>(m.counters.scheduler.waiting_tokens); }},
    {"quarrel_preemptions_total", "Answers that lost their KV blocks to others and were computed again",
     MetricType::Counter, [](const Watched& m) { return static_cast<double>(m.counters.scheduler.preemptions); }},
    {"quarrel_prefix_cache_hit_tokens_total", "Tokens of prompts that the prefix cache had", MetricType::Counter,
     [](const Watched& m) { return static_cast<double>(m.counters.scheduler.cache_hit_tokens); }},
    {"quarrel_prefix_cache_miss_tokens_total", "Tokens of prompts that had to be computed", MetricType::Counter,
     [](const Watched& m) { return static_cast<double>(m.counters.scheduler.cache_miss_tokens); }},
    {"quarrel_steps_total", "Steps that the model has computed", MetricType::Counter,
     [](const Watched& m) { return static_cast<double>(m.observations.steps); }},
    {"quarrel_failed_steps_total", "Steps that failed", MetricType::Counter,
     [](const Watched& m) { return static_cast<double>(m.counters.failed_steps); }},
    {"quarrel_divergence_total", "Steps in which some row's numbers were not finite", MetricType::Counter,
     [](const Watched& m) { return static_cast<double>(m.observations.divergences); }},
};

void add_kv(Families& families, std::span<const Watched> models) {
  FamilyMaker use("quarrel_kv_cache_usage_ratio", "Share of the KV blocks that running answers hold",
                  MetricType::Gauge);
  FamilyMaker total("quarrel_kv_cache_blocks", "KV blocks that there are", MetricType::Gauge);
  for (const Watched& model : models) {
    const std::optional<double> share = kv_usage(model);
    if (!share) continue;
    use.gauge(of_model(model), *share);
    total.gauge(of_model(model), blocks_of(model, &GroupCounters::total));
  }
  use.add_to(families);
  total.add_to(families);
}

void add_batches(Families& families, std::span<const Watched> models) {
  FamilyMaker rows("quarrel_batch_size", "Rows of a step: tokens of prompts and of answers together",
                   MetricType::Histogram);
  for (const Watched& model : models) {
    const Observations& seen = model.observations;
    rows.histogram(of_model(model), seen.step_rows, static_cast<double>(seen.rows), 1.0, kRowBuckets);
  }
  rows.add_to(families);
}

void add_times(Families& families, std::span<const Watched> models, const char* name, const char* help,
               LayerTimes Observations::* times) {
  FamilyMaker family(name, help, MetricType::Histogram);
  for (const Watched& model : models) {
    const LayerTimes& taken = model.observations.*times;
    if (taken.calls == 0) continue;
    family.histogram(of_model(model), taken.micros, taken.seconds, kMicrosecond, kLatencyBuckets);
  }
  family.add_to(families);
}

void add_experts(Families& families, std::span<const Watched> models) {
  FamilyMaker selection("quarrel_moe_expert_selection", "How often the router chose an expert", MetricType::Counter);
  FamilyMaker share("quarrel_moe_expert_utilization", "Share of a layer's choices that went to an expert",
                    MetricType::Gauge);
  for (const Watched& model : models) {
    for (const ExpertUse& use : model.observations.experts) {
      const auto all = static_cast<double>(std::accumulate(use.chosen.begin(), use.chosen.end(), std::uint64_t{0}));
      for (std::size_t expert = 0; expert < use.chosen.size(); ++expert) {
        LabelValues labels = of_model(model);
        labels.emplace_back("layer", fmt::format("{}", use.layer));
        labels.emplace_back("expert", fmt::format("{}", expert));
        const auto chosen = static_cast<double>(use.chosen[expert]);
        selection.counter(labels, chosen);
        share.gauge(labels, all > 0.0 ? chosen / all : 0.0);
      }
    }
  }
  selection.add_to(families);
  share.add_to(families);
}

void add_recurrent(Families& families, std::span<const Watched> models) {
  FamilyMaker state("quarrel_ssm_state_size_bytes", "Recurrent state of all sequences in use", MetricType::Gauge);
  FamilyMaker bad("quarrel_ssm_divergence_total", "Steps whose numbers were not finite in a recurrent layer",
                  MetricType::Counter);
  for (const Watched& model : models) {
    if (model.observations.state_bytes == 0) continue;
    const double slots = model.counters.scheduler.slots_used;
    state.gauge(of_model(model), slots * static_cast<double>(model.observations.state_bytes));
    bad.counter(of_model(model), static_cast<double>(model.observations.ssm_divergences));
  }
  state.add_to(families);
  bad.add_to(families);
}

}  // namespace

ModelFigures model_figures(const Watched& model) {
  const SchedulerCounters& scheduler = model.counters.scheduler;
  return {.name = model.name,
          .running = static_cast<std::size_t>(scheduler.running),
          .waiting = static_cast<std::size_t>(scheduler.waiting),
          .kv_usage = kv_usage(model),
          .bytes = model.bytes,
          .cache_hit_tokens = scheduler.cache_hit_tokens,
          .cache_miss_tokens = scheduler.cache_miss_tokens};
}

std::vector<MetricFamily> model_families(std::span<const Watched> models) {
  Families families;
  for (const Figure& figure : kFigures) {
    FamilyMaker family(figure.name, figure.help, figure.type);
    for (const Watched& model : models) {
      if (figure.type == MetricType::Gauge) family.gauge(of_model(model), figure.value(model));
      if (figure.type == MetricType::Counter) family.counter(of_model(model), figure.value(model));
    }
    family.add_to(families);
  }
  add_kv(families, models);
  add_batches(families, models);
  add_times(families, models, "quarrel_moe_layer_latency_seconds",
            "Time of a layer's experts and their router, sampled", &Observations::moe_layers);
  add_times(families, models, "quarrel_moe_routing_latency_seconds", "Time of a layer's router, sampled",
            &Observations::moe_routing);
  add_experts(families, models);
  add_times(families, models, "quarrel_ssm_scan_latency_seconds", "Time of a layer's selective scan, sampled",
            &Observations::ssm_scans);
  add_times(families, models, "quarrel_ssm_conv_latency_seconds", "Time of a layer's convolution, sampled",
            &Observations::ssm_convolutions);
  add_recurrent(families, models);
  return families;
}

}  // namespace quarrel
