// An answer in Quarrel's own form, on its way to a client: pieces with their tokens, and an end. Made by NativeWriter,
// kept by ResumableAnswer, sent by a receiver for each kind of connection. Plain values and an interface; what promises
// a receiver makes about threads stands at it.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/token.h"
#include "server/api_error.h"
#include "server/json_body.h"
#include "server/resume_point.h"

namespace quarrel {

struct AnswerEnd {
  std::string finish_reason = {};  // "stop", "length", "cancelled" …
  std::size_t tokens_generated = 0, prompt_tokens = 0;
  bool whole = false;                  // all of its text comes with it
  std::string sources = {};            // a JSON array; empty: the question was asked as it was
  std::optional<ApiError> error = {};  // it failed, and the rest means nothing
};

struct AnswerEvent {
  std::string text = {};
  TokenId token = -1;  // -1: no token came with the text
  float tokens_per_second = 0.0f;
  std::shared_ptr<const AnswerEnd> end = {};  // of the last one
};

// An answer's failure, as its only or last event.
AnswerEvent failure_event(const ApiError& error);

// {"token","token_id","stream","complete","tokens_per_sec"}; the last one tells of the end and of sources too, and
// `resume` stands in it where it is not empty. Not for an event that is an error.
void append_payload(std::string& out, const AnswerEvent& event, std::string_view resume);

// {"state":"queued","ahead"}: how many in the queue would start before it.
Json queued_status(std::size_t ahead);
// {"state":"reading","prompt_tokens","prompt_tokens_read"}: how much of the prompt is read.
Json reading_status(std::size_t read, std::size_t prompt_tokens);

// Where an answer's events go. Called by one thread at a time, with a lock of the caller's held: it must not call back.
class AnswerReceiver {
 public:
  virtual ~AnswerReceiver() = default;
  // The model has taken the request. `point` is where the answer begins; its id is empty where it cannot be resumed.
  virtual void accepted(const ResumePoint& point) = 0;
  // So many in the queue would start before it, and so much of the prompt is read, where the request asked for it; of
  // no use to somebody who comes later.
  virtual void waiting(std::size_t /*ahead*/) {}
  virtual void reading(std::size_t /*read*/, std::size_t /*prompt_tokens*/) {}
  // The next events; `before` is the place of the one before them. False: nobody is there any more.
  virtual bool take(std::span<const AnswerEvent> events, const ResumePoint& before) = 0;
  // Another connection has taken the answer up: this one gets an end that says so, and nothing more.
  virtual void replaced();
};

}  // namespace quarrel
