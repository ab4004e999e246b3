// Answers: what they are made from (Prompt), how (GenerateOptions), and how they come: all at once, piece by piece on
// the calling thread, or as a Generation that blocks no thread. Include quarrel.h.
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "quarrel/common.h"

namespace quarrel::api {

struct Message {
  std::string role{};  // "system", "user" or "assistant", or what else the model's template knows
  std::string content{};
  std::string more{};  // a JSON object with what else the template knows of a message: "tool_calls", "name" …
};

// What a chat template is given.
struct Chat {
  std::vector<Message> messages{};
  std::string tools{};                // a JSON list of tools, as templates know them; empty: none
  std::string arguments{};            // a JSON object: more variables of the template's own, by name; empty: none
  bool add_generation_prompt = true;  // ends where the assistant's next message begins
};

// What an answer continues. Made of what it is given: a text, which is yours from end to end (what spells a control
// token becomes it); tokens as they are; messages, or a Chat.
struct Prompt {
  template <std::convertible_to<std::string_view> Text>
  Prompt(const Text& text) : value(std::in_place_type<std::string>, std::string_view(text)) {}
  template <std::convertible_to<std::span<const Token>> Tokens>
  Prompt(const Tokens& tokens) : value(std::in_place_type<std::vector<Token>>) {
    const std::span<const Token> list(tokens);
    std::get<std::vector<Token>>(value).assign(list.begin(), list.end());
  }
  template <std::convertible_to<std::span<const Message>> Messages>
  Prompt(const Messages& messages) : value(std::in_place_type<Chat>) {
    const std::span<const Message> list(messages);
    std::get<Chat>(value).messages.assign(list.begin(), list.end());
  }
  Prompt(Chat chat) : value(std::move(chat)) {}

  std::variant<std::string, std::vector<Token>, Chat> value;
};

// A conversation as the model's template writes it, up to where the answer begins. Generate from the tokens: they tell
// control tokens that the template wrote from text that only looks like them.
struct ChatPrompt {
  std::string text{};
  std::vector<Token> tokens{};
};

struct TokenLogprob {
  Token token = kNoToken;
  float logprob = 0.0f;
};

// Ends answers from another thread, however many were started with it. Copies are the same token. An answer that was
// started with a token already cancelled ends at once; cancelling has no end.
class QUARREL_API CancelToken {
 public:
  CancelToken();

  // A callback that is about to begin may still come, and none after it.
  void cancel() const;
  bool cancelled() const noexcept;

  struct State;

 private:
  friend class CancelWatch;
  std::shared_ptr<State> state_;
};

// Which tokens the presence and frequency penalties count. The one for repetition always looks at the last
// `penalty_window` tokens of prompt and answer.
enum class PenaltyScope {
  answer,  // all of the answer and nothing of the prompt: OpenAI's meaning
  recent,  // the last `penalty_window` of both: llama.cpp's
};

// What happens to a text that would outgrow the context.
enum class Overflow {
  refuse,  // it is not begun, if it could
  stop,    // it ends there
  shift,   // the older half of what stands behind the first `keep` tokens is forgotten
};

// Says which tokens may come next in an answer. `tokens`: those it has so far. `allowed`: a bit a token of the
// vocabulary, the lowest bit first, all zero; 1 may come. Called on a thread of the model's, which waits for it: it
// must be quick and must not wait for the model. An answer without any ends with FinishReason::no_token; what the
// callback throws ends that answer alone, as failed.
using TokenMask =
    std::function<void(std::size_t answer, std::span<const Token> tokens, std::span<std::uint64_t> allowed)>;

// How tokens are chosen does not depend on the order of these fields: bias and mask come first, then penalties, then
// mirostat or top_k, typical_p, top_p and min_p, and temperature last.
struct GenerateOptions {
  std::int32_t max_tokens = -1;  // -1: until the model ends or the context is full
  float temperature = 0.0f;      // 0: always the most likely token
  std::int32_t top_k = 0;        // 0: all
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repeat_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  std::int32_t penalty_window = 64;                 // how many last tokens are recent; -1: all
  std::optional<std::uint64_t> seed{};              // none: another one each time; the result tells which
  std::vector<std::string> stop{};                  // texts that end the answer and are no part of it
  std::optional<std::vector<Token>> stop_tokens{};  // none: those of the model
  std::int32_t logprobs = 0;                        // how many most likely tokens to report of each, at most 20
  std::chrono::milliseconds timeout{0};             // waiting included; 0: none
  std::optional<CancelToken> cancel{};
  std::int32_t answers = 1;  // that `generate_many` and `chat_many` give, each drawn with a seed of its own
  // Of so many answers that are computed, the best ones are given: those whose tokens are likeliest on the average, as
  // the model has it. 0: no more than are given. Beyond that, pieces come when all have ended, the best answer's first.
  std::int32_t best_of = 0;

  PenaltyScope penalty_scope = PenaltyScope::answer;
  float typical_p = 1.0f;  // locally typical sampling; 1: all
  bool mirostat = false;   // mirostat 2 instead of top_k, top_p, min_p and typical_p
  float mirostat_tau = 5.0f;
  float mirostat_eta = 0.1f;
  std::vector<std::pair<Token, float>> logit_bias{};  // added to the logits of these tokens
  TokenMask mask{};                                   // none: every token may come
  bool show_special = false;                          // control tokens appear in the text as they are spelled
  bool prompt_logprobs = false;                       // of each token of the prompt but the first
  Overflow overflow = Overflow::stop;
  std::int32_t keep = 0;  // first tokens of the prompt that a shift leaves
  Priority priority = Priority::normal;
  std::uint64_t key = 0;    // whose call it is: keys share the model evenly
  std::uint64_t salt = 0;   // prompts of different salts share nothing in the prefix cache
  bool use_cache = true;    // false: neither reads nor feeds the prefix cache
  std::int32_t pinned = 0;  // so many tokens of the prompt should stay in the prefix cache
};

enum class FinishReason {
  stop,       // a stop token or a stop string came
  length,     // max_tokens
  context,    // no room for more
  cancelled,  // the callback said so, or a CancelToken, or `cancel`
  timeout,
  failed,    // the model could not compute it: see `error`
  no_token,  // mask and bias left no token that may come
};

struct GenerateResult {
  std::string text{};                            // what the callback was given, in one piece
  std::vector<Token> tokens{};                   // a stop token is the last of them
  std::vector<float> logprobs{};                 // of each token
  std::vector<std::vector<TokenLogprob>> top{};  // of each token, where they were asked for
  FinishReason reason = FinishReason::stop;
  std::string error{};  // why it failed, had no token, or was cancelled, where somebody knows
  std::size_t prompt_tokens = 0;
  std::size_t cached_tokens = 0;  // of the prompt, how many needed no computing
  std::uint64_t seed = 0;         // gives this answer again, of several too when it is asked for alone
  // Of each token of the prompt but the first, where they were asked for. Of several answers the first one has them.
  std::vector<TokenLogprob> prompt_logprobs{};
  std::vector<std::vector<TokenLogprob>> prompt_top{};  // the most likely ones in its place
  double queue_seconds = 0.0;                           // until it was begun
  double prompt_seconds = 0.0;                          // from then to the first token of any answer
  double generate_seconds = 0.0;                        // from then to the end of the last answer
};

// One token of an answer and the text that may be shown since the last one. The text can be empty: half a character, or
// what could still become a stop string, waits. What is left of it at the end comes without a token.
struct Piece {
  std::string_view text{};  // whole characters of UTF-8; lives as long as the call
  Token token = kNoToken;
  float logprob = 0.0f;                 // of the token, as the model has it
  std::span<const TokenLogprob> top{};  // most likely first, as many as were asked for
  std::size_t answer = 0;               // of several answers, its place in the list that `generate_many` gives
};

// False ends the answer that the piece belongs to.
using PieceCallback = std::function<bool(const Piece& piece)>;

// What happens to a Generation, in order: `started`, log-probabilities of the prompt, then pieces; each answer ends
// with one `finished`, and nothing of it follows.
struct Event {
  enum class Kind {
    started,         // it has left the queue
    prompt_logprob,  // the next token of the prompt: token, logprob, top
    piece,           // as Piece has it
    shifted,         // the context was full: what was forgotten is not seen any more
    finished,        // the answer's end
  };
  Kind kind = Kind::piece;
  std::size_t answer = 0;
  std::string text{};
  Token token = kNoToken;
  float logprob = 0.0f;
  std::vector<TokenLogprob> top{};
  std::size_t cached_tokens = 0;             // of started
  std::size_t dropped_tokens = 0;            // of shifted
  FinishReason reason = FinishReason::stop;  // of finished
  std::string error{};                       // of finished, as GenerateResult has it
};

// They come on a thread of the model's that is there for callbacks alone: one at a time, of all of a model's
// generations, perhaps before `start` has returned. A slow one holds up other callbacks, but no computing. They may
// call anything, and close their own generation. What they throw cancels the generation, and goes to
// LoadOptions::warning.
struct GenerationCallbacks {
  std::function<bool(const Event& event)> on_event{};  // false ends the answer that the event is of
  // All answers have ended: the last call. Not called once the Generation was closed.
  std::function<void(const std::vector<GenerateResult>& answers)> on_done{};
};

// Answers on their way, which no thread waits for. Made by Model::open, and then read with `next`; or by Model::start,
// and then callbacks are called. Closing it cancels what still runs.
//
// Threads: `next` and `wait` by one thread at a time; `cancel`, `cancel_answer` and `done` by any. Reading makes the
// text, so it costs the reader's time and nobody else's.
class QUARREL_API Generation {
 public:
  Generation() noexcept;  // of nothing: done
  ~Generation();          // closes it
  Generation(Generation&& other) noexcept;
  Generation& operator=(Generation&& other) noexcept;

  // The next event; waits for it. None: everything was read.
  std::optional<Event> next();
  // None also when nothing came in time (0: nothing is there now); `done` tells which it was.
  std::optional<Event> next(std::chrono::microseconds timeout);
  // Everything was read, or the last callback has returned.
  bool done() const noexcept;
  // Reads the rest, or waits for the last callback, and gives the answers with all that was read before.
  std::vector<GenerateResult> wait();

  // No piece is reported any more; each answer still ends with `finished`.
  void cancel() noexcept;
  // The same for one answer alone. Where `best_of` chooses among more than are given all are computed nevertheless.
  void cancel_answer(std::size_t answer) noexcept;
  // Cancels what still runs and lets go of it. Returns when no callback runs any more and none will come; called by
  // such a callback itself, when that was the last.
  void close() noexcept;

  // A file descriptor (eventfd) for poll, epoll and the like: readable while `next` would not wait, so also at the end.
  // Not to be read or closed by others; it goes with the generation. Error(io) where there is none to be had,
  // Error(usage) where callbacks are called.
  int event_fd();

  struct Impl;

 private:
  friend class Model;
  explicit Generation(std::unique_ptr<Impl> impl) noexcept;
  Impl& impl() const;

  std::unique_ptr<Impl> impl_;
};

}  // namespace quarrel::api
