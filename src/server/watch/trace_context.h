// Which trace a request belongs to, as W3C's `traceparent` header says it: "00-<32 hex>-<16 hex>-<2 hex>", the trace,
// the span that asks, and whether somebody records it. Plain values; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace quarrel {

struct TraceContext {
  std::string trace = {};   // 32 digits, not all 0
  std::string span = {};    // 16 digits, not all 0
  std::string parent = {};  // the span that this one is part of; empty: it is the first
  bool sampled = true;

  std::string header() const;  // for whoever goes on with it
};

// None: it is no traceparent. Of versions to come, what is known of theirs is read.
std::optional<TraceContext> read_traceparent(std::string_view header);

// A new span: part of the trace that the header tells of, or the first of a new one.
TraceContext new_span(std::string_view traceparent);
std::string new_span_id();

}  // namespace quarrel
