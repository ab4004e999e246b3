#include "server/watch/tracer.h"

#include <chrono>
#include <utility>

#include "server/watch/trace_context.h"

namespace quarrel {
namespace {

using TimePoint = std::optional<Clock::time_point>;

std::int64_t nanoseconds(Clock::time_point time, std::chrono::nanoseconds since_1970) {
  return (time.time_since_epoch() + since_1970).count();
}

void add_text(Span& span, const char* key, const std::string& value) {
  if (!value.empty()) span.attributes.emplace_back(key, value);
}

void add_count(Span& span, const char* key, std::size_t value) {
  span.attributes.emplace_back(key, static_cast<std::int64_t>(value));
}

// Names are those of OpenTelemetry's conventions, for HTTP and for generative models, where it has any.
Span whole_span(const RequestFacts& facts, std::chrono::nanoseconds since_1970) {
  const TraceContext own = read_traceparent(facts.trace).value_or(TraceContext{});
  const std::optional<TraceContext> asking = read_traceparent(facts.traceparent);
  Span span{.trace = own.trace,
            .id = own.span,
            .parent = asking ? asking->span : "",
            .name = facts.route.empty() ? "request" : facts.route,
            .server = true,
            .begin_ns = nanoseconds(facts.begun, since_1970),
            .end_ns = nanoseconds(facts.ended.value_or(facts.begun), since_1970),
            .error = facts.error};
  add_text(span, "quarrel.request.id", facts.id);
  add_text(span, "quarrel.caller", facts.caller->name);
  add_text(span, "gen_ai.request.model", facts.model);
  if (facts.status != 0) add_count(span, "http.response.status_code", facts.status);
  add_text(span, "error.type", facts.error);
  add_text(span, "quarrel.error.code", facts.code);
  if (facts.model.empty()) return span;
  add_count(span, "gen_ai.usage.input_tokens", facts.prompt_tokens);
  add_count(span, "gen_ai.usage.output_tokens", facts.generated_tokens);
  add_count(span, "quarrel.cached_tokens", facts.cached_tokens);
  add_text(span, "gen_ai.response.finish_reason", facts.finish_reason);
  return span;
}

}  // namespace

std::vector<Span> spans_of(const RequestFacts& facts, std::chrono::nanoseconds since_1970) {
  std::vector<Span> spans = {whole_span(facts, since_1970)};
  // One that never left the queue has a span for the time it waited.
  const auto add = [&](const char* name, const TimePoint& begin, const TimePoint& end) {
    if (!begin) return;
    const TimePoint until = end ? end : facts.ended;
    if (!until) return;
    spans.push_back({.trace = spans[0].trace,
                     .id = new_span_id(),
                     .parent = spans[0].id,
                     .name = name,
                     .begin_ns = nanoseconds(*begin, since_1970),
                     .end_ns = nanoseconds(*until, since_1970)});
  };
  if (facts.acquired) add("acquire model", facts.begun, facts.acquired);
  add("tokenise", facts.acquired, facts.submitted);
  add("queue", facts.submitted, facts.started);
  const bool vectors = facts.finish_reason == "done";
  add(vectors ? "compute" : "prefill", facts.started, facts.first_token);
  add("decode", facts.first_token, facts.last_token);
  return spans;
}

void Tracer::identify(RequestFacts& facts) { facts.trace = new_span(facts.traceparent).header(); }

void Tracer::ended(const RequestFacts& facts) {
  const std::optional<TraceContext> own = read_traceparent(facts.trace);
  if (!own || !own->sampled) return;
  const auto wall =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch());
  exporter_->add(spans_of(facts, wall - Clock::now().time_since_epoch()));
}

}  // namespace quarrel
