// Traces: W3C's header in and out, a request's spans, and what a collector is sent.
#include <gtest/gtest.h>
#include <unistd.h>

#include <set>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "server/watch/span_exporter.h"
#include "server/watch/trace_context.h"
#include "server/watch/tracer.h"

namespace quarrel {
namespace {

constexpr const char* kParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

TEST(TraceContext, ReadsWhatTheStandardSays) {
  const auto read = read_traceparent(kParent);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->trace, "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(read->span, "b7ad6b7169203331");
  EXPECT_TRUE(read->sampled);
  EXPECT_EQ(read->header(), kParent);
  EXPECT_FALSE(read_traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")->sampled);
  EXPECT_TRUE(read_traceparent("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what-comes-later"));
  for (const char* wrong : {"", "00", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
                            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
                            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
                            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
                            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
                            "00-0af7651916cd43dd8448eb211c80319cxb7ad6b7169203331-01",
                            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0g"}) {
    EXPECT_FALSE(read_traceparent(wrong)) << wrong;
  }
}

TEST(TraceContext, ASpanGoesOnWithATraceOrBeginsOne) {
  const TraceContext part = new_span(kParent);
  EXPECT_EQ(part.trace, "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(part.parent, "b7ad6b7169203331");
  EXPECT_NE(part.span, part.parent);
  std::set<std::string> traces;
  for (int i = 0; i < 100; ++i) {
    const TraceContext first = new_span("nonsense");
    EXPECT_TRUE(read_traceparent(first.header()));
    EXPECT_EQ(first.parent, "");
    traces.insert(first.trace);
  }
  EXPECT_EQ(traces.size(), 100u);
}

RequestFacts answered() {
  RequestFacts facts{.id = "r1", .route = "POST /v1/completions", .traceparent = kParent, .model = "toy"};
  facts.trace = new_span(kParent).header();
  facts.begun = Clock::time_point(std::chrono::seconds(50));
  const auto at = [&](int milliseconds) { return facts.begun + std::chrono::milliseconds(milliseconds); };
  facts.acquired = at(1);
  facts.submitted = at(3);
  facts.started = at(7);
  facts.first_token = at(20);
  facts.last_token = at(90);
  facts.ended = at(100);
  facts.prompt_tokens = 4;
  facts.generated_tokens = 9;
  facts.status = 200;
  return facts;
}

TEST(Tracer, ARequestsSpansFollowEachOtherInsideIt) {
  const std::vector<Span> spans = spans_of(answered(), std::chrono::seconds(1000));
  std::vector<std::string> names;
  for (const Span& span : spans) names.push_back(span.name);
  EXPECT_EQ(names, (std::vector<std::string>{"POST /v1/completions", "acquire model", "tokenise", "queue", "prefill",
                                             "decode"}));
  const Span& whole = spans[0];
  EXPECT_TRUE(whole.server);
  EXPECT_EQ(whole.parent, "b7ad6b7169203331");
  EXPECT_EQ(whole.begin_ns, 1050'000'000'000);
  EXPECT_EQ(whole.end_ns, 1050'100'000'000);
  std::int64_t place = whole.begin_ns;
  std::set<std::string> ids = {whole.id};
  for (std::size_t i = 1; i < spans.size(); ++i) {
    EXPECT_EQ(spans[i].parent, whole.id);
    EXPECT_EQ(spans[i].trace, "0af7651916cd43dd8448eb211c80319c");
    EXPECT_EQ(spans[i].begin_ns, place);
    place = spans[i].end_ns;
    EXPECT_TRUE(ids.insert(spans[i].id).second);
  }
  EXPECT_LE(place, whole.end_ns);
}

TEST(Tracer, OneThatNeverStartedWaitedInTheQueue) {
  RequestFacts facts = answered();
  facts.started = facts.first_token = facts.last_token = std::nullopt;
  facts.error = "unavailable_error";
  const std::vector<Span> spans = spans_of(facts, {});
  EXPECT_EQ(spans.back().name, "queue");
  EXPECT_EQ(spans.back().end_ns, spans[0].end_ns);
  EXPECT_EQ(spans[0].error, "unavailable_error");
  const std::vector<Span> refused = spans_of({.trace = facts.trace, .status = 404, .ended = Clock::now()}, {});
  EXPECT_EQ(refused.size(), 1u);
}

TEST(Tracer, VectorsWaitAndAreComputed) {
  RequestFacts facts = answered();
  facts.first_token = facts.last_token = std::nullopt;
  facts.finish_reason = "done";
  const std::vector<Span> spans = spans_of(facts, {});
  ASSERT_EQ(spans.size(), 5u);
  EXPECT_EQ(spans[3].name, "queue");
  EXPECT_EQ(spans[4].name, "compute");
  EXPECT_EQ(spans[4].begin_ns, spans[3].end_ns);
  EXPECT_EQ(spans[4].end_ns, spans[0].end_ns);
}

TEST(SpanExporter, ABatchIsWhatOtlpSays) {
  const auto body = nlohmann::json::parse(
      otlp_body({.service = "ours", .version = "1"}, spans_of(answered(), std::chrono::seconds(1000))));
  const auto& resource = body["resourceSpans"][0];
  EXPECT_EQ(resource["resource"]["attributes"][0]["value"]["stringValue"], "ours");
  const auto& spans = resource["scopeSpans"][0]["spans"];
  ASSERT_EQ(spans.size(), 6u);
  EXPECT_EQ(spans[0]["traceId"].get<std::string>().size(), 32u);
  EXPECT_EQ(spans[0]["kind"], 2);
  EXPECT_EQ(spans[1]["kind"], 1);
  EXPECT_EQ(spans[0]["startTimeUnixNano"], "1050000000000") << "64-bit numbers are strings in OTLP's JSON";
  EXPECT_EQ(spans[1]["parentSpanId"], spans[0]["spanId"]);
}

TEST(SpanExporter, AddressesAreChecked) {
  for (const char* wrong : {"", "localhost:4318", "ftp://collector", "http://", "http://:80", "http://a:b",
                            "http://user@host", "http://host:123456"}) {
    EXPECT_THROW(SpanExporter({.endpoint = wrong}), Error) << wrong;
  }
}

TEST(SpanExporter, ACollectorThatIsNotThereCostsACount) {
  // Nobody listens on port 1.
  SpanExporter exporter(
      {.endpoint = "http://127.0.0.1:1", .most_queued = 64, .batch = 8, .interval = std::chrono::milliseconds(5)});
  for (int i = 0; i < 100; ++i) exporter.add(spans_of(answered(), {}));
  while (exporter.dropped() < 600) ::usleep(1000);
  EXPECT_EQ(exporter.sent(), 0u);
  EXPECT_EQ(exporter.dropped(), 600u);
}

}  // namespace
}  // namespace quarrel
