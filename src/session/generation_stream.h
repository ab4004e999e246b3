// A generation for a thread that waits: its events one by one, or all of it at once. Text is made by the thread that
// reads, so a slow reader delays nobody else. Used by the program, the library and tools.
//
// Threads: one reader; `cancel` from any thread. Not to be waited for on the engine's own thread: Error(internal).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "session/generation.h"

namespace quarrel {

class GenerationStream {
 public:
  // Throws what Generation::start throws. `on_ready` is called whenever there may be something new to read, on the
  // engine's thread: it must not block or throw, and it owns what it touches.
  GenerationStream(std::shared_ptr<LoadedModel> model, const Ask& ask, std::function<void()> on_ready = {});
  ~GenerationStream();  // cancels what still runs
  GenerationStream(const GenerationStream&) = delete;
  GenerationStream& operator=(const GenerationStream&) = delete;

  // The next event; waits for it. None: everything was read.
  std::optional<GenerationEvent> next();
  // None also when nothing came in time; `done` tells which it was.
  std::optional<GenerationEvent> next(std::chrono::microseconds timeout);
  bool done() const;   // everything was read
  bool ready() const;  // `next` would not wait, or not for long: something has come, or everything was read

  void cancel(FinishReason reason = FinishReason::cancelled);
  void cancel_answer(std::int32_t answer, FinishReason reason = FinishReason::cancelled);
  Usage usage() const;
  std::uint64_t seed() const noexcept;
  std::span<const TokenId> prompt() const noexcept;

 private:
  struct Queue;
  std::optional<GenerationEvent> take(std::optional<Clock::time_point> until);

  const std::shared_ptr<LoadedModel> model_;
  std::shared_ptr<Queue> queue_;
  Generation generation_;
};

struct Answer {
  std::string text = {};
  std::vector<TokenId> tokens = {};
  std::vector<float> logprobs = {};                 // of each token
  std::vector<std::vector<TokenLogprob>> top = {};  // of each token, where they were asked for
  FinishReason reason = FinishReason::failed;
  std::string error = {};   // why, where it failed
  std::int32_t branch = 0;  // which of the computed answers it was
  std::uint64_t seed = 0;   // reproduces it alone

  // Throws Error(bad_file) for an answer that failed, Error(bad_input) for one that had no token to go on with.
  void require_success() const;
};

struct PromptScore {
  TokenId token = -1;
  float logprob = 0.0f;
  std::vector<TokenLogprob> top = {};
};

struct GenerationResult {
  std::vector<Answer> answers = {};
  std::vector<PromptScore> prompt_scores = {};  // of each token but the first, where they were asked for
  Usage usage = {};

  // Adds what an event says. For those that listen and want the whole in the end.
  void add(GenerationEvent& event);
};

struct CollectOptions {
  // Called with each event as it comes; false cancels everything.
  std::function<bool(const GenerationEvent&)> on_event = {};
  // Asked from time to time, and after each event: true cancels everything.
  std::function<bool()> cancelled = {};
};

// All of it. An answer that failed does not discard the others: see Answer::require_success.
GenerationResult generate(std::shared_ptr<LoadedModel> model, const Ask& ask, const CollectOptions& options = {});

}  // namespace quarrel
