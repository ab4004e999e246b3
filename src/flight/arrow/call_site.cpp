#include "flight/arrow/call_site.h"

#include <arrow/flight/types.h>

#include <string_view>

#include "base/printable.h"

namespace quarrel::flight {
namespace {

constexpr std::size_t kLongestReason = 400;

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// What the server or the network said, without what Arrow and gRPC wrap around it.
std::string reason_of(const arrow::Status& status) {
  std::string_view message = status.message();
  message = message.substr(0, message.find(". gRPC client debug context:"));
  constexpr std::string_view kWrapping = "with message: ";
  if (const std::size_t at = message.find(kWrapping); at != std::string_view::npos) {
    message.remove_prefix(at + kWrapping.size());
  }
  return message.empty() ? "no reason was given" : printable(message, kLongestReason);
}

// Nothing of the call has left this machine.
bool never_connected(std::string_view message) {
  return has(message, "failed to connect to all addresses") || has(message, "DNS resolution failed") ||
         has(message, "name resolution failure");
}

bool certificate_refused(std::string_view message) {
  return has(message, "CERTIFICATE_VERIFY_FAILED") || has(message, "Peer name") || has(message, "handshake failed") ||
         has(message, "Handshake failed");
}

struct Meaning {
  ErrorKind kind;
  bool may_pass;  // the same call may succeed later
};

Meaning meaning_of_detail(arrow::flight::FlightStatusCode code, std::string_view message) {
  using arrow::flight::FlightStatusCode;
  switch (code) {
    case FlightStatusCode::TimedOut: return {ErrorKind::io, true};
    case FlightStatusCode::Cancelled: return {ErrorKind::cancelled, false};
    case FlightStatusCode::Unauthenticated:
    case FlightStatusCode::Unauthorized: return {ErrorKind::io, false};  // of who we are, not of what was asked
    case FlightStatusCode::Unavailable: {
      const bool full = has(message, "exhausted") || has(message, "rate limit") || has(message, "memory");
      return {full ? ErrorKind::busy : ErrorKind::io, true};
    }
    // The store's own words where its queue is full.
    case FlightStatusCode::Internal: return {has(message, "enqueue") ? ErrorKind::busy : ErrorKind::io, true};
    case FlightStatusCode::Failed: break;
  }
  return {ErrorKind::io, false};
}

Meaning meaning_of(const arrow::Status& status) {
  const std::string& message = status.message();
  if (const auto detail = arrow::flight::FlightStatusDetail::UnwrapStatus(status)) {
    return meaning_of_detail(detail->code(), message);
  }
  if (status.IsKeyError()) return {ErrorKind::not_found, false};
  if (status.IsNotImplemented()) return {ErrorKind::unsupported, false};
  if (status.IsCancelled()) return {ErrorKind::cancelled, false};
  if (status.IsOutOfMemory()) return {ErrorKind::out_of_memory, false};
  // Arrow has no status of its own for a server that is full.
  if (status.IsInvalid() && has(message, "gRPC returned resource exhausted")) return {ErrorKind::busy, true};
  if (status.IsInvalid() || status.IsTypeError() || status.IsAlreadyExists()) return {ErrorKind::bad_input, false};
  return {ErrorKind::io, false};
}

}  // namespace

void fail_call(const CallSite& site, ErrorKind kind, AfterFailure after, std::string_view reason) {
  const std::string on = site.dataset.empty() ? "" : fmt::format(" of '{}'", printable(site.dataset));
  throw LongbowError(kind, fmt::format("{}{} at {}: {}", site.verb, on, site.host, reason), after);
}

void fail_call(const CallSite& site, const arrow::Status& status, CallEnd end) {
  const bool writes = site.effect == CallEffect::writes;
  const AfterFailure uncertain = writes ? AfterFailure::read_back : AfterFailure::retry;
  if (end == CallEnd::stopped) fail_call(site, ErrorKind::cancelled, uncertain, "it was stopped");
  const std::string& message = status.message();
  if (end == CallEnd::timed_out) {
    fail_call(site, ErrorKind::io, uncertain, "the store made no progress within the time limit");
  }
  if (certificate_refused(message)) {
    fail_call(site, ErrorKind::io, AfterFailure::give_up, fmt::format("no trusted connection: {}", reason_of(status)));
  }
  if (never_connected(message)) {
    fail_call(site, ErrorKind::io, AfterFailure::retry,
              fmt::format("the store cannot be reached: {}", reason_of(status)));
  }
  const Meaning meaning = meaning_of(status);
  fail_call(site, meaning.kind, meaning.may_pass ? uncertain : AfterFailure::give_up, reason_of(status));
}

}  // namespace quarrel::flight
