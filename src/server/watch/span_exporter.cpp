#include "server/watch/span_exporter.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "server/http/http_post.h"

namespace quarrel {
namespace {

using nlohmann::ordered_json;

ordered_json attribute(const std::string& key, const Span::Value& value) {
  ordered_json said;
  if (const auto* text = std::get_if<std::string>(&value)) said["stringValue"] = *text;
  if (const auto* number = std::get_if<std::int64_t>(&value)) said["intValue"] = fmt::format("{}", *number);
  if (const auto* real = std::get_if<double>(&value)) said["doubleValue"] = *real;
  return {{"key", key}, {"value", std::move(said)}};
}

ordered_json span_json(const Span& span) {
  constexpr int kInternal = 1, kServer = 2, kError = 2;
  ordered_json said{{"traceId", span.trace}, {"spanId", span.id}};
  if (!span.parent.empty()) said["parentSpanId"] = span.parent;
  said["name"] = span.name;
  said["kind"] = span.server ? kServer : kInternal;
  said["startTimeUnixNano"] = fmt::format("{}", span.begin_ns);
  said["endTimeUnixNano"] = fmt::format("{}", span.end_ns);
  said["attributes"] = ordered_json::array();
  for (const auto& [key, value] : span.attributes) said["attributes"].push_back(attribute(key, value));
  said["status"] = ordered_json::object();
  if (!span.error.empty()) said["status"] = {{"code", kError}, {"message", span.error}};
  return said;
}

}  // namespace

std::string otlp_body(const SpanExporterOptions& options, const std::vector<Span>& spans) {
  ordered_json list = ordered_json::array();
  for (const Span& span : spans) list.push_back(span_json(span));
  ordered_json of_whom = ordered_json::array();
  of_whom.push_back(attribute("service.name", options.service));
  of_whom.push_back(attribute("service.version", options.version));
  ordered_json scope{{"scope", {{"name", "quarrel"}}}, {"spans", std::move(list)}};
  ordered_json resource{{"resource", {{"attributes", std::move(of_whom)}}}, {"scopeSpans", {std::move(scope)}}};
  ordered_json body{{"resourceSpans", {std::move(resource)}}};
  return body.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

SpanExporter::SpanExporter(SpanExporterOptions options) : options_(std::move(options)) {
  constexpr std::string_view kScheme = "http://";
  std::string_view rest = options_.endpoint;
  if (!rest.starts_with(kScheme)) {
    fail(ErrorKind::usage, "the collector of traces must be an address like http://localhost:4318: {}",
         options_.endpoint);
  }
  rest.remove_prefix(kScheme.size());
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view authority = rest.substr(0, slash);
  std::string_view path = rest.substr(slash);
  while (path.ends_with('/')) path.remove_suffix(1);
  const std::size_t colon = authority.find(':', authority.starts_with('[') ? authority.find(']') : 0);
  host_ = authority.substr(0, colon);
  port_ = colon == std::string_view::npos ? "80" : authority.substr(colon + 1);
  const bool is_number = !port_.empty() && port_.size() <= 5 && port_.find_first_not_of("0123456789") == port_.npos;
  if (host_.empty() || host_.find_first_of("@?# ") != host_.npos || !is_number) {
    fail(ErrorKind::usage, "the collector of traces must be an address like http://localhost:4318: {}",
         options_.endpoint);
  }
  target_ = fmt::format("{}/v1/traces", path);
  thread_ = std::thread([this] { run(); });
}

SpanExporter::~SpanExporter() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void SpanExporter::add(std::vector<Span> spans) {
  {
    const std::scoped_lock lock(mutex_);
    if (stopping_ || queue_.size() + spans.size() > options_.most_queued) {
      dropped_ += spans.size();
      return;
    }
    for (Span& span : spans) queue_.push_back(std::move(span));
    if (queue_.size() < options_.batch) return;
  }
  changed_.notify_one();
}

void SpanExporter::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait_for(lock, options_.interval, [&] { return stopping_ || queue_.size() >= options_.batch; });
    if (queue_.empty() && stopping_) return;
    if (queue_.empty()) continue;
    std::vector<Span> batch;
    while (!queue_.empty() && batch.size() < options_.batch) {
      batch.push_back(std::move(queue_.front()));
      queue_.pop_front();
    }
    const bool last = stopping_;
    lock.unlock();
    const std::uint64_t before = sent_;
    send(batch, last ? options_.last_limit : options_.time_limit);
    lock.lock();
    // Whoever does not take the first of the last ones is not waited for again.
    if (last && sent_ == before) {
      dropped_ += queue_.size();
      queue_.clear();
    }
  }
}

void SpanExporter::send(const std::vector<Span>& batch, std::chrono::milliseconds limit) {
  try {
    const http::PostResult result = http::post({.host = host_,
                                                .port = port_,
                                                .target = target_,
                                                .content_type = "application/json",
                                                .body = otlp_body(options_, batch),
                                                .time_limit = limit});
    if (result.status >= 200 && result.status < 300) {
      sent_ += batch.size();
      return;
    }
  } catch (const std::exception&) {
    // Whatever it was, the spans are lost, and the count says so.
  }
  dropped_ += batch.size();
}

}  // namespace quarrel
