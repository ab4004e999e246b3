// A Generation that somebody reads, with a descriptor that says when there is something to read.
#include <algorithm>
#include <atomic>
#include <limits>
#include <optional>
#include <utility>

#include "api/cancel_watch.h"
#include "api/collector.h"
#include "api/event_signal.h"
#include "api/generation_impl.h"
#include "api/model_impl.h"
#include "base/clock.h"
#include "session/generation_stream.h"

namespace quarrel::api {
namespace {

constexpr std::chrono::hours kLongestWait(24 * 365);

class ReadGeneration final : public Generation::Impl {
 public:
  ReadGeneration(std::shared_ptr<Model::Impl> model, const Ask& ask, const std::optional<CancelToken>& cancel)
      : model_(std::move(model)),
        signal_(std::make_shared<EventSignal>()),
        collector_(ask.answers),
        stream_(model_->loaded, ask, [signal = signal_] { signal->raise(); }),
        watch_(cancel, [this] { this->cancel(); }) {}

  std::optional<Event> next(std::optional<std::chrono::microseconds> timeout) override {
    std::optional<Clock::time_point> until;
    if (timeout) until = Clock::now() + std::clamp<std::chrono::microseconds>(*timeout, {}, kLongestWait);
    while (true) {
      std::optional<GenerationEvent> event = until ? stream_.next(time_left(*until)) : stream_.next();
      settle_signal();
      std::optional<Event> shown;
      if (event) shown = collector_.take(*event);
      done_ = stream_.done();
      if (shown || done_ || !event) return shown;
    }
  }

  bool done() const noexcept override { return done_; }

  std::vector<GenerateResult> wait() override {
    while (next(std::nullopt)) continue;
    return collector_.results(stream_.usage(), stream_.seed());
  }

  void cancel() noexcept override {
    collector_.end_all();
    stream_.cancel();
  }

  void cancel_answer(std::size_t answer) noexcept override {
    collector_.end(answer);
    if (std::cmp_less(answer, std::numeric_limits<std::int32_t>::max())) {
      stream_.cancel_answer(static_cast<std::int32_t>(answer));
    }
  }

  int event_fd() override {
    const int descriptor = signal_->descriptor();
    // What came before there was one.
    if (stream_.ready()) signal_->raise();
    return descriptor;
  }

 private:
  static std::chrono::microseconds time_left(Clock::time_point until) {
    const auto left = std::chrono::duration_cast<std::chrono::microseconds>(until - Clock::now());
    return std::max(left, std::chrono::microseconds(0));
  }

  // Readable as long as there is something to read. What comes in between is looked for again.
  void settle_signal() noexcept {
    if (!signal_->made() || stream_.ready()) return;
    signal_->lower();
    if (stream_.ready()) signal_->raise();
  }

  const std::shared_ptr<Model::Impl> model_;  // goes last
  const std::shared_ptr<EventSignal> signal_;
  Collector collector_;
  GenerationStream stream_;
  std::atomic<bool> done_ = false;
  CancelWatch watch_;  // goes first
};

}  // namespace

std::unique_ptr<Generation::Impl> open_generation(std::shared_ptr<Model::Impl> model, const Ask& ask,
                                                  const std::optional<CancelToken>& cancel) {
  return std::make_unique<ReadGeneration>(std::move(model), ask, cancel);
}

}  // namespace quarrel::api
