// Traces of requests: an observer that gives each its span, with the parts of its work inside, and hands them to an
// exporter when it has ended.
//
// Threads: any.
#pragma once

#include <memory>
#include <vector>

#include "server/request_record.h"
#include "server/watch/span_exporter.h"

namespace quarrel {

// A request's spans, the whole first: loading, tokenising, waiting in the queue, prefill and decode are parts of it.
// `since_1970` is what the facts' clock is behind the wall's.
std::vector<Span> spans_of(const RequestFacts& facts, std::chrono::nanoseconds since_1970);

class Tracer final : public RequestObserver {
 public:
  explicit Tracer(std::shared_ptr<SpanExporter> exporter) : exporter_(std::move(exporter)) {}

  void identify(RequestFacts& facts) override;
  void ended(const RequestFacts& facts) override;

 private:
  const std::shared_ptr<SpanExporter> exporter_;
};

}  // namespace quarrel
