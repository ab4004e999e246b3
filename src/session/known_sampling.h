// What the makers of well-known model families recommend on their model cards, for files that carry no sampling of
// their own. One table in known_sampling.cpp; another family is another row. Read by recommended_sampling.cpp alone.
// Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "gguf/file.h"

namespace quarrel {

struct KnownSampling {
  std::string_view family;  // what the names of its files begin with; only letters and digits count
  float temperature;
  std::optional<std::int32_t> top_k = {};
  std::optional<float> top_p = {};
  std::optional<float> min_p = {};
};

// The family that the file's `general.basename` or `general.name` belongs to; null: none that is known.
const KnownSampling* find_known_sampling(const GgufFile& file);

}  // namespace quarrel
