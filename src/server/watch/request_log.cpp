#include "server/watch/request_log.h"

#include <fmt/format.h>

#include <array>
#include <optional>

#include "base/printable.h"
#include "server/json_text.h"
#include "server/key_record.h"

namespace quarrel {
namespace {

using TimePoint = std::optional<Clock::time_point>;

std::optional<double> milliseconds(const TimePoint& from, const TimePoint& to) {
  if (!from || !to) return std::nullopt;
  return std::chrono::duration<double, std::milli>(*to - *from).count();
}

// What monitors ask for every few seconds is not worth a line each.
bool is_routine(const RequestFacts& facts) {
  static constexpr std::array kRoutine = {"GET /health",      "GET /v1/health", "GET /api/health",
                                          "GET /healthz",     "GET /readyz",    "GET /metrics",
                                          "GET /api/metrics", "GET /version",   "GET /api/version"};
  return facts.error.empty() && std::ranges::find(kRoutine, facts.route) != kRoutine.end();
}

LogLevel level_of(const RequestFacts& facts) {
  if (facts.status >= 500 && facts.status != 503) return LogLevel::warning;
  return is_routine(facts) ? LogLevel::debug : LogLevel::info;
}

std::string_view trace_of(const RequestFacts& facts) {
  return facts.trace.empty() ? std::string_view{} : std::string_view(facts.trace).substr(3, 32);
}

// What there is of a text, between others.
std::string spaced(std::string_view text) { return text.empty() ? "" : fmt::format(" {}", printable(text)); }

}  // namespace

std::string request_json(const RequestFacts& facts) {
  std::string json = fmt::format(R"("event":"request","id":{},"route":{},"status":{})", json_string(facts.id),
                                 json_string(facts.route), facts.status);
  const auto add_text = [&](std::string_view name, std::string_view value) {
    if (!value.empty()) json += fmt::format(R"(,"{}":{})", name, json_string(value));
  };
  const auto add_time = [&](std::string_view name, const std::optional<double>& value) {
    if (value) json += fmt::format(R"(,"{}":{:.3f})", name, *value);
  };
  add_text("caller", facts.caller->name);
  add_text("address", facts.address);
  add_text("model", facts.model);
  if (facts.submitted) {
    json += fmt::format(R"(,"prompt_tokens":{},"cached_tokens":{},"generated_tokens":{})", facts.prompt_tokens,
                        facts.cached_tokens, facts.generated_tokens);
    add_text("priority", priority_name(facts.priority));
  }
  add_time("model_ms", milliseconds(facts.begun, facts.acquired));
  add_time("tokenise_ms", milliseconds(facts.acquired, facts.submitted));
  add_time("queue_ms", milliseconds(facts.submitted, facts.started));
  add_time("first_token_ms", milliseconds(facts.begun, facts.first_token));
  add_time("decode_ms", milliseconds(facts.first_token, facts.last_token));
  add_time("duration_ms", milliseconds(facts.begun, facts.ended));
  add_text("finish_reason", facts.finish_reason);
  add_text("error", facts.error);
  add_text("code", facts.code);
  add_text("trace_id", trace_of(facts));
  return json;
}

std::string request_text(const RequestFacts& facts) {
  std::string text = fmt::format("{} {}", facts.route.empty() ? "(no route)" : facts.route, facts.status);
  text += spaced(facts.model) + spaced(facts.caller->name);
  if (facts.submitted) {
    text += fmt::format(", {} tokens asked ({} cached), {} answered", facts.prompt_tokens, facts.cached_tokens,
                        facts.generated_tokens);
  }
  if (const auto first = milliseconds(facts.begun, facts.first_token))
    text += fmt::format(", first after {:.1f} ms", *first);
  if (const auto all = milliseconds(facts.begun, facts.ended)) text += fmt::format(", {:.1f} ms", *all);
  text += spaced(facts.finish_reason) + spaced(facts.error) + spaced(facts.code);
  return text + fmt::format(" [{}]", facts.id);
}

void RequestLog::ended(const RequestFacts& facts) {
  const LogLevel level = level_of(facts);
  if (!log_->writes(level)) return;
  if (log_->is_json()) {
    log_->write(level, {}, request_json(facts));
  } else {
    log_->write(level, request_text(facts), {});
  }
}

}  // namespace quarrel
