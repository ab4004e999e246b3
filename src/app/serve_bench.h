// Drives a model's engine with a planned load and measures what its clients would see. One thread sends; the sink runs
// on the engine's thread and only writes down when what happened.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "app/percentiles.h"
#include "app/serve_load.h"
#include "base/clock.h"
#include "session/loaded_model.h"

namespace quarrel {

// Times in milliseconds. The long prompt's request counts among the requests and tokens, but not among the times.
struct ServeResult {
  double seconds = 0.0;  // from the first request to the last end
  bool interrupted = false;
  std::int32_t finished = 0;
  std::int32_t refused = 0;  // the queue was full
  std::int32_t failed = 0;
  std::int32_t unfinished = 0;  // an interrupt came before their end
  std::int64_t prompt_tokens = 0;
  std::int64_t generated_tokens = 0;
  Percentiles first_token = {};  // since the request was sent
  Percentiles gap = {};          // between tokens of one answer
  Percentiles latency = {};      // of whole answers
  struct LongPrompt {
    std::int32_t tokens = 0;
    double first_token = 0.0;
    double latency = 0.0;
  };
  std::optional<LongPrompt> long_prompt = {};  // none: there was none, or it did not finish
  std::int32_t queue_peak = 0;
  double kv_peak = 0.0;  // the share of a KV group's blocks that running sequences held
  std::int32_t running_peak = 0;
  std::uint64_t preemptions = 0;
  std::uint64_t cache_hit_tokens = 0;
  std::uint64_t cache_miss_tokens = 0;
  std::uint64_t steps = 0;
  std::uint64_t failed_steps = 0;
  std::uint64_t prompt_rows = 0;
  std::uint64_t generated_rows = 0;
  std::string error = {};  // the first one of a request that failed

  double prompt_tokens_per_s() const noexcept;
  double generated_tokens_per_s() const noexcept;
  double cache_hit_rate() const noexcept;  // 0 where nothing was looked up
  double rows_per_step() const noexcept;
};

class ServeBench {
 public:
  // Called by the sending thread a few times a second with the requests that have ended; false stops everything.
  using GoOn = std::function<bool(std::size_t ended, std::size_t of)>;

  // `load` is resolved; the model holds its texts and as many sequences as are to run at once. Nobody else uses it.
  ServeBench(std::shared_ptr<LoadedModel> model, const LoadSettings& load);

  // Warms up with one short request, then measures. Once an object.
  ServeResult run(const GoOn& go_on);

 private:
  struct Progress {
    Clock::time_point sent = {};
    Clock::time_point last = {};  // token
    double first_token = 0.0;
    std::int32_t tokens = 0;
  };

  class Sink;

  void warm_up();
  void send_all(const GoOn& go_on);
  std::optional<std::size_t> due();
  void send(std::size_t request);
  void take(std::span<TokenEvent> events);
  void note_token(std::size_t request, Clock::time_point now);
  void note_end(std::size_t request, const TokenEvent& event, Clock::time_point now);
  void watch();
  void add_counters(const EngineCounters& before, const EngineCounters& after);

  const std::shared_ptr<LoadedModel> model_;
  const LoadSettings load_;
  const LoadPlan plan_;
  std::shared_ptr<Sink> sink_;  // of all requests

  std::mutex mutex_;  // of all below
  std::condition_variable ended_one_;
  std::vector<Progress> progress_;                   // [request]
  std::unordered_map<RequestId, std::size_t> sent_;  // which request it is
  std::size_t next_ = 0;                             // ordinary request
  std::size_t ended_ = 0;
  std::size_t ordinary_ended_ = 0;
  bool long_sent_ = false;
  Clock::time_point start_ = {};
  Clock::time_point last_end_ = {};
  Clock::time_point watched_ = {};
  std::vector<double> first_tokens_;
  std::vector<double> gaps_;
  std::vector<double> latencies_;
  ServeResult result_;
};

}  // namespace quarrel
