// What the makers of a model recommend for its answers: the file's `general.sampling.*`, else the parameters that a
// store keeps beside the model, and if neither says how tokens are chosen, what is known of its family
// (known_sampling.h). Plain values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/sampling.h"
#include "base/log.h"
#include "gguf/file.h"

namespace quarrel {

// How tokens are chosen where neither the user nor the model's makers say it; penalties are off.
SamplingParams default_sampling();

// An empty field: no recommendation.
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
  std::optional<std::int32_t> keep = {};  // first tokens of the prompt that a shift leaves; below 0: all of them
  std::vector<std::string> stop = {};
  std::string origin = {};  // in words: "from the file", "from the store", "preset for SmolLM2"; empty: nothing is

  // Every number that is recommended, by the name that `run` and Ollama have for it, in a fixed order; no stop strings.
  std::vector<std::pair<std::string_view, std::string>> list() const;
  // "temperature 0.2, top_p 0.9 (preset for SmolLM2)"; empty where nothing is recommended.
  std::string summary() const;
  // `defaults` with what is recommended in its place.
  SamplingParams over(SamplingParams defaults) const;
};

// `store_parameters`: the text of a JSON object with Ollama's names; empty: none. What is unknown or unusable is warned
// of and left out.
RecommendedSampling read_recommended_sampling(const GgufFile& file, std::string_view store_parameters, Log& log);

}  // namespace quarrel
