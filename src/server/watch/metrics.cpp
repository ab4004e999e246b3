#include "server/watch/metrics.h"

#include <fmt/format.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <mutex>
#include <sstream>

#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "server/watch/families.h"
#include "server/watch/model_metrics.h"
#include "server/watch/process_metrics.h"

namespace quarrel {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::MetricFamily;
using prometheus::MetricType;

// Models come and go; beyond so many names the others share one.
constexpr std::size_t kMostModels = 256;
// It tells of several models: one that is called so is counted among them.
constexpr const char* kOtherModels = "(other)";

const Histogram::BucketBoundaries& second_buckets() {
  static const Histogram::BucketBoundaries bounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25,
                                                     0.5,   0.75,   1,     2.5,  5,     10,   20,    30,  60};
  return bounds;
}

// What errors are called (api_error.h); any other name is "other".
std::string error_label(const std::string& type) {
  static constexpr std::array kTypes = {"invalid_request_error", "authentication_error", "permission_error",
                                        "not_found_error",       "rate_limit_error",     "unavailable_error",
                                        "upstream_error",        "server_error"};
  return std::ranges::find(kTypes, type) != kTypes.end() ? type : "other";
}

// How a request for a model ended.
std::string outcome_of(const RequestFacts& facts) {
  if (!facts.error.empty()) return "error";
  if (!facts.finish_reason.empty()) return facts.finish_reason;
  // Texts that are only tokenised or rendered never start.
  return facts.status >= 200 && facts.status < 300 && !facts.started ? "done" : "cancelled";
}

using TimePoint = std::optional<Clock::time_point>;

void observe(Histogram& histogram, const TimePoint& from, const TimePoint& to) {
  if (from && to) histogram.Observe(std::chrono::duration<double>(*to - *from).count());
}

// Of the members of this type, where one is named.
std::uint64_t sum_of(const Family<Counter>& counters, std::string_view type = {}) {
  double sum = 0.0;
  for (const MetricFamily& family : counters.Collect()) {
    for (const prometheus::ClientMetric& member : family.metric) {
      const auto names_it = [&](const auto& label) { return label.name == "type" && label.value == type; };
      if (type.empty() || std::ranges::any_of(member.label, names_it)) sum += member.counter.value;
    }
  }
  return static_cast<std::uint64_t>(sum);
}

HistogramReading sum_of(const Family<Histogram>& histograms) {
  HistogramReading sum;
  for (const MetricFamily& family : histograms.Collect()) {
    for (const prometheus::ClientMetric& member : family.metric) {
      sum.count += member.histogram.sample_count;
      for (const auto& bucket : member.histogram.bucket) {
        if (std::isfinite(bucket.upper_bound)) sum.at_most[bucket.upper_bound] += bucket.cumulative_count;
      }
    }
  }
  return sum;
}

}  // namespace

class Metrics::Series {
 public:
  // What is counted of one model.
  struct Model {
    std::string name;
    Counter& requests;
    Histogram& duration;
    Counter& prompt_tokens;
    Counter& generated_tokens;
    Histogram& first_token;
    Histogram& token_gap;
    Histogram& queue;
    Histogram& prefill;
    Histogram& decode;
  };

  Model& of(const std::string& name) {
    const std::scoped_lock lock(mutex_);
    const auto found = models_.find(name);
    if (found != models_.end()) return found->second;
    // The last name is that of all others.
    const std::string label = models_.size() >= kMostModels ? kOtherModels : printable(name);
    if (label == kOtherModels) return models_.try_emplace("", make(label)).first->second;
    return models_.try_emplace(name, make(label)).first->second;
  }

  void count_error(const std::string& type) { errors_.Add({{"type", error_label(type)}}).Increment(); }

  void count_finished(const Model& model, const std::string& reason) {
    finished_.Add({{"model", model.name}, {"reason", reason}}).Increment();
  }

  void count_http(const RequestFacts& facts) {
    const std::string route = facts.route.empty() ? "none" : facts.route;
    http_requests_.Add({{"route", route}, {"status", fmt::format("{}", facts.status)}}).Increment();
    observe(http_duration_.Add({{"route", route}}, second_buckets()), facts.begun, facts.ended);
  }

  Gauge& in_flight() { return in_flight_; }
  std::vector<MetricFamily> collect() const { return registry_.Collect(); }

  // Sums over models; what else there is stays uncollected.
  MetricsReading read() const {
    return {.requests = sum_of(requests_),
            .tokens = sum_of(tokens_, "generated"),
            .errors = sum_of(errors_),
            .first_token = sum_of(first_token_),
            .token_gap = sum_of(token_gap_)};
  }

 private:
  Model make(const std::string& name) {
    const prometheus::Labels labels = {{"model", name}};
    return {.name = name,
            .requests = requests_.Add(labels),
            .duration = duration_.Add(labels, second_buckets()),
            .prompt_tokens = tokens_.Add({{"model", name}, {"type", "prompt"}}),
            .generated_tokens = tokens_.Add({{"model", name}, {"type", "generated"}}),
            .first_token = first_token_.Add(labels, second_buckets()),
            .token_gap = token_gap_.Add(labels, second_buckets()),
            .queue = queue_.Add(labels, second_buckets()),
            .prefill = prefill_.Add(labels, second_buckets()),
            .decode = decode_.Add(labels, second_buckets())};
  }

  Family<Counter>& counters(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry_);
  }
  Family<Histogram>& histograms(const char* name, const char* help) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry_);
  }

  prometheus::Registry registry_;
  Family<Counter>& requests_ = counters("quarrel_webui_requests_total", "Requests for a model that have ended");
  Family<Histogram>& duration_ =
      histograms("quarrel_webui_inference_duration_seconds", "From a prompt's tokens to the end of the answer");
  Family<Counter>& tokens_ = counters("quarrel_webui_tokens_total", "Tokens of prompts and of answers");
  Family<Counter>& errors_ = counters("quarrel_webui_errors_total", "Requests that ended with an error");
  Family<Counter>& finished_ = counters("quarrel_requests_finished_total", "Requests for a model, by how they ended");
  Family<Histogram>& first_token_ =
      histograms("quarrel_time_to_first_token_seconds", "From a request's head to its first token");
  Family<Histogram>& token_gap_ = histograms("quarrel_inter_token_latency_seconds", "From token to token of a request");
  Family<Histogram>& queue_ = histograms("quarrel_request_queue_time_seconds", "From the queue's end to its head");
  Family<Histogram>& prefill_ = histograms("quarrel_request_prefill_time_seconds", "From the queue to the first token");
  Family<Histogram>& decode_ = histograms("quarrel_request_decode_time_seconds", "From the first token to the last");
  Family<Counter>& http_requests_ = counters("quarrel_http_requests_total", "Requests, by endpoint and answer");
  Family<Histogram>& http_duration_ =
      histograms("quarrel_http_request_duration_seconds", "From a request's head to its end");
  Gauge& in_flight_ = prometheus::BuildGauge()
                          .Name("quarrel_http_requests_in_flight")
                          .Help("Requests that have begun and not ended")
                          .Register(registry_)
                          .Add({});
  std::mutex mutex_;
  std::map<std::string, Model> models_;  // guarded; "" is all beyond the most
};

Metrics::Metrics(MetricSources sources) : sources_(std::move(sources)), series_(std::make_unique<Series>()) {}

Metrics::~Metrics() = default;

void Metrics::begun(const RequestFacts&) { series_->in_flight().Increment(); }

void Metrics::tokens(const RequestFacts& facts, const TokenBatch& batch) {
  if (facts.model.empty()) return;
  Series::Model& model = series_->of(facts.model);
  model.generated_tokens.Increment(static_cast<double>(batch.tokens));
  if (facts.generated_tokens == batch.tokens) {
    observe(model.first_token, facts.begun, facts.first_token);
  } else {
    for (std::size_t i = 0; i < batch.answers; ++i) model.token_gap.Observe(batch.gap);
  }
  // Who reads them waits for an answer's first and has the others with it: so the sum is the time that tokens took, and
  // the count is theirs.
  for (std::size_t i = batch.answers; i < batch.tokens; ++i) model.token_gap.Observe(0.0);
}

void Metrics::ended(const RequestFacts& facts) {
  series_->in_flight().Decrement();
  series_->count_http(facts);
  if (!facts.error.empty()) series_->count_error(facts.error);
  if (facts.model.empty()) return;
  Series::Model& model = series_->of(facts.model);
  model.requests.Increment();
  model.prompt_tokens.Increment(static_cast<double>(facts.prompt_tokens));
  series_->count_finished(model, outcome_of(facts));
  observe(model.duration, facts.submitted, facts.ended);
  observe(model.queue, facts.submitted, facts.started);
  observe(model.prefill, facts.started, facts.first_token);
  observe(model.decode, facts.first_token, facts.last_token);
}

namespace {

void add_one(std::vector<MetricFamily>& families, const char* name, const char* help, MetricType type, double value,
             const LabelValues& labels = {}) {
  FamilyMaker family(name, help, type);
  if (type == MetricType::Counter) family.counter(labels, value);
  if (type == MetricType::Gauge) family.gauge(labels, value);
  family.add_to(families);
}

// Longbow's part, where a store may be reached.
void add_stores(std::vector<MetricFamily>& families, const StoreObservations& seen) {
  constexpr double kMillisecond = 1e-3;
  constexpr std::size_t kBuckets = 18;  // up to two minutes
  constexpr std::array<const char*, kStoreOperations> kNames = {"put", "search"};
  const LongbowCounters& counters = seen.counters;
  const auto both_ways = [&](const char* name, const char* help, std::uint64_t sent, std::uint64_t received) {
    FamilyMaker family(name, help, MetricType::Counter);
    family.counter({{"direction", "sent"}}, static_cast<double>(sent));
    family.counter({{"direction", "received"}}, static_cast<double>(received));
    family.add_to(families);
  };
  both_ways("quarrel_flight_rows_total", "Rows on their way to and from vector stores", counters.rows_sent,
            counters.rows_received);
  both_ways("quarrel_flight_bytes_total", "Bytes of these", counters.bytes_sent, counters.bytes_received);
  const auto count = [&](const char* name, const char* help, std::uint64_t value) {
    add_one(families, name, help, MetricType::Counter, static_cast<double>(value));
  };
  count("quarrel_flight_retries_total", "Calls to vector stores that were repeated", counters.retries);
  count("quarrel_flight_failures_total", "Calls to vector stores that failed in the end", counters.failures);
  count("quarrel_flight_refused_total", "Requests refused since too many waited for a vector store", seen.refused);
  FamilyMaker times("quarrel_flight_duration_seconds", "What requests had to do in a vector store",
                    MetricType::Histogram);
  for (std::size_t i = 0; i < kStoreOperations; ++i) {
    times.histogram({{"operation", kNames[i]}}, seen.times[i].milliseconds, seen.times[i].seconds, kMillisecond,
                    kBuckets);
  }
  times.add_to(families);
}

// Leaves out what was counted of models that the caller may not use, and what all beyond the most have together.
void hide_models(std::vector<MetricFamily>& families, const std::function<bool(const std::string&)>& may_use) {
  const auto hides = [&](const auto& label) {
    return label.name == "model" && (label.value == kOtherModels || !may_use(label.value));
  };
  for (MetricFamily& family : families) {
    std::erase_if(family.metric, [&](const auto& member) { return std::ranges::any_of(member.label, hides); });
  }
  std::erase_if(families, [](const MetricFamily& family) { return family.metric.empty(); });
}

// Everything that the caller may know, in the order of the names.
std::vector<MetricFamily> gather(std::vector<MetricFamily> families, const MetricSources& sources,
                                 const Caller& caller) {
  const auto add_all = [&](std::vector<MetricFamily> more) { std::ranges::move(more, std::back_inserter(families)); };
  const auto may_use = [&](const std::string& model) {
    return sources.may_use ? sources.may_use(caller, model) : caller.may_use(model);
  };
  if (!caller.models.empty()) hide_models(families, may_use);
  if (sources.models) {
    std::vector<ModelRegistry::Watched> models = sources.models();
    std::erase_if(models, [&](const ModelRegistry::Watched& model) { return !may_use(model.name); });
    add_one(families, "quarrel_models_loaded", "Models in memory", MetricType::Gauge,
            static_cast<double>(models.size()));
    add_all(model_families(models));
  }
  if (sources.stores) add_stores(families, sources.stores());
  const auto count = [&](const char* name, const char* help, const std::function<std::uint64_t()>& source) {
    if (source) add_one(families, name, help, MetricType::Counter, static_cast<double>(source()));
  };
  if (sources.connections) {
    add_one(families, "quarrel_webui_connections_active", "Open connections, of HTTP and of WebSocket",
            MetricType::Gauge, static_cast<double>(sources.connections()));
  }
  if (sources.refusals) {
    FamilyMaker refusals("quarrel_admission_refused_total", "Requests refused for their key, its limits, or their page",
                         MetricType::Counter);
    for (const auto& [reason, times] : sources.refusals()) {
      refusals.counter({{"reason", reason}}, static_cast<double>(times));
    }
    refusals.add_to(families);
  }
  count("quarrel_log_lines_lost_total", "Lines of the log that could not be written", sources.lost_log_lines);
  count("quarrel_trace_spans_sent_total", "Spans that the collector took", sources.spans_sent);
  count("quarrel_trace_spans_dropped_total", "Spans that were lost", sources.spans_dropped);
  add_one(families, "quarrel_build_info", "The program's version", MetricType::Gauge, 1.0,
          {{"version", sources.version}});
  add_all(process_families());
  std::ranges::sort(families, {}, &MetricFamily::name);
  return families;
}

std::string_view type_name(MetricType type) {
  switch (type) {
    case MetricType::Counter: return "counter";
    case MetricType::Gauge: return "gauge";
    case MetricType::Histogram: return "histogram";
    default: return "untyped";
  }
}

nlohmann::ordered_json member_json(MetricType type, const prometheus::ClientMetric& metric) {
  nlohmann::ordered_json said{{"labels", nlohmann::ordered_json::object()}};
  for (const auto& label : metric.label) said["labels"][label.name] = label.value;
  if (type != MetricType::Histogram) {
    said["value"] = type == MetricType::Counter ? metric.counter.value : metric.gauge.value;
    return said;
  }
  said["count"] = metric.histogram.sample_count;
  said["sum"] = metric.histogram.sample_sum;
  said["buckets"] = nlohmann::ordered_json::array();
  for (const auto& bucket : metric.histogram.bucket) {
    if (!std::isfinite(bucket.upper_bound)) continue;  // all of them: that is the count
    said["buckets"].push_back({{"le", bucket.upper_bound}, {"count", bucket.cumulative_count}});
  }
  return said;
}

}  // namespace

std::string Metrics::text(const Caller& caller) const {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, gather(series_->collect(), sources_, caller));
  return std::move(out).str();
}

MetricsReading Metrics::read() const {
  MetricsReading reading = series_->read();
  if (sources_.models) std::ranges::transform(sources_.models(), std::back_inserter(reading.models), model_figures);
  reading.process_bytes = resident_bytes();
  return reading;
}

std::string Metrics::json(const Caller& caller) const {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const MetricFamily& family : gather(series_->collect(), sources_, caller)) {
    nlohmann::ordered_json members = nlohmann::ordered_json::array();
    for (const auto& metric : family.metric) members.push_back(member_json(family.type, metric));
    list.push_back({{"name", family.name},
                    {"help", family.help},
                    {"type", type_name(family.type)},
                    {"metrics", std::move(members)}});
  }
  return nlohmann::ordered_json{{"metrics", std::move(list)}}.dump(-1, ' ', false,
                                                                   nlohmann::json::error_handler_t::replace);
}

}  // namespace quarrel
