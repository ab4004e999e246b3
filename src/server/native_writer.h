// How Quarrel's own endpoints write an answer as events, for whatever kind of connection it goes to.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>

#include "base/clock.h"
#include "server/answer_event.h"
#include "server/generation_call.h"
#include "server/native_request.h"
#include "server/retrieval.h"

namespace quarrel {

// Of so many tokens, the first of which came so many seconds ago: 0 before there is a second one.
double tokens_per_second(std::size_t tokens, double seconds) noexcept;

// Events for a receiver; with `stream` off, one with the whole text. Whoever asked may say that it wants no more
// (`stopped`): then the end of a cancelled answer is no failure. `held` lives as long as the work does.
class EventWriter final : public AnswerWriter {
 public:
  struct Options {
    bool stream = true;
    bool progress = false;                                  // the receiver hears how much of the prompt is read
    std::shared_ptr<const std::atomic<bool>> stopped = {};  // null: never
    std::shared_ptr<const void> held = {};
    std::shared_ptr<const Retrieval> retrieval = {};  // whose sources the end tells; null: there are none
  };
  EventWriter(std::shared_ptr<AnswerReceiver> receiver, Options options)
      : receiver_(std::move(receiver)), options_(std::move(options)) {}

  void begin(const LoadedModel& model, const Generations& generations) override;
  void take(std::span<GenerationEvent> events) override;
  void end(const Usage& usage) override;
  void fail(const ApiError& error) override;
  void abandon() override;

 private:
  // Whoever asked has said that it wants no more: the end of a cancelled answer is no failure then.
  bool stop_is_wanted() const { return options_.stopped != nullptr && *options_.stopped; }
  void tell_progress(const GenerationEvent& event);
  void put_end(AnswerEnd end, double seconds);

  const std::shared_ptr<AnswerReceiver> receiver_;
  const Options options_;
  std::string text_;  // of an answer that comes whole
  std::string reason_ = "stop";
  std::size_t tokens_ = 0, prompt_tokens_ = 0;
  Clock::time_point first_ = Clock::now();
};

// What a model is asked, with the priority of the kind of answer: who waits at a WebSocket or a stream comes first.
MakeAsk make_native_ask(NativeRequest request, Priority priority, std::shared_ptr<Retrieval> retrieval = {});
CallOptions native_call_options(const NativeRequest& request, std::shared_ptr<Retrieval> retrieval);
// Null where the request wants none. Throws as Retrieval::of does.
std::shared_ptr<Retrieval> retrieval_for(Service& service, const NativeRequest& request, const Caller& caller);

}  // namespace quarrel
