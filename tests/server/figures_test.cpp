// What is broadcast of the metrics: the figures of the endpoint, what happened between two readings, and when they are
// read.
#include "server/watch/figures.h"

#include <gtest/gtest.h>

#include "server/watch/metrics.h"

namespace quarrel {
namespace {

using namespace std::chrono_literals;

bool all(const std::string&) { return true; }

ModelRegistry::Watched watched(const char* name, std::int32_t running, std::int32_t used_blocks) {
  ModelRegistry::Watched model{.name = name, .bytes = 1000};
  SchedulerCounters& scheduler = model.counters.scheduler;
  scheduler.running = running;
  scheduler.waiting = 3;
  scheduler.cache_hit_tokens = 30;
  scheduler.cache_miss_tokens = 10;
  scheduler.groups = {{.total = 10, .used = used_blocks}};
  return model;
}

// One request with a first token after 60 ms, and 80 ms to the two that came next.
void answer(Metrics& metrics, const char* model) {
  const Clock::time_point start{100s};
  RequestFacts facts{.route = "POST /v1/completions", .model = model, .prompt_tokens = 5, .status = 200};
  facts.begun = start;
  facts.first_token = start + 60ms;
  facts.generated_tokens = 1;
  metrics.begun(facts);
  metrics.tokens(facts, {.tokens = 1, .answers = 1});
  facts.generated_tokens = 3;
  metrics.tokens(facts, {.tokens = 2, .answers = 1, .gap = 0.08});
  facts.ended = start + 140ms;
  metrics.ended(facts);
}

// Of the endpoint's families the sum of a field over the members, of one type where one is named.
double told(const Metrics& metrics, const std::string& name, const char* value = "value",
            const std::string& type = "") {
  double sum = 0.0;
  const Json json = Json::parse(metrics.json());
  for (const Json& family : json.at("metrics")) {
    if (family.at("name") != name) continue;
    for (const Json& member : family.at("metrics")) {
      if (type.empty() || member.at("labels").at("type") == type) sum += member.at(value).get<double>();
    }
  }
  return sum;
}

TEST(BroadcastFigures, AreThoseOfTheEndpoint) {
  Metrics metrics({.models = [] { return std::vector{watched("a", 2, 1), watched("b", 1, 5)}; }});
  const MetricsReading before = metrics.read();
  for (const char* model : {"a", "a", "b"}) answer(metrics, model);
  // The name of a model is not taken for a type of tokens.
  answer(metrics, "generated");
  RequestFacts bad{.route = "POST /v1/completions", .status = 404, .error = "not_found_error"};
  bad.ended = bad.begun;
  metrics.begun(bad);
  metrics.ended(bad);
  MetricsReading after = metrics.read();
  after.at = before.at + 2s;
  const Json payload = metrics_payload({.now = after, .change = change_between(before, after)}, all);
  const auto equal = [&](const char* field, double value) {
    EXPECT_EQ(payload.at(field).get<double>(), value) << field;
  };
  equal("running", told(metrics, "quarrel_requests_running"));
  equal("waiting", told(metrics, "quarrel_requests_waiting"));
  equal("requests_total", told(metrics, "quarrel_webui_requests_total"));
  equal("tokens_total", told(metrics, "quarrel_webui_tokens_total", "value", "generated"));
  equal("errors_total", told(metrics, "quarrel_webui_errors_total"));
  equal("memory_bytes", told(metrics, "quarrel_model_memory_bytes"));
  EXPECT_EQ(payload.at("requests_total"), 4);
  EXPECT_EQ(payload.at("tokens_total"), 12);
  EXPECT_EQ(payload.at("errors_total"), 1);
  EXPECT_EQ(payload.at("running"), 3);
  EXPECT_EQ(payload.at("kv_usage"), 0.5) << "of the fullest model";
  EXPECT_GT(payload.at("process_memory_bytes").get<double>(), 0.0);
  EXPECT_EQ(payload.at("tokens_per_sec"), 6.0);
  const Json& first = payload.at("time_to_first_token");
  EXPECT_EQ(first.at("count").get<double>(), told(metrics, "quarrel_time_to_first_token_seconds", "count"));
  EXPECT_EQ(payload.at("token_gap").at("count").get<double>(),
            told(metrics, "quarrel_inter_token_latency_seconds", "count"));
  EXPECT_DOUBLE_EQ(first.at("p50").get<double>(), 0.0625) << "in the middle of its bucket, from 50 to 75 ms";
}

HistogramReading histogram(std::uint64_t first, std::uint64_t second, std::uint64_t third, std::uint64_t count) {
  return {.at_most = {{0.1, first}, {0.2, second}, {0.4, third}}, .count = count};
}

TEST(BroadcastFigures, PercentilesAreThoseOfTheInterval) {
  // What came before has been slow, and does not count.
  const MetricsReading before{.first_token = histogram(0, 0, 1000, 1000)};
  const MetricsReading after{.first_token = histogram(10, 10, 1020, 1020)};
  const Percentiles seen = change_between(before, after).first_token;
  EXPECT_EQ(seen.count, 20u);
  EXPECT_DOUBLE_EQ(seen.p50.value(), 0.1);
  EXPECT_DOUBLE_EQ(seen.p90.value(), 0.36) << "within a bucket evenly";
  const Percentiles none = change_between(after, after).first_token;
  EXPECT_EQ(none.count, 0u);
  EXPECT_FALSE(none.p50 || none.p90 || none.p99);
  const MetricsReading late{.first_token = histogram(10, 10, 1020, 1024)};
  EXPECT_DOUBLE_EQ(change_between(after, late).first_token.p50.value(), 0.4) << "beyond the last bound";
}

TEST(BroadcastFigures, AModelThatIsLoadedAgainCountsFromItsBeginning) {
  const MetricsReading before{.models = {{.name = "a", .cache_hit_tokens = 500, .cache_miss_tokens = 500},
                                         {.name = "b", .cache_hit_tokens = 7}}};
  const MetricsReading after{
      .models = {{.name = "a", .cache_hit_tokens = 4, .cache_miss_tokens = 2}, {.name = "b", .cache_hit_tokens = 9}}};
  const MetricsChange change = change_between(before, after);
  EXPECT_EQ(change.cache_hit_tokens, 4u + 2u);
  EXPECT_EQ(change.cache_miss_tokens, 2u);
}

TEST(BroadcastFigures, AKeySeesTheModelsThatItMayUse) {
  const MetricsNews news{.now = {.models = {{.name = "mine", .running = 1, .bytes = 10},
                                            {.name = "secret", .running = 2, .kv_usage = 0.25, .bytes = 20}}}};
  const Json payload = metrics_payload(news, [](const std::string& model) { return model == "mine"; });
  ASSERT_EQ(payload.at("models").size(), 1u);
  EXPECT_EQ(payload.at("models")[0],
            (Json{{"name", "mine"}, {"running", 1}, {"waiting", 0}, {"kv_usage", nullptr}, {"memory_bytes", 10}}));
  EXPECT_EQ(payload.at("running"), 3) << "totals are everybody's";
  EXPECT_EQ(payload.at("memory_bytes"), 30);
  EXPECT_EQ(metrics_payload(news, all).at("models").size(), 2u);
}

TEST(BroadcastFigures, WithoutAnIntervalNothingIsMadeUp) {
  const Json payload = metrics_payload({}, all);
  for (const char* field : {"interval", "tokens_per_sec", "cache_hits", "kv_usage"}) {
    EXPECT_TRUE(payload.at(field).is_null()) << field;
  }
  EXPECT_TRUE(payload.at("token_gap").at("p99").is_null());
  EXPECT_EQ(payload.at("token_gap").at("count"), 0);
}

struct CountedReadings {
  std::uint64_t times = 0;
  MetricsFeed feed{5s, [this] { return MetricsReading{.tokens = ++times * 100}; }};
};

TEST(MetricsFeed, ReadsNothingWhileNobodyListens) {
  CountedReadings read;
  Clock::time_point now{1h};
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(read.feed.look(now += 250ms, {}));
  EXPECT_EQ(read.times, 0u);
}

TEST(MetricsFeed, TellsNewcomersAtOnceAndAllOfThemFromThenOn) {
  CountedReadings read;
  const Clock::time_point start{1h};
  const auto first = read.feed.look(start, {.all = 1, .newcomers = 1});
  ASSERT_TRUE(first && first->to_all);
  EXPECT_FALSE(first->news.change) << "nobody listened before";
  EXPECT_FALSE(read.feed.look(start + 1s, {.all = 1}));
  const auto second = read.feed.look(start + 2s, {.all = 2, .newcomers = 1});
  ASSERT_TRUE(second && !second->to_all);
  EXPECT_FALSE(second->news.change) << "it was not there";
  EXPECT_FALSE(read.feed.look(start + 4s, {.all = 2}));
  EXPECT_EQ(read.times, 2u);
  const auto third = read.feed.look(start + 5s, {.all = 2});
  ASSERT_TRUE(third && third->to_all && third->news.change);
  EXPECT_EQ(third->news.change->seconds, 5.0);
  EXPECT_EQ(third->news.change->tokens, 200u) << "since the last broadcast, whoever came meanwhile";
}

TEST(MetricsFeed, ASilenceIsNoInterval) {
  CountedReadings read;
  const Clock::time_point start{1h};
  ASSERT_TRUE(read.feed.look(start, {.all = 1, .newcomers = 1}));
  EXPECT_FALSE(read.feed.look(start + 1s, {}));
  const auto again = read.feed.look(start + 1h, {.all = 1, .newcomers = 1});
  ASSERT_TRUE(again && again->to_all);
  EXPECT_FALSE(again->news.change) << "an hour's percentiles are not those of now";
}

}  // namespace
}  // namespace quarrel
