// A request that generates, from its question to the last event of its answer: the model is acquired, the prompt
// tokenised on a thread for texts, events become bytes by the dialect's writer. Whoever holds the call may cancel it;
// when nobody holds it any more its generation ends.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "server/api_error.h"
#include "server/generations.h"
#include "server/http/exchange.h"
#include "server/request_record.h"
#include "server/running_calls.h"
#include "server/service.h"
#include "session/generation.h"

namespace quarrel {

// How one dialect says what comes of a generation, and to whom. Its members are called one at a time, on various
// threads.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  // The request was accepted: the head of an answer in pieces can go out.
  virtual void begin(const LoadedModel& model, const Generations& generations) = 0;
  virtual void take(std::span<GenerationEvent> events) = 0;
  virtual void end(const Usage& usage) = 0;
  // Instead of `end`; the answer may have begun.
  virtual void fail(const ApiError& error) = 0;
  // There will be no answer, or not the rest of it, and nothing can be said: nobody may take a part for the whole.
  virtual void abandon() = 0;
};

// Of an answer to an HTTP request.
class HttpAnswerWriter : public AnswerWriter {
 public:
  explicit HttpAnswerWriter(const std::shared_ptr<http::Exchange>& exchange) : exchange_(exchange) {}
  void begin(const LoadedModel& model, const Generations& generations) final;
  void take(std::span<GenerationEvent> events) final;
  void end(const Usage& usage) final;
  void fail(const ApiError& error) final;
  void abandon() final;

 protected:
  virtual void send_head(http::Exchange& exchange, const LoadedModel& model, const Generations& generations) = 0;
  virtual void send_events(http::Exchange& exchange, std::span<GenerationEvent> events) = 0;
  virtual void send_end(http::Exchange& exchange, const Usage& usage) = 0;
  virtual void send_error(http::Exchange& exchange, const ApiError& error) = 0;

 private:
  const std::weak_ptr<http::Exchange> exchange_;  // which holds the call, and so this; gone: nobody reads any more
};

// What has to be had before the model is asked, such as texts out of a store. A call starts it once and ends it with
// itself.
class Preparation {
 public:
  virtual ~Preparation() = default;
  // `done` is called once, on any thread, with what went wrong or nothing; perhaps not at all after `cancel`.
  virtual void start(std::shared_ptr<RequestRecord> record, std::function<void(std::exception_ptr error)> done) = 0;
  // Waits for nobody; from any thread, more than once.
  virtual void cancel() noexcept = 0;
  // Reports a timeout where an engine that it asked hangs.
  virtual void end_if_silent(Clock::time_point now) = 0;
};

// What is asked depends on the model: its recommended sampling, its ids.
using MakeAsk = std::function<Ask(const LoadedModel& model)>;

// The same with what a request holds among the bodies of all: what it says counts until the model has been asked.
MakeAsk with_share(std::shared_ptr<void> share, MakeAsk make_ask);
// The same of a request's body.
MakeAsk with_body_share(const http::Exchange& exchange, MakeAsk make_ask);

class GenerationCall : public RunningCall {
 public:
  // Its writer is told of the end, if that has not come yet. Waits for nobody; from any thread, the writer's own too.
  virtual void cancel() = 0;
};

// How a call goes about it.
struct CallOptions {
  AcquireOptions acquire = {};
  std::shared_ptr<Preparation> before = {};  // null: the model is asked at once
  // Asked as the first one is; their answers are numbered behind its own.
  std::vector<decltype(Ask::prompt)> further_prompts = {};
  std::string prompt_field = "prompt";  // that prompts come from: what is wrong with one is told of it
};

// Returns at once. Whose the request is comes from its record.
std::shared_ptr<GenerationCall> start_generation(Service& service, std::shared_ptr<RequestRecord> record,
                                                 const OfferedModel& model, MakeAsk make_ask,
                                                 std::unique_ptr<AnswerWriter> writer, const CallOptions& options = {});
// The same for an exchange, which holds the call: when the client is gone the generation is cancelled.
void serve_generation(Service& service, const std::shared_ptr<http::Exchange>& exchange, const OfferedModel& model,
                      MakeAsk make_ask, std::unique_ptr<AnswerWriter> writer, const CallOptions& options = {});

}  // namespace quarrel
