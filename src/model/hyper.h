// Reads an architecture's hyper-parameters ("llama.embedding_length") with bounds, so that no number from a file
// reaches an allocation or a division unchecked. Errors name the key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "gguf/file.h"

namespace quarrel {

class HyperParameters {
 public:
  explicit HyperParameters(const GgufFile& file);

  const GgufFile& file() const noexcept { return file_; }
  const std::string& architecture() const noexcept { return architecture_; }

  // `name` without the architecture's prefix. A required key that is absent, and any value outside [least, most],
  // throws Error(bad_file).
  std::int32_t integer(std::string_view name, std::int32_t least, std::int32_t most) const;
  std::int32_t integer_or(std::string_view name, std::int32_t fallback, std::int32_t least, std::int32_t most) const;
  // A value for each layer: one number for all, or an array with one a layer.
  std::int32_t layer_integer(std::string_view name, std::int32_t layer, std::int32_t layers, std::int32_t least,
                             std::int32_t most) const;
  double number(std::string_view name) const;
  double number_or(std::string_view name, double fallback) const;
  std::optional<std::string_view> string(std::string_view name) const;
  bool has(std::string_view name) const;
  bool boolean_or(std::string_view name, bool fallback) const;

 private:
  std::string key(std::string_view name) const { return architecture_ + "." + std::string(name); }

  const GgufFile& file_;
  std::string architecture_;
};

}  // namespace quarrel
