#include "server/progress_stream.h"

#include "server/request_record.h"

namespace quarrel {
namespace {

using http::Exchange;

constexpr std::chrono::milliseconds kMoment{100};

}  // namespace

ProgressStream::ProgressStream(const std::shared_ptr<Exchange>& exchange, bool stream)
    : exchange_(exchange), stream_(stream) {
  if (!stream_) return;
  events_ = exchange->request().header("Accept").find("text/event-stream") != std::string_view::npos;
  exchange->request().record->update([](RequestFacts& facts) { facts.stream = true; });
  exchange->begin(http::stream_head(events_ ? "text/event-stream" : "application/x-ndjson"));
}

bool ProgressStream::write(const Json& news) {
  if (ended_) return false;
  const std::shared_ptr<Exchange> exchange = exchange_.lock();
  if (exchange == nullptr) return false;
  if (!stream_) return true;
  return exchange->write(events_ ? "data: " + compact_json(news) + "\n\n" : compact_json(news) + "\n");
}

bool ProgressStream::tell(const Json& news) {
  const std::scoped_lock lock(mutex_);
  return write(news);
}

bool ProgressStream::tell_now_and_then(const Json& news) {
  const std::scoped_lock lock(mutex_);
  const Clock::time_point now = Clock::now();
  if (now - last_ < kMoment) return !ended_;
  last_ = now;
  return write(news);
}

void ProgressStream::end(const Json& result) {
  const std::scoped_lock lock(mutex_);
  write(result);
  const std::shared_ptr<Exchange> exchange = ended_ ? nullptr : exchange_.lock();
  ended_ = true;
  if (exchange == nullptr) return;
  if (stream_) {
    exchange->finish();
  } else {
    exchange->respond({.body = compact_json(result)});
  }
}

void ProgressStream::fail(const ApiError& error) {
  const std::scoped_lock lock(mutex_);
  write(Json::parse(plain_error_body(error)));
  const std::shared_ptr<Exchange> exchange = ended_ ? nullptr : exchange_.lock();
  ended_ = true;
  if (exchange == nullptr) return;
  exchange->request().record->update([&](RequestFacts& facts) { note_error(facts, error); });
  if (stream_) {
    exchange->finish();
  } else {
    exchange->respond(plain_error(error));
  }
}

void ProgressStream::abandon() noexcept {
  try {
    const std::scoped_lock lock(mutex_);
    const std::shared_ptr<Exchange> exchange = exchange_.lock();
    ended_ = true;
    if (exchange != nullptr) exchange->abandon();
  } catch (const std::exception&) {
    return;  // there is no memory for anything
  }
}

}  // namespace quarrel
