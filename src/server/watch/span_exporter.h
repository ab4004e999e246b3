// Sends spans to a collector by OTLP over HTTP, as JSON: in batches, from a thread of its own, within bounds of number
// and time. A collector that is slow, full or gone costs spans, which are counted, and nothing else.
//
// Threads: any.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "server/http/client.h"

namespace quarrel {

struct Span {
  using Value = std::variant<std::string, std::int64_t, double>;
  std::string trace = {}, id = {}, parent = {};
  std::string name = {};
  bool server = false;                    // it answers somebody, in place of being a part of such a span
  std::int64_t begin_ns = 0, end_ns = 0;  // since 1970
  std::vector<std::pair<std::string, Value>> attributes = {};
  std::string error = {};  // empty: it went well
};

struct SpanExporterOptions {
  std::string endpoint = {};  // "http://host:4318" or https; spans go to its /v1/traces
  std::string service = "quarrel";
  std::string version = {};
  std::size_t most_queued = 4096;  // spans
  std::size_t batch = 512;
  std::chrono::milliseconds interval = std::chrono::seconds(1);    // how long a span waits for others
  std::chrono::seconds time_limit = std::chrono::seconds(5);       // of the collector, to be reached and to answer
  std::chrono::milliseconds last_limit = std::chrono::seconds(1);  // of all that is sent at the end
};

// One batch as OTLP has it.
std::string otlp_body(const SpanExporterOptions& options, const std::vector<Span>& spans);

class SpanExporter {
 public:
  // Throws Error(usage) for an endpoint that is no address.
  explicit SpanExporter(SpanExporterOptions options);
  // Sends what it has, if the collector is quick.
  ~SpanExporter();
  SpanExporter(const SpanExporter&) = delete;
  SpanExporter& operator=(const SpanExporter&) = delete;

  // Of a request's spans all are taken or none.
  void add(std::vector<Span> spans);
  std::uint64_t sent() const noexcept { return sent_; }
  std::uint64_t dropped() const noexcept { return dropped_; }

 private:
  void run();
  void send(const std::vector<Span>& batch);

  const SpanExporterOptions options_;
  http::Url collector_;
  std::stop_source stop_;  // ends the request that runs
  std::atomic<std::uint64_t> sent_ = 0, dropped_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Span> queue_;  // guarded, like the next
  bool stopping_ = false, ended_ = false;
  std::vector<Span> batch_;  // of the thread alone; it has its room from the beginning, so that filling it cannot fail
  std::thread thread_;
};

}  // namespace quarrel
