#include "server/watch/span_exporter.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/printable.h"

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
  std::string_view base = options_.endpoint;
  while (base.ends_with('/')) base.remove_suffix(1);
  const std::optional<http::Url> url = http::Url::parse(fmt::format("{}/v1/traces", base));
  if (!url) {
    fail(ErrorKind::usage, "the collector of traces must be an address like http://localhost:4318: {}",
         printable(options_.endpoint));
  }
  collector_ = *url;
  batch_.reserve(options_.batch);
  thread_ = std::thread([this] { run(); });
}

SpanExporter::~SpanExporter() {
  {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, options_.last_limit, [&] { return ended_; });
  }
  stop_.request_stop();
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
  while (!queue_.empty() || !stopping_) {
    changed_.wait_for(lock, options_.interval, [&] { return stopping_ || queue_.size() >= options_.batch; });
    if (stop_.stop_requested()) {
      dropped_ += queue_.size();
      queue_.clear();
    }
    while (!queue_.empty() && batch_.size() < options_.batch) {
      batch_.push_back(std::move(queue_.front()));
      queue_.pop_front();
    }
    if (batch_.empty()) continue;
    lock.unlock();
    send(batch_);
    batch_.clear();
    lock.lock();
  }
  ended_ = true;
  changed_.notify_all();
}

void SpanExporter::send(const std::vector<Span>& batch) {
  try {
    const unsigned status = http::fetch(collector_,
                                        {.allowed_hosts = {collector_.authority()},
                                         .headers = {{"Content-Type", "application/json"}},
                                         .post = otlp_body(options_, batch),
                                         .connect_within = options_.time_limit,
                                         .silence = options_.time_limit,
                                         .stop = stop_.get_token()},
                                        [](unsigned, std::span<const std::byte>) {});
    if (status >= 200 && status < 300) {
      sent_ += batch.size();
      return;
    }
  } catch (const std::exception&) {
    // Whatever it was, the spans are lost, and the count says so.
  }
  dropped_ += batch.size();
}

}  // namespace quarrel
