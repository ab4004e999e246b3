#include "server/watch/watch.h"

#include <utility>

#include "server/watch/request_log.h"
#include "server/watch/tracer.h"

namespace quarrel {

Watch::Watch(WatchOptions options, Service& service, std::function<std::size_t()> connections,
             std::function<std::vector<std::pair<std::string, std::uint64_t>>()> refusals)
    : options_(std::move(options)) {
  MetricSources sources{
      .models = [&service] { return service.registry().watch(); },
      .may_use = [&service](const Caller& caller, const std::string& model) { return service.may_use(caller, model); },
      .connections = std::move(connections),
      .refusals = std::move(refusals),
      .version = service.program().version};
  if (service.stores().any()) sources.stores = [&service] { return service.stores().observations(); };
  if (options_.request_log != nullptr) {
    sources.lost_log_lines = [log = options_.request_log] { return log->lost(); };
    service.observe(std::make_shared<RequestLog>(options_.request_log));
  }
  if (!options_.otlp_endpoint.empty()) {
    const auto exporter = std::make_shared<SpanExporter>(SpanExporterOptions{
        .endpoint = options_.otlp_endpoint, .service = options_.trace_service, .version = service.program().version});
    sources.spans_sent = [exporter] { return exporter->sent(); };
    sources.spans_dropped = [exporter] { return exporter->dropped(); };
    service.observe(std::make_shared<Tracer>(exporter));
  }
  auto metrics = std::make_shared<Metrics>(std::move(sources));
  service.observe(metrics);
  service.set_metrics(std::move(metrics));
}

void Watch::reload() {
  if (options_.request_log != nullptr) options_.request_log->reopen();
}

void metrics_text(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  exchange->respond({.content_type = "text/plain; version=0.0.4; charset=utf-8",
                     .body = service.metrics().text(*caller_of(*exchange))});
}

void metrics_json(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  exchange->respond({.body = service.metrics().json(*caller_of(*exchange))});
}

}  // namespace quarrel
