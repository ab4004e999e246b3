// Quarrel in a program of your own: load a model, turn text into tokens and back, generate, embed. These headers need
// nothing but the standard library; quarrel_c.h is the same for C and whatever speaks to it.
//
//   const quarrel::api::Model model = quarrel::api::Model::load("default");
//   const auto result = model.generate("Once upon a time", {.max_tokens = 64}, [](const quarrel::api::Piece& piece) {
//     std::cout << piece.text << std::flush;
//     return true;
//   });
//
// Threads: every member of Model may be called from any thread, several at once. Calls share the model: their tokens
// are computed together, and each gets the same answer as if it were alone. `generate` and its kin wait, and call back
// on the thread that called; `open` and `start` do not wait (generate.h).
//
// Errors are thrown as quarrel::api::Error. What a callback of yours throws while you wait comes out as it is.
//
// After `fork` only the process that loaded a model can use it. In the child every call throws Error(usage), and
// letting go of models and generations there does nothing, whatever threads the parent had.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quarrel/common.h"
#include "quarrel/embed.h"
#include "quarrel/generate.h"
#include "quarrel/load.h"

namespace quarrel::api {

// A loaded model. Copies are the same model; it goes with the last of them and of its generations.
class QUARREL_API Model {
 public:
  // A GGUF file, or the name of a model in Quarrel's or Ollama's store.
  static Model load(const std::string& name, const LoadOptions& options = {});
  // What that would take, without loading anything. Throws Error(out_of_memory) where it would not fit, and what `load`
  // throws for a file that cannot be used.
  static MemoryEstimate estimate(const std::string& name, const LoadOptions& options = {});

  const ModelInfo& info() const;
  Metrics metrics() const;
  // What the model's makers recommend, or else a preset for its family, over the defaults.
  GenerateOptions recommended() const;

  // Keys of the file, in its order; a value by its key, none where there is no such key.
  std::vector<std::string> metadata_keys() const;
  std::optional<MetadataValue> metadata(std::string_view key) const;

  SpecialTokens special_tokens() const;
  // The bytes that a token adds to a text: perhaps half a character. Control tokens have none unless `show_special`.
  std::string token_bytes(Token token, bool show_special = false) const;
  // `add_special`: the tokens that the vocabulary puts around a text. Text that spells a control token stays text,
  // unless `parse_special`.
  std::vector<Token> tokenize(std::string_view text, bool add_special = false, bool parse_special = false) const;
  // Control tokens have no text unless `show_special`.
  std::string detokenize(std::span<const Token> tokens, bool show_special = false) const;
  ChatPrompt chat_prompt(const Chat& chat) const;
  ChatPrompt chat_prompt(std::span<const Message> messages) const;

  // One answer. Throws Error(failed) where the model could not compute it.
  GenerateResult generate(const Prompt& prompt, const GenerateOptions& options = {},
                          const PieceCallback& callback = {}) const;
  // `options.answers` answers to the one prompt, which is computed once. Where `best_of` is more than that, the best
  // comes first; else they come by their numbers, which is how pieces name them. Answers of a call run together as far
  // as `LoadOptions::sequences` lets them. One that fails says so itself, and the others are what they are.
  std::vector<GenerateResult> generate_many(const Prompt& prompt, const GenerateOptions& options = {},
                                            const PieceCallback& callback = {}) const;
  // The same for a conversation.
  GenerateResult chat(std::span<const Message> messages, const GenerateOptions& options = {},
                      const PieceCallback& callback = {}) const;
  std::vector<GenerateResult> chat_many(std::span<const Message> messages, const GenerateOptions& options = {},
                                        const PieceCallback& callback = {}) const;

  // The same without waiting: to be read as it comes, or with callbacks. Throw what cannot be begun, Error(busy) for a
  // full queue included.
  Generation open(const Prompt& prompt, const GenerateOptions& options = {}) const;
  Generation start(const Prompt& prompt, const GenerateOptions& options, GenerationCallbacks callbacks) const;

  // A vector for each text, or for each list of tokens, which has to have its special ones. A text beyond the model's
  // limit is cut to it; a list is refused.
  std::vector<Embedding> embed(std::span<const std::string> texts, const EmbedOptions& options = {}) const;
  std::vector<Embedding> embed(std::span<const std::vector<Token>> texts, const EmbedOptions& options = {}) const;
  // Rows of the embedding table as the file has them, neither scaled nor normalised: for tokens, or for those of a text
  // as `tokenize` gives them.
  std::vector<std::vector<float>> embedding_rows(std::span<const Token> tokens) const;
  std::vector<std::vector<float>> embedding_rows(std::string_view text) const;

  struct Impl;

 private:
  explicit Model(std::shared_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
  Impl& impl() const;

  std::shared_ptr<Impl> impl_;
};

}  // namespace quarrel::api
