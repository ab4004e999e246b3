// Conversations with a model, whose prefix cache keeps what turns have in common: one that is loaded here (local_chat)
// or one that a running server holds (served_chat). `run` owns one; the terminal's part (lines, commands, colours) lies
// elsewhere. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/chat_parameters.h"
#include "app/conversation.h"
#include "app/model_options.h"
#include "base/error.h"
#include "engine/observations.h"
#include "engine/request.h"
#include "session/recommended_sampling.h"

namespace quarrel {

struct ChatOptions {
  ModelOptions model;
  std::string chat_template;  // a built-in name or a file; empty: the model's own
  bool raw = false;           // no template at all
};

struct Reply {
  std::string text;
  std::vector<TokenId> tokens;  // those that came with the text
  std::size_t generated = 0;    // how many were generated
  FinishReason reason = FinishReason::stop;
  std::uint64_t seed = 0;
  std::size_t prompt_tokens = 0;  // of the whole prompt
  std::size_t cached_tokens = 0;  // of those, how many were in the cache already
  double prompt_seconds = 0.0;
  double generate_seconds = 0.0;
  Observations seen = {};  // when timings are wanted: counts since loading, times of this answer
};

// Whom an answer is for. Called on the thread that waits for it.
struct ReplySink {
  std::function<void(std::string_view)> text;  // as it comes
  // How many of the prompt's tokens are read: some times a second until the answer begins.
  std::function<void(std::size_t done, std::size_t total)> progress = {};
  std::function<bool()> cancelled = {};  // asked as often
};

// What is said of a model.
struct ChatModelFacts {
  std::string name = {};
  std::string runs_on = {};  // "cpu …", "a server at …"
  std::string path = {}, architecture = {}, license = {};
  std::string template_origin = {};  // in words; empty: texts are continued as they are
  std::int32_t context = 0;
  std::int32_t vocabulary = 0;  // 0: unknown, as of a server's, which takes no biases
  double load_seconds = 0.0;
  RecommendedSampling recommended = {};
};

// The model is gone with the process that had it; nothing was shown of the answer.
class ChatLostError : public Error {
 public:
  explicit ChatLostError(const std::string& message) : Error(ErrorKind::io, message) {}
};

class ChatSession {
 public:
  virtual ~ChatSession() = default;

  // What answers are made with: the defaults, then what comes with the model, then what the user has given.
  ChatParameters parameters(const GivenParameters& given) const;
  // Throws Error(usage) for what only the model can tell to be wrong: biases of tokens that it does not have.
  // `bias_name`: how the user gave those.
  void check(const ChatParameters& parameters, std::string_view bias_name = "logit_bias") const;

  // The assistant's next message to a conversation without the messages before `first`. What this prompt shares with
  // those before it is in the cache. Throws Error(bad_input) with both numbers when it does not fit the context, after
  // which others can be asked for, and ChatLostError, after which none can.
  virtual Reply answer(const Conversation& conversation, const ChatParameters& parameters, const ReplySink& sink,
                       std::size_t first = 0) = 0;
  // Continues a text as it is, control tokens included.
  virtual Reply complete(std::string_view text, const ChatParameters& parameters, const ReplySink& sink) = 0;

  // From which message on a conversation fits the context: see first_sent(). May throw ChatLostError.
  std::optional<std::size_t> first_fitting(const Conversation& conversation, const ChatParameters& parameters,
                                           std::size_t first);
  // "the context of 512 tokens is full", and what made it so small, if something did.
  virtual std::string full_context() const = 0;
  virtual std::string template_source() = 0;
  // Tokens of a text by itself. May throw ChatLostError.
  virtual std::size_t text_tokens(std::string_view text) = 0;

  const ChatModelFacts& facts() const noexcept { return facts_; }
  bool raw() const noexcept { return facts_.template_origin.empty(); }
  std::size_t cached_tokens() const noexcept { return cached_tokens_; }

 protected:
  virtual std::size_t prompt_tokens(const Conversation& conversation, std::size_t first) = 0;

  ChatModelFacts facts_;
  std::string system_;             // that comes with the model
  std::size_t cached_tokens_ = 0;  // of the last turn: its prompt and its answer
};

}  // namespace quarrel
