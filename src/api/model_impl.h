// What stands behind the public Model: either an engine that generates, or an embedder. Made whole by its constructor;
// afterwards only the engine and the embedder change, and they see to their threads themselves.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/errors.h"
#include "backend/backend.h"
#include "engine/embedder.h"
#include "engine/engine.h"
#include "engine/executor.h"
#include "gguf/file.h"
#include "quarrel/quarrel.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace quarrel::api {

struct Model::Impl {
  // `caught` keeps what the progress callback throws; the constructor throws Error(cancelled) then.
  Impl(const std::string& name, const LoadOptions& options, Caught& caught);

  const Tokenizer& require_tokenizer() const;
  ChatPrompt chat_prompt(std::span<const Message> messages) const;
  // The tokens of a text to continue.
  std::vector<Token> encode_prompt(std::string_view text) const;
  // As many answers as the options say.
  std::vector<GenerateResult> generate(std::span<const Token> prompt, const GenerateOptions& options,
                                       const PieceCallback& callback, Caught& caught);
  std::vector<std::vector<float>> embed(std::span<const std::string> texts);

  ModelInfo info = {};

 private:
  void load_template(const GgufFile& file, const LoadOptions& options, Log& log);
  GenerateRequest request_for(std::span<const Token> prompt, const GenerateOptions& options) const;

  std::unique_ptr<Device> device_;
  std::unique_ptr<Tokenizer> own_tokenizer_;  // an embedder has its own
  const Tokenizer* tokenizer_ = nullptr;      // null: the file has no vocabulary
  std::optional<ChatTemplate> chat_template_;
  std::string template_problem_;  // why there is none
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Engine> engine_;
  std::mutex embedding_;  // one thread at a time
  std::unique_ptr<Embedder> embedder_;
};

}  // namespace quarrel::api
