// The scheduler's requests and events, as plain values: no text, no sampling, no clock. Times are microseconds on a
// clock of the caller's choice.
#pragma once

#include <cstdint>
#include <vector>

#include "base/token.h"

namespace quarrel {

using RequestId = std::uint64_t;  // never used twice by one scheduler; 0 is none

enum class Priority : std::uint8_t { interactive, normal, batch };

// What happens to a text that would outgrow the context.
enum class Overflow : std::uint8_t {
  refuse,  // a request that could is not accepted
  stop,    // it ends there
  shift,   // the older half of what follows the first `keep` tokens is dropped
};

// Which outputs are wanted of the prompt's own rows, besides what follows it.
enum class PromptOutputs : std::uint8_t {
  none,
  scores,   // the log-probability of each token but the first
  vectors,  // each row
};

struct SchedRequest {
  std::vector<TokenId> prompt = {};
  std::int32_t max_tokens = -1;  // of an answer; -1: what the context leaves, or without end where it shifts; 0: none
  std::vector<TokenId> stop_tokens = {};  // each ends an answer; sorted by `submit`
  std::int32_t branches = 1;              // answers to the one prompt
  Priority priority = Priority::normal;
  Overflow overflow = Overflow::stop;
  std::uint64_t key = 0;         // whose request it is: keys share the machine evenly
  std::uint64_t salt = 0;        // texts of different salts never share cached blocks
  std::int64_t deadline_us = 0;  // when it ends at the latest; 0: never
  std::int64_t patience_us = 0;  // limit on waiting for its start, then its first token, then each further one; 0: none
  std::int32_t pinned = 0;       // how many tokens of the prompt should stay cached, as far as pins reach
  std::int32_t keep = 0;         // first tokens that a shift leaves
  PromptOutputs prompt_outputs = PromptOutputs::none;  // any but none: every row of the prompt is computed
  bool pooled = false;        // the text becomes one vector instead of being continued; max_tokens must be 0
  bool generated = false;     // the prompt's rows are of class generated: to measure what answers are computed with
  bool stepwise = false;      // the host must know each sampled token before the next row is planned: it has a mask
  bool tell_reading = false;  // `waiting` events come while it is queued, `prompt_read` while its prompt is computed
  bool use_cache = true;      // false: neither reads nor feeds the prefix cache
  bool continues = false;     // a further text of a call whose first was accepted: it may wait though the queue is full
};

enum class FinishReason : std::uint8_t {
  stop,       // a stop token was sampled
  length,     // max_tokens
  context,    // no room for more: with Overflow::stop, or when a shift could not make any
  cancelled,  // by the caller
  timeout,    // its deadline passed, or its patience ended
  failed,     // the model's numbers were not finite, or a step did not work
  no_token,   // mask and bias left no token that may come
};

// Every branch of an accepted request ends with exactly one `finished`, after which nothing more of it comes. `started`
// is reported once per request, for the first branch that has not finished, when it leaves the queue. The engine's
// events are these with what the step computed (TokenEvent), and some kinds of its own.
struct SchedEvent {
  enum class Kind : std::uint8_t {
    waiting,  // before `started`, on request, from time to time: how many in the queue would start before it
    started,
    prompt_read,  // after a step, on request: how much of the prompt is computed, while it is not all
    token,
    shifted,
    finished,
    prompt_score,   // the engine's: the next token of the prompt, as `sample`
    prompt_vector,  // the engine's: the next row of the prompt, in `values`
    vector,         // the engine's: one of the whole text, in `values`
  };
  Kind kind = Kind::token;
  FinishReason reason = FinishReason::stop;  // of finished
  std::int32_t branch = 0;
  RequestId request = 0;
  TokenId token = 0;         // of token; a stop token is reported too, before `finished`
  std::int32_t output = -1;  // of token: its place in StepPlan::outputs and so in the step's results
  std::int32_t ahead = 0;    // of waiting
  std::int32_t cached = 0;   // of started: tokens of the prompt that the cache had
  std::int32_t read = 0;     // of prompt_read: tokens of the prompt, those that the cache had included
  std::int32_t dropped = 0;  // of shifted: tokens forgotten behind the first `keep`
};

enum class SubmitStatus : std::uint8_t {
  accepted,
  queue_full,  // try again in `retry_after_us`
  draining,    // no new requests are taken
  too_long,    // `tokens` are asked for, `limit` is the most
  empty,       // no prompt
  malformed,   // a negative token, branches or a length beyond the limits
};

struct SubmitResult {
  SubmitStatus status = SubmitStatus::accepted;
  RequestId id = 0;
  std::int64_t retry_after_us = 0;
  std::int64_t tokens = 0;
  std::int64_t limit = 0;
};

}  // namespace quarrel
