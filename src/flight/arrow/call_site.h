// A call to the store, for messages and for what may be done when it fails; and the one place where what Arrow reports
// becomes an Error. Pure functions, and values that any thread may hold.
#pragma once

#include <arrow/result.h>
#include <arrow/status.h>

#include <string>
#include <utility>

#include "flight/longbow.h"

namespace quarrel::flight {

// Whether a call that failed may have changed the store.
enum class CallEffect { reads, writes };

struct CallSite {
  const char* verb = "";  // Flight's
  std::string dataset = {};
  std::string host = {};  // with the port
  CallEffect effect = CallEffect::reads;
};

// What ended a call beside the server's own answer.
enum class CallEnd { by_itself, timed_out, stopped };

[[noreturn]] void fail_call(const CallSite& site, ErrorKind kind, AfterFailure after, std::string_view reason);
// `status` is not OK, or the call was ended by us.
[[noreturn]] void fail_call(const CallSite& site, const arrow::Status& status, CallEnd end = CallEnd::by_itself);

inline void check(const CallSite& site, const arrow::Status& status) {
  if (!status.ok()) fail_call(site, status);
}

template <typename T>
T value_of(const CallSite& site, arrow::Result<T> result) {
  if (!result.ok()) fail_call(site, result.status());
  return std::move(result).ValueUnsafe();
}

}  // namespace quarrel::flight
