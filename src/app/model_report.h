// What can be said of a GGUF file without running it, gathered for `inspect`. A part that the file lacks or that cannot
// be read leaves its field empty with the reason; nothing but an unreadable file fails. Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "gguf/file.h"
#include "session/recommended_sampling.h"

namespace quarrel {

struct TypeShare {
  std::string_view type;
  std::uint64_t tensors = 0;
  std::uint64_t bytes = 0;
};

// Memory for keys and values at one length of context.
struct KvNeed {
  std::int64_t context = 0;
  std::uint64_t f16_bytes = 0;
  std::uint64_t f32_bytes = 0;
};

struct ModelReport {
  std::string file;
  std::uint64_t file_bytes = 0;
  std::size_t parts = 1;
  std::uint32_t gguf_version = 0;
  std::string name;
  std::string architecture;
  std::string problem;  // why it cannot be run; empty: it can

  std::uint64_t parameters = 0;
  std::uint64_t tensors = 0;
  std::uint64_t weight_bytes = 0;
  std::vector<TypeShare> types;  // most bytes first

  // As the file says; empty: it does not.
  std::string context, layers, width, feed_forward, heads, kv_heads, experts;

  std::uint64_t vocabulary = 0;
  std::string tokenizer;          // "bpe (smollm)"
  std::string tokenizer_problem;  // why texts cannot be encoded
  std::vector<KvNeed> kv;         // empty when it is not known or there are no keys and values
  std::optional<std::string> template_sha256;
  RecommendedSampling sampling;

  double bits_per_weight() const;
};

// `store_parameters`: as read_recommended_sampling() has them.
ModelReport make_report(const GgufFile& file, std::string_view store_parameters, Log& log);

nlohmann::ordered_json report_json(const ModelReport& report);
std::string report_text(const ModelReport& report);

}  // namespace quarrel
