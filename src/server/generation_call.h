// A request that generates, from its body to the last byte of its answer: the model is acquired, the prompt tokenised
// on a thread for texts, events become bytes by the dialect's writer. The exchange owns the call: when the client is
// gone the generation is cancelled.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "server/api_error.h"
#include "server/http/exchange.h"
#include "server/service.h"
#include "session/generation.h"

namespace quarrel {

// How one dialect says what comes of a generation. Its members are called one at a time, on various threads.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  // The request was accepted: the head of an answer in pieces can go out.
  virtual void begin(http::Exchange& exchange, const LoadedModel& model, const Generation& generation) = 0;
  virtual void take(http::Exchange& exchange, std::span<GenerationEvent> events) = 0;
  virtual void end(http::Exchange& exchange, const Usage& usage) = 0;
  // Instead of `end`; the answer may have begun.
  virtual void fail(http::Exchange& exchange, const ApiError& error) = 0;
};

// What is asked depends on the model: its recommended sampling, its ids.
using MakeAsk = std::function<Ask(const LoadedModel& model)>;

// Returns at once.
void start_generation(Service& service, const std::shared_ptr<http::Exchange>& exchange, const OfferedModel& model,
                      MakeAsk make_ask, std::unique_ptr<AnswerWriter> writer, const AcquireOptions& options = {});

}  // namespace quarrel
