// What the makers of a model recommend for its answers: the file's `general.sampling.*`, and where that is silent the
// parameters that a store keeps beside the model. Plain values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/sampling.h"
#include "base/log.h"
#include "gguf/file.h"

namespace quarrel {

// An empty field: not a word on it.
struct RecommendedSampling {
  std::optional<float> temperature = {};
  std::optional<std::int32_t> top_k = {};
  std::optional<float> top_p = {};
  std::optional<float> min_p = {};
  std::optional<float> typical_p = {};
  std::optional<float> repeat_penalty = {};
  std::optional<float> presence_penalty = {};
  std::optional<float> frequency_penalty = {};
  std::optional<std::int32_t> penalty_window = {};
  std::optional<bool> mirostat = {};
  std::optional<float> mirostat_tau = {};
  std::optional<float> mirostat_eta = {};
  std::optional<std::uint64_t> seed = {};
  std::optional<std::int32_t> max_tokens = {};
  std::optional<std::int32_t> context = {};
  std::vector<std::string> stop = {};

  // `defaults` with what is recommended in its place.
  SamplingParams over(SamplingParams defaults) const;
};

// `store_parameters`: the text of a JSON object with Ollama's names; empty: none. What is unknown or unusable is warned
// of and left out.
RecommendedSampling read_recommended_sampling(const GgufFile& file, std::string_view store_parameters, Log& log);

}  // namespace quarrel
