#include "session/generation_stream.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "base/as_size.h"
#include "base/error.h"
#include "session/cancel_check.h"
#include "session/refusal.h"

namespace quarrel {

// Between the engine's thread, which leaves a task there, and the reader, who runs it and so makes events.
struct GenerationStream::Queue {
  std::mutex mutex;
  std::condition_variable came;
  std::function<void()> task;  // turns what has come into events
  bool closed = false;         // there is no reader any more
  // The reader's task fills it; or, without memory for a task, the engine's thread.
  std::deque<GenerationEvent> events;
};

GenerationStream::GenerationStream(std::shared_ptr<LoadedModel> model, const Ask& ask, std::function<void()> on_ready)
    : model_(std::move(model)), queue_(std::make_shared<Queue>()) {
  const auto listen = [queue = queue_](std::span<GenerationEvent> events) {
    const std::scoped_lock lock(queue->mutex);
    queue->came.notify_all();
    for (GenerationEvent& event : events) queue->events.push_back(std::move(event));
  };
  const auto post = [queue = queue_, on_ready = std::move(on_ready)](std::function<void()> task) {
    {
      const std::scoped_lock lock(queue->mutex);
      if (!queue->closed) queue->task.swap(task);
      queue->came.notify_all();
    }
    if (task) {
      task();
    } else if (on_ready) {
      on_ready();
    }
  };
  generation_ = Generation::start(model_, ask, listen, post);
}

GenerationStream::~GenerationStream() {
  generation_ = {};
  // A task that nobody runs holds what holds the queue.
  std::function<void()> unused;
  const std::scoped_lock lock(queue_->mutex);
  queue_->closed = true;
  unused.swap(queue_->task);
}

std::optional<GenerationEvent> GenerationStream::take(std::optional<Clock::time_point> until) {
  if (model_->engine().on_engine_thread()) {
    fail(ErrorKind::internal, "a sink cannot wait for the engine that calls it");
  }
  std::unique_lock lock(queue_->mutex);
  const auto came = [this] { return queue_->task || !queue_->events.empty() || generation_.done(); };
  while (queue_->events.empty() && !generation_.done()) {
    if (!until) {
      // Where there was no memory for a task, the end is known a moment after its event and nobody says so.
      while (!queue_->came.wait_for(lock, kCancelCheck, came)) {
      }
    } else if (!queue_->came.wait_until(lock, *until, came)) {
      return std::nullopt;
    }
    std::function<void()> task;
    task.swap(queue_->task);
    if (!task) continue;
    lock.unlock();
    task();
    lock.lock();
  }
  if (queue_->events.empty()) return std::nullopt;
  GenerationEvent event = std::move(queue_->events.front());
  queue_->events.pop_front();
  return event;
}

std::optional<GenerationEvent> GenerationStream::next() { return take(std::nullopt); }

std::optional<GenerationEvent> GenerationStream::next(std::chrono::microseconds timeout) {
  constexpr std::chrono::hours kLongest(24 * 365);
  return take(Clock::now() + std::min<std::chrono::microseconds>(timeout, kLongest));
}

bool GenerationStream::done() const {
  const std::scoped_lock lock(queue_->mutex);
  return queue_->events.empty() && generation_.done();
}

bool GenerationStream::ready() const {
  const std::scoped_lock lock(queue_->mutex);
  return queue_->task || !queue_->events.empty() || generation_.done();
}

void GenerationStream::cancel(FinishReason reason) { generation_.cancel(reason); }
void GenerationStream::cancel_answer(std::int32_t answer, FinishReason reason) {
  generation_.cancel_answer(answer, reason);
}
Usage GenerationStream::usage() const { return generation_.usage(); }
std::uint64_t GenerationStream::seed() const noexcept { return generation_.seed(); }
std::span<const TokenId> GenerationStream::prompt() const noexcept { return generation_.prompt(); }

void Answer::require_success() const {
  if (reason == FinishReason::failed || reason == FinishReason::no_token) require_finished(reason, error);
}

void GenerationResult::add(GenerationEvent& event) {
  if (event.kind == GenerationEvent::Kind::prompt_score) {
    prompt_scores.push_back({.token = event.token, .logprob = event.logprob, .top = std::move(event.top)});
    return;
  }
  if (event.kind != GenerationEvent::Kind::piece && event.kind != GenerationEvent::Kind::finished) return;
  if (answers.size() <= as_size(event.answer)) answers.resize(as_size(event.answer) + 1);
  Answer& answer = answers[as_size(event.answer)];
  if (event.kind == GenerationEvent::Kind::finished) {
    answer.reason = event.reason;
    answer.error = std::move(event.error);
    answer.branch = event.branch;
    return;
  }
  answer.text += event.text;
  if (event.token < 0) return;
  answer.tokens.push_back(event.token);
  answer.logprobs.push_back(event.logprob);
  if (!event.top.empty()) answer.top.push_back(std::move(event.top));
}

GenerationResult generate(std::shared_ptr<LoadedModel> model, const Ask& ask, const CollectOptions& options) {
  GenerationStream stream(std::move(model), ask);
  GenerationResult result;
  result.answers.resize(as_size(ask.answers));
  bool unwanted = false;
  while (!stream.done()) {
    if (!unwanted && options.cancelled && options.cancelled()) {
      unwanted = true;
      stream.cancel();
    }
    auto event = options.cancelled ? stream.next(kCancelCheck) : stream.next();
    if (!event) continue;
    if (!unwanted && options.on_event && !options.on_event(*event)) {
      unwanted = true;
      stream.cancel();
    }
    result.add(*event);
  }
  result.usage = stream.usage();
  for (Answer& answer : result.answers) answer.seed = branch_seed(stream.seed(), answer.branch);
  return result;
}

}  // namespace quarrel
