// All that watches the server, put together: metrics of requests and models, a line a request in the log, spans to a
// collector. Made by the server before its first request; what it makes lives as long as somebody has a use for it.
//
// Threads: any.
#pragma once

#include <memory>
#include <string>

#include "server/service.h"
#include "server/watch/metrics.h"
#include "server/watch/server_log.h"
#include "server/watch/span_exporter.h"

namespace quarrel {

struct WatchOptions {
  ServerLogOptions log = {};                    // for whoever makes the log
  std::shared_ptr<ServerLog> request_log = {};  // gets a line a request; none: there are no such lines
  std::string otlp_endpoint = {};  // of a collector of traces: "http://localhost:4318"; empty: there are none
  std::string trace_service = "quarrel";
};

class Watch {
 public:
  // Throws Error(usage) for a collector's address that is none.
  Watch(WatchOptions options, Service& service, std::function<std::size_t()> connections,
        std::function<std::vector<std::pair<std::string, std::uint64_t>>()> refusals);

  void reload();  // the log's file was moved away

 private:
  const WatchOptions options_;
};

// GET /metrics and GET /api/metrics: for Prometheus, and for programs that read JSON.
void metrics_text(Service& service, const std::shared_ptr<http::Exchange>& exchange);
void metrics_json(Service& service, const std::shared_ptr<http::Exchange>& exchange);

}  // namespace quarrel
