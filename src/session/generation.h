// Answers to one prompt as they come: an Ask becomes a request to the engine, and its tokens become text. Stop strings,
// special tokens, the best of several, usage and errors are handled here and nowhere else.
//
// Threads: a Generation has none and blocks none. Events arrive on the engine's thread and are turned into text by
// whatever runs `Post`, in order and never by two threads at once; the listener is called there. `cancel`, `done` and
// `usage` may be called from any thread, the listener included. To wait for an answer: generation_stream.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/request.h"
#include "session/ask.h"
#include "session/loaded_model.h"

namespace quarrel {

// In order: `waiting` if it has to wait, `started`, scores of the prompt, then pieces of the answers; each answer
// ends with one `finished`, after which nothing more of it comes. With `best_of`, nothing is reported before all have
// ended: then they come best first.
struct GenerationEvent {
  enum class Kind : std::uint8_t {
    waiting,       // on request: how many in the queue would start before it
    started,       // it has left the queue
    prompt_read,   // on request: how much of the prompt has been read, while it is not all
    prompt_score,  // the next token of the prompt: token, logprob, top
    piece,         // a token of an answer, and the text that may be shown now
    shifted,       // the context was full: the model no longer sees what was dropped
    finished,      // the answer's end
  };
  Kind kind = Kind::piece;
  std::int32_t answer = 0;
  std::int32_t branch = 0;             // which of the computed answers it is: drawn with branch_seed(seed, branch)
  std::string text = {};               // of piece; often empty: it could still begin a stop string, or half a character
  TokenId token = -1;                  // of piece: -1 for text that was held back
  bool hidden = false;                 // of piece: it belongs to a channel that is not the answer, such as reasoning
  float logprob = 0.0f;                // as the model gives it, before any sampling parameter
  std::vector<TokenLogprob> top = {};  // the most likely tokens at this position
  std::int32_t ahead = 0;              // of waiting
  std::int32_t cached = 0;             // of started: tokens of the prompt that the cache had
  std::int32_t read = 0;               // of prompt_read: tokens of the prompt
  std::int32_t dropped = 0;            // of shifted: tokens that were forgotten
  FinishReason reason = FinishReason::stop;  // of finished
  std::string error = {};                    // of finished: what went wrong with this answer, or why it was cancelled
};

struct Usage {
  std::size_t prompt_tokens = 0;
  std::size_t cached_tokens = 0;     // of those
  std::size_t generated_tokens = 0;  // of all answers, those that were not chosen included; none beyond a stop string
  double queue_seconds = 0.0;        // until it was started
  double prompt_seconds = 0.0;       // from then to the first token, or to the end if there is none
  double generate_seconds = 0.0;     // from then to the end of the last answer
};

class Generation {
 public:
  // Called with all events of one step or of several. If it throws, the generation is cancelled and it is not called
  // again. It may still be running on another thread when the Generation is destroyed, so it must own what it
  // touches.
  using Listener = std::function<void(std::span<GenerationEvent> events)>;
  // Runs a task soon, on some thread; a generation posts one task at a time. If posting throws, the task runs at once,
  // on the engine's thread.
  using Post = std::function<void(std::function<void()> task)>;

  // Renders and tokenises the prompt and submits it. Throws Error: unsupported for what the model cannot do, bad_input
  // for a prompt that is empty or too long (with both numbers) or an invalid option, busy when the engine's queue is
  // full (BusyError says when to retry). `post` empty: everything happens at once on the engine's thread, so the
  // listener must not block.
  static Generation start(std::shared_ptr<LoadedModel> model, const Ask& ask, Listener listener, Post post = {});

  Generation() = default;  // an empty one: done
  ~Generation();           // cancels what still runs
  Generation(Generation&&) noexcept;
  Generation& operator=(Generation&&) noexcept;

  void cancel(FinishReason reason = FinishReason::cancelled);
  // Only this answer. Not with `best_of`, whose answers have no numbers before all have ended.
  void cancel_answer(std::int32_t answer, FinishReason reason = FinishReason::cancelled);

  bool done() const;  // the end of every answer was reported, or the listener threw
  Usage usage() const;
  std::uint64_t seed() const noexcept;  // answer i can be reproduced alone with branch_seed(seed, i)
  std::span<const TokenId> prompt() const noexcept;

 private:
  class State;
  explicit Generation(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

// "stop", "length" …: for people and JSON.
std::string_view reason_name(FinishReason reason) noexcept;

}  // namespace quarrel
