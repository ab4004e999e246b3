// Texts to vectors. Include quarrel.h.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "quarrel/generate.h"

namespace quarrel::api {

struct EmbedOptions {
  std::optional<Pooling> pooling{};          // none: the model's own
  bool normalize = true;                     // to length 1; scores never are
  std::optional<std::int32_t> dimensions{};  // only the first so many values
  Priority priority = Priority::normal;
  std::uint64_t key = 0;                 // whose call it is
  std::chrono::milliseconds timeout{0};  // of each text, waiting included; 0: none
  std::optional<CancelToken> cancel{};
  // Called now and then on the calling thread, and at the end, with how many texts are done; false ends the call with
  // Error(cancelled).
  std::function<bool(std::size_t done, std::size_t total)> progress{};
};

struct Embedding {
  std::vector<float> values{};                      // scores where the pooling is `rank`
  std::vector<std::vector<float>> token_vectors{};  // where it is `none`: one a token, after the output norm
  std::size_t tokens = 0;                           // that were fed, special ones included
  bool cut = false;                                 // the text was longer than the model's limit …
  std::size_t full_tokens = 0;                      // … and would have had so many
};

}  // namespace quarrel::api
