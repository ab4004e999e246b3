// A Generation that calls back, on the model's thread for callbacks.
#include <condition_variable>
#include <exception>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "api/cancel_watch.h"
#include "api/collector.h"
#include "api/generation_impl.h"
#include "api/model_impl.h"
#include "session/generation.h"

namespace quarrel::api {
namespace {

// What the session's listener and the owner share: the listener may be in the middle of a call when the owner goes.
class Conversation {
 public:
  Conversation(std::shared_ptr<Log> log, std::int32_t answers, GenerationCallbacks callbacks)
      : log_(std::move(log)), callbacks_(std::move(callbacks)), collector_(answers) {}

  // The listener. It waits until the owner knows the generation, which is a matter of moments.
  void hear(std::span<GenerationEvent> events) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return generation_ != nullptr || closed_; });
      if (closed_) return;
      calling_ = std::this_thread::get_id();
    }
    try {
      for (GenerationEvent& event : events) hear(event);
      if (collector_.finished()) report_end();
    } catch (...) {
      // There is no memory. The listener will not be called again, so whoever waits shall not wait for it.
      end_call(true);
      throw;
    }
    end_call(collector_.finished());
  }

  void begin(quarrel::Generation& generation) {
    const std::scoped_lock lock(mutex_);
    generation_ = &generation;
    changed_.notify_all();
  }

  void cancel() noexcept {
    collector_.end_all();
    const std::scoped_lock lock(mutex_);
    if (generation_ != nullptr) generation_->cancel();
  }

  void cancel_answer(std::size_t answer) noexcept {
    collector_.end(answer);
    const std::scoped_lock lock(mutex_);
    if (generation_ != nullptr && std::cmp_less(answer, std::numeric_limits<std::int32_t>::max())) {
      generation_->cancel_answer(static_cast<std::int32_t>(answer));
    }
  }

  bool done() const noexcept {
    const std::scoped_lock lock(mutex_);
    return done_;
  }

  std::vector<GenerateResult> wait() {
    std::unique_lock lock(mutex_);
    if (calling_ == std::this_thread::get_id()) {
      refuse(ErrorKind::usage, "a generation's callback cannot wait for its end");
    }
    changed_.wait(lock, [&] { return done_; });
    return results();
  }

  // No callback runs afterwards, unless it is the one that calls this.
  void close() noexcept {
    std::unique_lock lock(mutex_);
    closed_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return calling_ == std::thread::id{} || calling_ == std::this_thread::get_id(); });
    generation_ = nullptr;
  }

 private:
  void end_call(bool finished) noexcept {
    const std::scoped_lock lock(mutex_);
    calling_ = {};
    done_ = done_ || finished;
    changed_.notify_all();
  }

  void hear(GenerationEvent& event) {
    const std::optional<Event> shown = collector_.take(event);
    if (!shown || !callbacks_.on_event || failed() || is_closed()) return;
    bool wanted = true;
    call([&] { wanted = callbacks_.on_event(*shown); });
    if (!wanted) cancel_answer(shown->answer);
  }

  void report_end() {
    if (!callbacks_.on_done || is_closed()) return;
    std::vector<GenerateResult> answers;
    {
      const std::scoped_lock lock(mutex_);
      answers = results();
    }
    call([&] { callbacks_.on_done(answers); });
  }

  // What the user's callback throws ends the generation.
  template <typename Callback>
  void call(const Callback& callback) {
    try {
      return callback();
    } catch (const std::exception& error) {
      problem_ = std::string("a callback threw: ") + error.what();
    } catch (...) {
      problem_ = "a callback threw something";
    }
    log_->warn("{}", problem_);
    cancel();
  }

  // Under the lock.
  std::vector<GenerateResult> results() const {
    if (generation_ == nullptr) return {};
    std::vector<GenerateResult> answers = collector_.results(generation_->usage(), generation_->seed());
    for (GenerateResult& answer : answers) {
      if (answer.reason == FinishReason::cancelled && answer.error.empty()) answer.error = problem_;
    }
    return answers;
  }

  bool failed() const noexcept { return !problem_.empty(); }
  bool is_closed() const noexcept {
    const std::scoped_lock lock(mutex_);
    return closed_;
  }

  const std::shared_ptr<Log> log_;
  const GenerationCallbacks callbacks_;
  Collector collector_;
  std::string problem_;  // of a callback; written while one is called

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  quarrel::Generation* generation_ = nullptr;  // the owner's, until it is closed
  std::thread::id calling_ = {};               // the thread that a callback runs on
  bool closed_ = false;
  bool done_ = false;
};

class CallbackGeneration final : public Generation::Impl {
 public:
  CallbackGeneration(std::shared_ptr<Model::Impl> model, const Ask& ask, const std::optional<CancelToken>& cancel,
                     GenerationCallbacks callbacks)
      : model_(std::move(model)),
        conversation_(std::make_shared<Conversation>(model_->log, ask.answers, std::move(callbacks))) {
    model_->callbacks.begin();
    const auto listen = [conversation = conversation_](std::span<GenerationEvent> events) {
      conversation->hear(events);
    };
    generation_ = quarrel::Generation::start(model_->loaded, ask, listen, model_->callbacks.poster());
    conversation_->begin(generation_);
    try {
      watch_.emplace(cancel, [this] { conversation_->cancel(); });
    } catch (...) {
      conversation_->close();
      throw;
    }
  }

  ~CallbackGeneration() override {
    watch_.reset();
    conversation_->close();
  }

  std::optional<Event> next(std::optional<std::chrono::microseconds>) override { refuse_reading(); }
  int event_fd() override { refuse_reading(); }
  bool done() const noexcept override { return conversation_->done(); }
  std::vector<GenerateResult> wait() override {
    if (model_->callbacks.on_thread() && !done()) {
      refuse(ErrorKind::usage, "a callback cannot wait for a generation whose callbacks run on the same thread");
    }
    return conversation_->wait();
  }
  void cancel() noexcept override { conversation_->cancel(); }
  void cancel_answer(std::size_t answer) noexcept override { conversation_->cancel_answer(answer); }

 private:
  [[noreturn]] static void refuse_reading() {
    refuse(ErrorKind::usage, "this generation calls back: it is not to be read");
  }

  const std::shared_ptr<Model::Impl> model_;  // goes last
  const std::shared_ptr<Conversation> conversation_;
  quarrel::Generation generation_;
  std::optional<CancelWatch> watch_;
};

}  // namespace

std::unique_ptr<Generation::Impl> start_generation(std::shared_ptr<Model::Impl> model, const Ask& ask,
                                                   const std::optional<CancelToken>& cancel,
                                                   GenerationCallbacks callbacks) {
  return std::make_unique<CallbackGeneration>(std::move(model), ask, cancel, std::move(callbacks));
}

}  // namespace quarrel::api
