// How well a model predicts a text. The text's tokens are cut into windows that stand alone; the second half of each
// is scored, so that every scored token has at least half a window before it. Used by `perplexity` and `regress`; what
// scores a window is a parameter, so that the arithmetic can be tested without a model. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "app/statistics.h"
#include "session/loaded_model.h"
#include "text/tokenizer.h"

namespace quarrel {

inline constexpr std::int32_t kSmallestWindow = 4;

struct PerplexityOptions {
  std::int32_t window = 512;   // tokens
  std::int32_t windows = 0;    // at most so many; 0: as many as the text fills
  std::optional<TokenId> bos;  // takes the place of each window's first token
};

// The log-probabilities that a model gives to tokens [first, size) of a window, each from the tokens before it.
using WindowScorer = std::function<std::vector<float>(std::span<const TokenId> window, std::int32_t first)>;

struct Perplexity {
  RunningMean loss;             // of all scored tokens, in nats
  std::vector<double> windows;  // each window's own perplexity

  double value() const noexcept;  // the exponential of the mean loss
  double error() const noexcept;  // the standard error of the mean loss, carried over to the perplexity
};

// Called after each window with what is known so far and how many windows there are.
using PerplexityProgress = std::function<void(const Perplexity&, std::int32_t windows)>;

// Throws Error(bad_input) for a text shorter than a window or a window too small, and Error(bad_file) where the model
// gives a token no probability.
Perplexity measure_perplexity(std::span<const TokenId> tokens, const PerplexityOptions& options,
                              const WindowScorer& scorer, const PerplexityProgress& progress = {});

// A text's tokens as the measurement wants them: a BOS before the text where the vocabulary asks for one, nothing
// after.
std::vector<TokenId> perplexity_tokens(const Tokenizer& tokenizer, std::string_view text);
// The token that begins each window, where the vocabulary asks for one.
std::optional<TokenId> window_bos(const Tokenizer& tokenizer);

// Each window is a text of its own; the model's context must hold one.
WindowScorer model_scorer(std::shared_ptr<LoadedModel> model, RowClass row_class);

}  // namespace quarrel
