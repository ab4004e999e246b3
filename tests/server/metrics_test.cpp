// What Prometheus is told: counts of known records, models' observations, and a text that it can read.
#include "server/watch/metrics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include <nlohmann/json.hpp>

namespace quarrel {
namespace {

using std::chrono::milliseconds;

struct Exposition {
  std::map<std::string, double> samples;     // by name and labels, as they stand in the text
  std::map<std::string, std::string> types;  // by name
};

// Reads the format strictly: every sample belongs to the family that was announced before it, and none comes twice.
Exposition read(const std::string& text) {
  Exposition read;
  std::istringstream lines(text);
  std::string line, family;
  std::set<std::string> helped;
  while (std::getline(lines, line)) {
    if (line.starts_with("# HELP ")) {
      EXPECT_TRUE(helped.insert(line.substr(7, line.find(' ', 7) - 7)).second) << line;
      continue;
    }
    if (line.starts_with("# TYPE ")) {
      const std::size_t space = line.find(' ', 7);
      family = line.substr(7, space - 7);
      EXPECT_TRUE(read.types.emplace(family, line.substr(space + 1)).second) << line;
      continue;
    }
    const std::size_t space = line.rfind(' ');
    const std::string key = line.substr(0, space);
    EXPECT_TRUE(key.starts_with(family)) << line << " after " << family;
    EXPECT_TRUE(read.samples.emplace(key, std::stod(line.substr(space + 1))).second) << line;
  }
  return read;
}

RequestFacts answered(std::string model, std::size_t tokens) {
  const Clock::time_point start{std::chrono::seconds(100)};
  RequestFacts facts{.id = "r", .route = "POST /v1/completions", .model = std::move(model), .prompt_tokens = 5};
  facts.generated_tokens = tokens;
  facts.status = 200;
  facts.finish_reason = "stop";
  facts.begun = start;
  facts.acquired = start + milliseconds(1);
  facts.submitted = start + milliseconds(2);
  facts.started = start + milliseconds(22);
  facts.first_token = start + milliseconds(62);
  facts.last_token = start + milliseconds(362);
  facts.ended = start + milliseconds(402);
  return facts;
}

// Two answers side by side: each has its own gap, and a token beyond their first ones none.
TEST(Metrics, GapsAreThoseOfAnAnswer) {
  Metrics metrics({.version = "1"});
  RequestFacts facts = answered("toy", 2);
  metrics.tokens(facts, {.tokens = 2, .answers = 2});
  facts.generated_tokens = 5;
  metrics.tokens(facts, {.tokens = 3, .answers = 2, .gap = 0.1});
  const Exposition seen = read(metrics.text());
  EXPECT_EQ(seen.samples.at("quarrel_inter_token_latency_seconds_count{model=\"toy\"}"), 3);
  EXPECT_NEAR(seen.samples.at("quarrel_inter_token_latency_seconds_sum{model=\"toy\"}"), 0.2, 1e-9);
}

TEST(Metrics, CountsWhatTheRecordsSay) {
  Metrics metrics({.version = "1.2.3"});
  const RequestFacts good = answered("toy", 3);
  metrics.begun(good);
  RequestFacts first = good;
  first.generated_tokens = 1;
  metrics.tokens(first, {.tokens = 1, .answers = 1});
  first.generated_tokens = 3;
  metrics.tokens(first, {.tokens = 2, .answers = 1, .gap = 0.3});
  metrics.ended(good);
  RequestFacts bad{.route = "POST /v1/completions", .status = 404, .error = "not_found_error"};
  bad.ended = bad.begun;
  metrics.begun(bad);
  metrics.ended(bad);
  bad.error = "upstream_error";
  metrics.begun(bad);
  metrics.ended(bad);
  bad.error = "a name that nobody has heard of";
  bad.route = "";
  metrics.begun(bad);
  metrics.ended(bad);
  metrics.begun(bad);

  const Exposition seen = read(metrics.text());
  const auto at = [&](const std::string& key) {
    const auto found = seen.samples.find(key);
    return found == seen.samples.end() ? -1.0 : found->second;
  };
  EXPECT_EQ(at("quarrel_webui_requests_total{model=\"toy\"}"), 1);
  EXPECT_EQ(at("quarrel_webui_tokens_total{model=\"toy\",type=\"prompt\"}"), 5);
  EXPECT_EQ(at("quarrel_webui_tokens_total{model=\"toy\",type=\"generated\"}"), 3);
  EXPECT_EQ(at("quarrel_webui_errors_total{type=\"not_found_error\"}"), 1);
  EXPECT_EQ(at("quarrel_webui_errors_total{type=\"upstream_error\"}"), 1);
  EXPECT_EQ(at("quarrel_webui_errors_total{type=\"other\"}"), 1) << "label values are bounded";
  EXPECT_EQ(at("quarrel_webui_inference_duration_seconds_count{model=\"toy\"}"), 1);
  EXPECT_NEAR(at("quarrel_webui_inference_duration_seconds_sum{model=\"toy\"}"), 0.4, 1e-9);
  EXPECT_NEAR(at("quarrel_time_to_first_token_seconds_sum{model=\"toy\"}"), 0.062, 1e-9);
  EXPECT_EQ(at("quarrel_inter_token_latency_seconds_count{model=\"toy\"}"), 2);
  EXPECT_NEAR(at("quarrel_inter_token_latency_seconds_sum{model=\"toy\"}"), 0.3, 1e-9);
  EXPECT_EQ(at("quarrel_inter_token_latency_seconds_bucket{model=\"toy\",le=\"0.25\"}"), 1);
  EXPECT_EQ(at("quarrel_inter_token_latency_seconds_bucket{model=\"toy\",le=\"0.5\"}"), 2);
  EXPECT_EQ(at("quarrel_inter_token_latency_seconds_bucket{model=\"toy\",le=\"+Inf\"}"), 2);
  EXPECT_NEAR(at("quarrel_request_queue_time_seconds_sum{model=\"toy\"}"), 0.02, 1e-9);
  EXPECT_NEAR(at("quarrel_request_prefill_time_seconds_sum{model=\"toy\"}"), 0.04, 1e-9);
  EXPECT_NEAR(at("quarrel_request_decode_time_seconds_sum{model=\"toy\"}"), 0.3, 1e-9);
  EXPECT_EQ(at("quarrel_requests_finished_total{model=\"toy\",reason=\"stop\"}"), 1);
  EXPECT_EQ(at("quarrel_http_requests_total{route=\"POST /v1/completions\",status=\"200\"}"), 1);
  EXPECT_EQ(at("quarrel_http_requests_total{route=\"none\",status=\"404\"}"), 1);
  EXPECT_EQ(at("quarrel_http_requests_in_flight"), 1);
  EXPECT_EQ(at("quarrel_build_info{version=\"1.2.3\"}"), 1);
  EXPECT_GT(at("process_resident_memory_bytes"), 0);
  EXPECT_EQ(seen.types.at("quarrel_webui_requests_total"), "counter");
  EXPECT_EQ(seen.types.at("quarrel_time_to_first_token_seconds"), "histogram");
}

TEST(Metrics, EveryRequestForAModelHasAnOutcome) {
  Metrics metrics({});
  RequestFacts facts = answered("toy", 1);
  facts.finish_reason = "";
  metrics.ended(facts);  // its client left
  facts.started = std::nullopt;
  metrics.ended(facts);  // vectors
  facts.error = "server_error";
  metrics.ended(facts);
  const Exposition seen = read(metrics.text());
  for (const char* reason : {"cancelled", "done", "error"}) {
    const std::string key = std::string("quarrel_requests_finished_total{model=\"toy\",reason=\"") + reason + "\"}";
    EXPECT_TRUE(seen.samples.contains(key)) << key;
  }
}

TEST(Metrics, NamesOfModelsAreBoundedAndHarmless) {
  Metrics metrics({});
  for (int i = 0; i < 300; ++i) metrics.ended(answered("model " + std::to_string(i), 1));
  Metrics odd({});
  odd.ended(answered("a \"quoted\" \\ name\n# TYPE x\xff", 1));
  std::size_t names = 0;
  double others = 0.0;
  for (const auto& [key, value] : read(metrics.text()).samples) {
    if (!key.starts_with("quarrel_webui_requests_total{")) continue;
    ++names;
    if (key.find("\"(other)\"") != std::string::npos) others = value;
  }
  EXPECT_EQ(names, 257u);
  EXPECT_EQ(others, 300.0 - 256.0);
  for (const auto& [key, value] : read(odd.text()).samples) {
    EXPECT_EQ(key.find('\n'), std::string::npos) << value;
  }
  EXPECT_EQ(odd.text().find('\xff'), std::string::npos) << "Prometheus reads UTF-8 alone";
}

ModelRegistry::Watched busy_model() {
  ModelRegistry::Watched model{.name = "mixed", .bytes = 1000};
  Observations& seen = model.observations;
  seen.rows = 40;
  seen.steps = 3;
  seen.step_rows.add(1, 2);
  seen.step_rows.add(38);
  seen.state_bytes = 256;
  seen.ssm_divergences = 2;
  seen.experts = {{.layer = 1, .chosen = {30, 10}}, {.layer = 3, .chosen = {0, 0}}};
  seen.moe_layers.add(2, 20e-6);
  seen.moe_routing.add(2, 4e-6);
  seen.ssm_scans.add(1, 100e-6);
  seen.ssm_convolutions.add(1, 3e-6);
  SchedulerCounters& scheduler = model.counters.scheduler;
  scheduler.running = 4;
  scheduler.waiting = 7;
  scheduler.preemptions = 5;
  scheduler.cache_hit_tokens = 16;
  scheduler.cache_miss_tokens = 24;
  scheduler.slots_used = 3;
  scheduler.groups = {{.total = 10, .used = 4}, {.total = 10, .used = 1}};
  return model;
}

TEST(Metrics, ModelsTellOfTheirExpertsStatesAndCaches) {
  const Metrics metrics({.models = [] { return std::vector{busy_model(), {.name = "dense"}}; },
                         .connections = [] { return std::size_t{12}; },
                         .lost_log_lines = [] { return std::uint64_t{1}; }});
  const Exposition seen = read(metrics.text());
  const std::map<std::string, double> expected = {
      {"quarrel_models_loaded", 2},
      {"quarrel_webui_connections_active", 12},
      {"quarrel_log_lines_lost_total", 1},
      {"quarrel_model_memory_bytes{model=\"mixed\"}", 1000},
      {"quarrel_requests_running{model=\"mixed\"}", 4},
      {"quarrel_requests_waiting{model=\"mixed\"}", 7},
      {"quarrel_preemptions_total{model=\"mixed\"}", 5},
      {"quarrel_prefix_cache_hit_tokens_total{model=\"mixed\"}", 16},
      {"quarrel_prefix_cache_miss_tokens_total{model=\"mixed\"}", 24},
      {"quarrel_kv_cache_usage_ratio{model=\"mixed\"}", 0.25},
      {"quarrel_batch_size_count{model=\"mixed\"}", 3},
      {"quarrel_batch_size_sum{model=\"mixed\"}", 40},
      {"quarrel_batch_size_bucket{model=\"mixed\",le=\"1\"}", 2},
      {"quarrel_batch_size_bucket{model=\"mixed\",le=\"32\"}", 2},
      {"quarrel_batch_size_bucket{model=\"mixed\",le=\"64\"}", 3},
      {"quarrel_moe_expert_selection{model=\"mixed\",layer=\"1\",expert=\"0\"}", 30},
      {"quarrel_moe_expert_utilization{model=\"mixed\",layer=\"1\",expert=\"1\"}", 0.25},
      {"quarrel_moe_expert_utilization{model=\"mixed\",layer=\"3\",expert=\"1\"}", 0},
      {"quarrel_moe_layer_latency_seconds_count{model=\"mixed\"}", 2},
      {"quarrel_moe_layer_latency_seconds_bucket{model=\"mixed\",le=\"1.6e-05\"}", 2},
      {"quarrel_moe_layer_latency_seconds_bucket{model=\"mixed\",le=\"8e-06\"}", 0},
      {"quarrel_moe_routing_latency_seconds_count{model=\"mixed\"}", 2},
      {"quarrel_ssm_scan_latency_seconds_count{model=\"mixed\"}", 1},
      {"quarrel_ssm_conv_latency_seconds_count{model=\"mixed\"}", 1},
      {"quarrel_ssm_state_size_bytes{model=\"mixed\"}", 3 * 256},
      {"quarrel_ssm_divergence_total{model=\"mixed\"}", 2},
  };
  for (const auto& [key, value] : expected) {
    const auto found = seen.samples.find(key);
    ASSERT_NE(found, seen.samples.end()) << key << "\n" << metrics.text();
    EXPECT_DOUBLE_EQ(found->second, value) << key;
  }
  EXPECT_FALSE(seen.samples.contains("quarrel_ssm_state_size_bytes{model=\"dense\"}")) << "it has none";
  EXPECT_EQ(seen.types.at("quarrel_moe_expert_selection"), "counter");
  EXPECT_EQ(seen.types.at("quarrel_moe_expert_utilization"), "gauge");
}

// A key for certain models: the others are not there, neither their names nor what was asked of them.
TEST(Metrics, WhoMayUseSomeModelsSeesThoseAlone) {
  Metrics metrics({.models = [] { return std::vector{busy_model(), {.name = "dense"}}; }});
  metrics.ended(answered("mixed", 3));
  metrics.ended(answered("dense", 2));
  const Caller narrow{.models = {"dense:latest"}};
  EXPECT_EQ(metrics.text(narrow).find("mixed"), std::string::npos) << metrics.text(narrow);
  EXPECT_EQ(metrics.json(narrow).find("mixed"), std::string::npos) << metrics.json(narrow);
  const Exposition seen = read(metrics.text(narrow));
  EXPECT_EQ(seen.samples.at("quarrel_webui_requests_total{model=\"dense\"}"), 1);
  EXPECT_EQ(seen.samples.at("quarrel_webui_tokens_total{model=\"dense\",type=\"prompt\"}"), 5);
  EXPECT_TRUE(seen.samples.contains("quarrel_model_memory_bytes{model=\"dense\"}"));
  EXPECT_EQ(seen.samples.at("quarrel_models_loaded"), 1);
  EXPECT_EQ(seen.samples.at("quarrel_http_requests_total{route=\"POST /v1/completions\",status=\"200\"}"), 2)
      << "it names no model";
  EXPECT_FALSE(seen.types.contains("quarrel_moe_expert_selection")) << "a name without members tells of a model too";
  EXPECT_EQ(nlohmann::json::parse(metrics.json(narrow))["metrics"].size(), seen.types.size());
  EXPECT_TRUE(read(metrics.text(Caller{.name = "wide"})).samples.contains("quarrel_requests_running{model=\"mixed\"}"));
  // A model may have another name, which others know of.
  Metrics told({.models = [] { return std::vector{busy_model(), {.name = "dense"}}; },
                .may_use = [](const Caller&, const std::string& model) { return model == "mixed"; }});
  told.ended(answered("mixed", 3));
  const Exposition mixed = read(told.text(narrow));
  EXPECT_EQ(mixed.samples.at("quarrel_webui_requests_total{model=\"mixed\"}"), 1);
  EXPECT_TRUE(mixed.samples.contains("quarrel_model_memory_bytes{model=\"mixed\"}"));
  EXPECT_FALSE(mixed.samples.contains("quarrel_model_memory_bytes{model=\"dense\"}"));
  // Those beyond the most are told together, and may be anybody's.
  Metrics many({});
  for (int i = 0; i < 300; ++i) many.ended(answered("model " + std::to_string(i), 1));
  const Exposition few = read(many.text(Caller{.models = {"model 7"}}));
  const auto counts_a_model = [](const auto& each) { return each.first.starts_with("quarrel_webui_requests_total{"); };
  EXPECT_EQ(std::ranges::count_if(few.samples, counts_a_model), 1);
}

// What is counted of many together is nobody's, whatever a model is called.
TEST(Metrics, AModelsNameIsNotThatOfAllOthers) {
  Metrics metrics({});
  for (const char* name : {"other", "(other)"}) metrics.ended(answered(name, 1));
  for (int i = 0; i < 300; ++i) metrics.ended(answered("model " + std::to_string(i), 1));
  const auto requests = [&](const std::string& name, const Caller& caller) {
    const Exposition seen = read(metrics.text(caller));
    const auto found = seen.samples.find("quarrel_webui_requests_total{model=\"" + name + "\"}");
    return found == seen.samples.end() ? 0.0 : found->second;
  };
  EXPECT_EQ(requests("other", Caller{.models = {"other"}}), 1);
  EXPECT_EQ(requests("(other)", Caller{.models = {"(other)"}}), 0) << "what is told there is not of this model alone";
  EXPECT_EQ(requests("other", {}) + requests("(other)", {}), 1 + 1 + 300 - 254);
}

TEST(Metrics, VectorStoresTellWhatWentThere) {
  StoreObservations seen{.counters = {.failures = 2, .retries = 3, .rows_sent = 5, .bytes_received = 700},
                         .refused = 4};
  seen.times[static_cast<std::size_t>(StoreOperation::search)].milliseconds.add(3);
  seen.times[static_cast<std::size_t>(StoreOperation::search)].seconds = 0.0025;
  const std::map<std::string, double> samples = read(Metrics({.stores = [&] { return seen; }}).text()).samples;
  EXPECT_EQ(samples.at("quarrel_flight_rows_total{direction=\"sent\"}"), 5);
  EXPECT_EQ(samples.at("quarrel_flight_bytes_total{direction=\"received\"}"), 700);
  EXPECT_EQ(samples.at("quarrel_flight_retries_total"), 3);
  EXPECT_EQ(samples.at("quarrel_flight_failures_total"), 2);
  EXPECT_EQ(samples.at("quarrel_flight_refused_total"), 4);
  EXPECT_EQ(samples.at("quarrel_flight_duration_seconds_count{operation=\"search\"}"), 1);
  EXPECT_EQ(samples.at("quarrel_flight_duration_seconds_count{operation=\"put\"}"), 0);
  EXPECT_DOUBLE_EQ(samples.at("quarrel_flight_duration_seconds_sum{operation=\"search\"}"), 0.0025);
  EXPECT_FALSE(read(Metrics(MetricSources{}).text()).types.contains("quarrel_flight_rows_total"))
      << "no store may be reached";
}

TEST(Metrics, JsonHasTheSameFigures) {
  Metrics metrics({.models = [] { return std::vector{busy_model()}; }});
  metrics.ended(answered("toy", 1));
  const auto json = nlohmann::json::parse(metrics.json());
  std::map<std::string, nlohmann::json> families;
  for (const auto& family : json["metrics"]) families[family["name"].get<std::string>()] = family;
  const auto& duration = families.at("quarrel_webui_inference_duration_seconds");
  EXPECT_EQ(duration["type"], "histogram");
  EXPECT_EQ(duration["metrics"][0]["labels"]["model"], "toy");
  EXPECT_EQ(duration["metrics"][0]["count"], 1);
  EXPECT_EQ(duration["metrics"][0]["buckets"].back()["le"], 60);
  EXPECT_EQ(families.at("quarrel_ssm_state_size_bytes")["metrics"][0]["value"], 768);
  EXPECT_EQ(families.size(), read(metrics.text()).types.size());
}

}  // namespace
}  // namespace quarrel
