#include "app/perplexity.h"

#include <algorithm>
#include <cmath>

#include "base/damaged_file.h"
#include "base/error.h"
#include "session/scoring.h"

namespace quarrel {

double Perplexity::value() const noexcept { return std::exp(loss.mean()); }

double Perplexity::error() const noexcept { return value() * loss.standard_error(); }

Perplexity measure_perplexity(std::span<const TokenId> tokens, const PerplexityOptions& options,
                              const WindowScorer& scorer, const PerplexityProgress& progress) {
  if (options.window < kSmallestWindow) {
    fail(ErrorKind::bad_input, "a window must have at least {} tokens, not {}", kSmallestWindow, options.window);
  }
  const auto window = static_cast<std::size_t>(options.window);
  std::size_t count = tokens.size() / window;
  if (count == 0) {
    fail(ErrorKind::bad_input, "the text has {} tokens, but one window alone needs {} (--window)", tokens.size(),
         window);
  }
  if (options.windows > 0) count = std::min(count, static_cast<std::size_t>(options.windows));

  // The token at half the window is the first whose logits are scored: they predict the one after it.
  const std::int32_t first = options.window / 2 + 1;
  Perplexity result;
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<TokenId> text(tokens.begin() + static_cast<std::ptrdiff_t>(i * window),
                              tokens.begin() + static_cast<std::ptrdiff_t>((i + 1) * window));
    if (options.bos) text.front() = *options.bos;
    RunningMean own;
    for (const float logprob : scorer(text, first)) {
      if (!std::isfinite(logprob)) {
        fail(ErrorKind::bad_file, "the model gave a token of window {} no probability; {}", i + 1, kDamagedFileHint);
      }
      own.add(-static_cast<double>(logprob));
      result.loss.add(-static_cast<double>(logprob));
    }
    result.windows.push_back(std::exp(own.mean()));
    if (progress) progress(result, static_cast<std::int32_t>(count));
  }
  return result;
}

std::vector<TokenId> perplexity_tokens(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<TokenId> tokens = tokenizer.encode(text);
  if (const auto bos = window_bos(tokenizer)) tokens.insert(tokens.begin(), *bos);
  return tokens;
}

std::optional<TokenId> window_bos(const Tokenizer& tokenizer) {
  return tokenizer.special().add_bos ? tokenizer.special().bos : std::nullopt;
}

WindowScorer model_scorer(std::shared_ptr<LoadedModel> model, RowClass row_class) {
  return [model = std::move(model), row_class](std::span<const TokenId> window, std::int32_t first) {
    std::vector<float> logprobs = score_tokens(model, window, {.row_class = row_class});
    logprobs.erase(logprobs.begin(), logprobs.begin() + (first - 1));
    return logprobs;
  };
}

}  // namespace quarrel
