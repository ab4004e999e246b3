// News of something that takes its time, on its way to a client: lines of JSON, or server-sent events for one that
// accepts those; or, for who does not want a stream, nothing but the end. Any thread.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "server/api_error.h"
#include "server/fields.h"
#include "server/http/exchange.h"

namespace quarrel {

class ProgressStream {
 public:
  // The head of a stream goes out at once.
  ProgressStream(const std::shared_ptr<http::Exchange>& exchange, bool stream);

  // False: nobody reads any more.
  bool tell(const Json& news);
  // The same, left out where the last one was a moment ago.
  bool tell_now_and_then(const Json& news);
  // Nothing may follow these.
  void end(const Json& result);
  void fail(const ApiError& error);
  // The end cannot be said: nobody may take what was for the whole.
  void abandon() noexcept;

 private:
  bool write(const Json& news);  // under the lock

  const std::weak_ptr<http::Exchange> exchange_;
  const bool stream_;
  bool events_ = false;  // server-sent ones
  std::mutex mutex_;     // guards all below
  bool ended_ = false;
  Clock::time_point last_ = {};
};

}  // namespace quarrel
