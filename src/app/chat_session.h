// Conversations with a model, whose prefix cache keeps what turns have in common. `run` owns one; the terminal's part
// (lines, commands, colours) lies elsewhere. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/chat_parameters.h"
#include "app/conversation.h"
#include "app/model_options.h"
#include "base/log.h"
#include "session/ask.h"
#include "session/loaded_model.h"
#include "store/store.h"

namespace quarrel {

struct ChatOptions {
  ModelOptions model;
  std::string chat_template;  // a built-in name or a file; empty: the model's own
  bool raw = false;           // no template at all
};

struct Reply {
  std::string text;
  std::vector<TokenId> tokens;  // empty where a server answered, which does not tell them
  std::size_t generated = 0;    // how many there are
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

class ChatSession {
 public:
  // Throws Error: what opening and loading throw, unsupported for a model without a head, bad_input for a template.
  ChatSession(const ResolvedModel& model, const ChatOptions& options, std::shared_ptr<Device> device, Log& log);

  // What answers are made with: the defaults, then what comes with the model, then what the user has given.
  ChatParameters parameters(const GivenParameters& given) const;

  // The assistant's next message to a conversation without the messages before `first`. What this prompt shares with
  // those before it is in the cache. Throws Error(bad_input) with both numbers when it does not fit the context; the
  // engine is sound after any failure.
  Reply answer(const Conversation& conversation, const ChatParameters& parameters, const ReplySink& sink,
               std::size_t first = 0);
  // Continues a text as it is, control tokens included.
  Reply complete(std::string_view text, const ChatParameters& parameters, const ReplySink& sink);

  // From which message on a conversation fits the context: see first_sent().
  std::optional<std::size_t> first_fitting(const Conversation& conversation, const ChatParameters& parameters,
                                           std::size_t first) const;
  // "the context of 512 tokens is full", and what made it so small, if something did.
  std::string full_context() const;

  bool raw() const noexcept { return model_->chat_template() == nullptr; }
  const LoadedModel& model() const noexcept { return *model_; }
  std::size_t cached_tokens() const noexcept { return cached_tokens_; }

 private:
  Reply reply_to(Ask ask, const ChatParameters& parameters, const ReplySink& sink);

  std::shared_ptr<LoadedModel> model_;
  std::string system_;  // that comes with the model
  ModelOptions options_;
  std::size_t cached_tokens_ = 0;  // of the last turn: its prompt and its answer
};

}  // namespace quarrel
