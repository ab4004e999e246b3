// What Prometheus is told: counts and times of requests, gathered as their records are filled, and what the models and
// the process say of themselves when somebody asks. Every label has a bounded number of values.
//
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/caller.h"
#include "server/longbow_stores.h"
#include "server/request_record.h"
#include "server/watch/figures.h"
#include "session/model_registry.h"

namespace quarrel {

// What is read off when somebody asks. None: it is not told of.
struct MetricSources {
  std::function<std::vector<ModelRegistry::Watched>()> models = {};
  // Whether a caller may use a model of this name; none: by its own names alone.
  std::function<bool(const Caller&, const std::string& model)> may_use = {};
  std::function<std::size_t()> connections = {};
  std::function<std::uint64_t()> lost_log_lines = {};
  std::function<std::vector<std::pair<std::string, std::uint64_t>>()> refusals =
      {};                                          // before a body is read, by reason
  std::function<StoreObservations()> stores = {};  // of vectors
  std::function<std::uint64_t()> spans_sent = {}, spans_dropped = {};
  std::string version = {};
};

class Metrics final : public RequestObserver {
 public:
  explicit Metrics(MetricSources sources);
  ~Metrics() override;

  void begun(const RequestFacts& facts) override;
  void tokens(const RequestFacts& facts, const TokenBatch& batch) override;
  void ended(const RequestFacts& facts) override;

  // What the caller may know: figures of a model that it may not use are left out, as if there were no such model.
  std::string text(const Caller& caller = {}) const;  // Prometheus' text format, version 0.0.4
  std::string json(const Caller& caller = {}) const;  // the same figures: a list of families
  // Of them those that are broadcast, as they are now.
  MetricsReading read() const;

 private:
  class Series;
  const MetricSources sources_;
  const std::unique_ptr<Series> series_;
};

}  // namespace quarrel
