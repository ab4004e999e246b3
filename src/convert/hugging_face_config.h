// What `config.json` and its neighbours in a model's folder say about the model, made fit for GGUF: hyper-parameters
// under the names GGUF has for them. Everything is bounded and checked; messages name the file and the field. Immutable
// after reading.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/log.h"
#include "convert/hugging_face_names.h"
#include "gguf/writer.h"

namespace quarrel {

// GGUF's numbers of ways to make one vector of a text's.
enum class PoolingNumber : std::uint32_t { mean = 1, cls = 2, last = 3 };

struct HuggingFaceConfig {
  // Throws Error: not_found without a config.json, unsupported with the known classes for a model of another one or a
  // variation that our architectures lack, bad_file for a value that is missing or makes no sense.
  static HuggingFaceConfig read(const std::filesystem::path& folder, Log& log);

  void put(GgufWriter& writer) const;

  const ModelFamily* family = nullptr;
  std::uint32_t context = 0;
  std::uint32_t width = 0;
  std::uint32_t layers = 0;
  std::uint32_t feed_forward = 0;
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head = 0;  // values a head
  double epsilon = 0;
  bool tied = false;  // the embedding table is the output matrix as well
  // Of those that rotate.
  double rope_base = 0;
  std::string rope_scaling = {};  // "linear", "yarn" or nothing
  double rope_factor = 1;
  std::uint32_t rope_original_context = 0;
  std::vector<float> rope_divisors = {};  // becomes the tensor rope_freqs.weight; empty: none
  // Of encoders.
  PoolingNumber pooling = PoolingNumber::mean;
  std::uint32_t token_types = 0;
};

// The divisors of a rotation's frequencies that the "llama3" scaling prescribes: none for short waves, `factor` for
// those longer than the context the model was first trained with, and a blend between.
std::vector<float> llama3_divisors(std::uint32_t head, double base, double factor, double low, double high,
                                   double original_context);

}  // namespace quarrel
