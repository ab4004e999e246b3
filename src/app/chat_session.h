// A model that answers conversations: file, vocabulary, template, weights, and the engine, whose prefix cache keeps
// what turns have in common. `run` owns one; the terminal's part (lines, commands, colours) lies elsewhere. One thread.
#pragma once

#include <atomic>
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
#include "engine/engine.h"
#include "engine/finish_reason.h"
#include "store/store.h"
#include "text/chat_template.h"
#include "text/text_stream.h"
#include "text/tokenizer.h"

namespace quarrel {

struct ChatOptions {
  ModelOptions model;
  std::string chat_template;  // a built-in name or a file; empty: the model's own
  bool raw = false;           // no template at all
};

struct Reply {
  std::string text;
  std::vector<TokenId> tokens;
  FinishReason reason = FinishReason::stop;
  std::uint64_t seed = 0;
  std::size_t prompt_tokens = 0;  // of the whole prompt
  std::size_t cached_tokens = 0;  // of those, how many were in the cache already
  double prompt_seconds = 0.0;
  double generate_seconds = 0.0;
  Observations seen = {};  // when timings are wanted: counts since loading, times of this answer
};

std::string_view reason_name(FinishReason reason) noexcept;

// Called with text as it comes.
using TextSink = std::function<void(std::string_view)>;

class ChatSession {
 public:
  // Throws Error: what opening and loading throw, unsupported for a model without a head, bad_input for a template.
  ChatSession(const ResolvedModel& model, const ChatOptions& options, Log& log);

  // The assistant's next message. What this prompt shares with those before it is in the cache. Throws Error(bad_input)
  // with both numbers when the conversation does not fit the context; the engine is sound after any failure.
  Reply answer(const Conversation& conversation, const ChatParameters& parameters, const std::atomic<bool>& cancel,
               const TextSink& sink);
  // Continues a text as it is, control tokens included.
  Reply complete(std::string_view text, const ChatParameters& parameters, const std::atomic<bool>& cancel,
                 const TextSink& sink);

  bool raw() const noexcept { return !template_.has_value(); }
  const std::string& name() const noexcept { return name_; }
  const std::string& template_origin() const noexcept { return template_origin_; }
  const std::string& template_source() const { return template_->source(); }  // unless raw()
  const Executor& executor() const noexcept { return *executor_; }
  const std::string& device() const noexcept { return device_description_; }
  std::size_t cached_tokens() const noexcept { return cached_tokens_; }
  double load_seconds() const noexcept { return load_seconds_; }

 private:
  void compile_template(const GgufFile& file, const std::string& choice, Log& log);
  std::vector<TokenId> encode_conversation(const Conversation& conversation) const;
  Reply continue_tokens(const std::vector<TokenId>& prompt, const ChatParameters& parameters,
                        const std::atomic<bool>& cancel, const TextSink& sink);
  // Reads an answer to its end, which comes early when a stop string was met or somebody pressed Ctrl-C.
  void follow(Engine::Submission& submission, const ChatParameters& parameters, const std::atomic<bool>& cancel,
              TextStream& text, const TextSink& sink, Reply& reply);

  std::string name_;
  std::string template_origin_;
  std::string device_description_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<ChatTemplate> template_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Engine> engine_;
  std::size_t cached_tokens_ = 0;  // of the last turn: its prompt and its answer
  double load_seconds_ = 0.0;
};

}  // namespace quarrel
