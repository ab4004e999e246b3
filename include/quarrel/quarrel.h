// Quarrel in a program of your own: load a model, turn text into tokens and back, generate, embed. This header needs
// nothing but the standard library; quarrel_c.h is the same for C and whatever speaks to it.
//
//   const quarrel::api::Model model = quarrel::api::Model::load("default");
//   const auto result = model.generate("Once upon a time", {.max_tokens = 64}, [](const quarrel::api::Piece& piece) {
//     std::cout << piece.text << std::flush;
//     return true;
//   });
//
// Threads: every member may be called from any thread, several at once. Calls of `generate` share the model: their
// tokens are computed together, and each gets the same answer as if it were alone. Whoever calls waits; callbacks come
// on the thread that called.
//
// Errors are thrown as quarrel::api::Error. What a callback of yours throws comes out as it is.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#if defined(__GNUC__)
#define QUARREL_API __attribute__((visibility("default")))
#else
#define QUARREL_API
#endif

namespace quarrel::api {

using Token = std::int32_t;
inline constexpr Token kNoToken = -1;

enum class ErrorKind {
  usage,          // the call is malformed
  not_found,      // a file or a model that is not there
  bad_file,       // a file that is damaged
  bad_input,      // text, tokens, messages or parameters that cannot be used
  unsupported,    // well-formed, but not something this model or this build can do
  out_of_memory,  // it would not fit, or it did not
  io,             // the operating system refused
  cancelled,      // somebody asked for it to stop
  busy,           // too many requests wait already; try again later
  failed,         // the model could not compute an answer
  internal,       // our own mistake
};

class QUARREL_API Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

// "0.1.0".
QUARREL_API const char* version() noexcept;

struct LoadOptions {
  std::string device = "cpu";   // or "reference": slow, and the definition of every number
  std::int32_t threads = 0;     // 0: one a core that the process may use
  std::int32_t context = 0;     // tokens of a prompt and its answer; 0: what the model was made for, or what fits
  std::int32_t sequences = 4;   // answers computed at once; more calls than that wait their turn
  bool embeddings = false;      // vectors instead of text, of a model that can do both; encoders need no asking
  std::uint64_t memory = 0;     // bytes to stay within; 0: what the machine has
  std::string chat_template{};  // the text of a Jinja template instead of the model's own
  // How far loading is, in bytes; false ends it with Error(cancelled).
  std::function<bool(std::uint64_t done, std::uint64_t total)> progress{};
  // What is odd about the model but no reason to refuse it. Called while loading only.
  std::function<void(std::string_view line)> warning{};
};

struct Message {
  std::string role{};  // "system", "user" or "assistant", or what else the model's template knows
  std::string content{};
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

// Ends answers from another thread, however many were started with it. Copies are the same token. An answer that was
// started with a token already cancelled ends at once; cancelling has no end.
class QUARREL_API CancelToken {
 public:
  CancelToken();

  // A callback that is about to begin may still come, and none after it.
  void cancel() const;
  bool cancelled() const noexcept;

 private:
  friend class Model;
  struct State;
  std::shared_ptr<State> state_;
};

struct GenerateOptions {
  std::int32_t max_tokens = -1;  // -1: until the model ends or the context is full
  float temperature = 0.0f;      // 0: always the most likely token
  std::int32_t top_k = 0;        // 0: all
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repeat_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  std::int32_t penalty_window = 64;                 // how many last tokens the penalties look at; -1: all
  std::optional<std::uint64_t> seed{};              // none: another one each time; the result tells which
  std::vector<std::string> stop{};                  // texts that end the answer and are no part of it
  std::optional<std::vector<Token>> stop_tokens{};  // none: those of the model
  std::int32_t logprobs = 0;                        // how many most likely tokens to tell of each, at most 20
  std::chrono::milliseconds timeout{0};             // waiting included; 0: none
  std::optional<CancelToken> cancel{};
  std::int32_t answers = 1;  // that `generate_many` and `chat_many` give, each drawn with a seed of its own
  // Of so many answers that are computed, the best ones are given: those whose tokens are likeliest on the average, as
  // the model has it. 0: no more than are given. Beyond that, no callback can be told what will be chosen: there must
  // be none.
  std::int32_t best_of = 0;
};

enum class FinishReason {
  stop,       // a stop token or a stop string came
  length,     // max_tokens
  context,    // no room for more
  cancelled,  // the callback said so, or a CancelToken
  timeout,
};

struct GenerateResult {
  std::string text{};                            // what the callback was given, in one piece
  std::vector<Token> tokens{};                   // a stop token is the last of them
  std::vector<float> logprobs{};                 // of each token
  std::vector<std::vector<TokenLogprob>> top{};  // of each token, where they were asked for
  FinishReason reason = FinishReason::stop;
  std::size_t prompt_tokens = 0;
  std::size_t cached_tokens = 0;  // of the prompt, how many needed no computing
  std::uint64_t seed = 0;         // gives this answer again, of several too when it is asked for alone
};

struct ModelInfo {
  std::string name{};
  std::string architecture{};
  std::string device{};  // in words
  std::int32_t context = 0;
  std::int32_t vocabulary = 0;
  std::int32_t embedding_width = 0;  // of each vector that `embed` gives; 0 where it gives none
  bool generates = false;
};

// A loaded model. Copies are the same model; it goes with the last of them.
class QUARREL_API Model {
 public:
  // A GGUF file, or the name of a model in Quarrel's or Ollama's store.
  static Model load(const std::string& name, const LoadOptions& options = {});

  const ModelInfo& info() const;

  // `add_special`: the tokens that the vocabulary puts around a text. Text that spells a control token stays text.
  std::vector<Token> tokenize(std::string_view text, bool add_special = false) const;
  // Control tokens have no text.
  std::string detokenize(std::span<const Token> tokens) const;

  ChatPrompt chat_prompt(std::span<const Message> messages) const;

  // Continues the tokens as they are.
  GenerateResult generate(std::span<const Token> prompt, const GenerateOptions& options = {},
                          const PieceCallback& callback = {}) const;
  // Continues a text, which is yours from end to end: what spells a control token becomes it.
  GenerateResult generate(std::string_view prompt, const GenerateOptions& options = {},
                          const PieceCallback& callback = {}) const;
  // Answers a conversation.
  GenerateResult chat(std::span<const Message> messages, const GenerateOptions& options = {},
                      const PieceCallback& callback = {}) const;

  // The same for `options.answers` answers to the one prompt, which is computed once. Where `best_of` is more than
  // that, the best comes first; else they come by their numbers, which is how pieces name them. Answers of a call run
  // together as far as `LoadOptions::sequences` lets them.
  std::vector<GenerateResult> generate_many(std::span<const Token> prompt, const GenerateOptions& options = {},
                                            const PieceCallback& callback = {}) const;
  std::vector<GenerateResult> generate_many(std::string_view prompt, const GenerateOptions& options = {},
                                            const PieceCallback& callback = {}) const;
  std::vector<GenerateResult> chat_many(std::span<const Message> messages, const GenerateOptions& options = {},
                                        const PieceCallback& callback = {}) const;

  // A vector of length 1 for each text, of `info().embedding_width` numbers. A text beyond the model's limit is cut to
  // it.
  std::vector<std::vector<float>> embed(std::span<const std::string> texts) const;

 private:
  struct Impl;
  explicit Model(std::shared_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
  Impl& impl() const;

  std::shared_ptr<Impl> impl_;
};

}  // namespace quarrel::api
