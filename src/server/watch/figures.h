// The figures that WebSockets are told, which the page's dashboard draws: readings of what is counted, and what
// happened between two of them. They are those of /metrics, of all models together. Metrics makes the readings, the
// SocketHub has a feed of them.
//
// Threads: plain values, but for the feed, which belongs to one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "server/fields.h"

namespace quarrel {

struct HistogramReading {
  std::map<double, std::uint64_t> at_most = {};  // by a bucket's upper bound
  std::uint64_t count = 0;
};

struct ModelFigures {
  std::string name = {};
  std::size_t running = 0, waiting = 0;
  std::optional<double> kv_usage = {};  // share of the KV blocks; a recurrent model has none
  std::uint64_t bytes = 0;
  std::uint64_t cache_hit_tokens = 0, cache_miss_tokens = 0;  // of prompts, since it was loaded
};

// Requests, tokens and errors count since the start.
struct MetricsReading {
  Clock::time_point at = {};
  std::uint64_t requests = 0;  // for a model, that have ended
  std::uint64_t tokens = 0;    // generated
  std::uint64_t errors = 0;
  HistogramReading first_token = {}, token_gap = {};  // seconds
  std::vector<ModelFigures> models = {};
  std::optional<double> process_bytes = {};
};

// Seconds; none where nothing was measured. Within a bucket values are taken to lie evenly; what is beyond the last
// bound counts as that.
struct Percentiles {
  std::uint64_t count = 0;
  std::optional<double> p50 = {}, p90 = {}, p99 = {};
};

// What has happened since another reading.
struct MetricsChange {
  double seconds = 0.0;
  std::uint64_t tokens = 0;
  Percentiles first_token = {}, token_gap = {};
  std::uint64_t cache_hit_tokens = 0, cache_miss_tokens = 0;
};
MetricsChange change_between(const MetricsReading& before, const MetricsReading& after);

struct MetricsNews {
  MetricsReading now = {};
  std::optional<MetricsChange> change = {};  // none: there was no reading before
};

// What a `metrics` message tells a caller: totals, and of models those that it may use.
Json metrics_payload(const MetricsNews& news, const std::function<bool(const std::string& model)>& may_use);

// When the figures are read: as often as they are broadcast while somebody listens, at once for those who have just
// come, and never while nobody listens.
class MetricsFeed {
 public:
  struct Listeners {
    std::size_t all = 0;
    std::size_t newcomers = 0;  // of them: have been told nothing so far
  };
  struct Due {
    bool to_all = false;  // else to newcomers
    MetricsNews news = {};
  };

  // `every` is more than 0.
  MetricsFeed(std::chrono::milliseconds every, std::function<MetricsReading()> read)
      : every_(every), read_(std::move(read)) {}

  // None: there is nothing to tell now.
  std::optional<Due> look(Clock::time_point now, const Listeners& listeners);

 private:
  const std::chrono::milliseconds every_;
  const std::function<MetricsReading()> read_;
  std::optional<MetricsReading> before_;  // at the last broadcast; none: nobody has listened since
};

}  // namespace quarrel
