// Which tensors the models of Hugging Face's library have, and what GGUF calls them: tables, one a family. Constant
// data: any thread may read.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace quarrel {

enum class RowRole : std::uint8_t {
  plain,
  query,      // rows of the query heads, and
  key,        // of the key heads: their order depends on how a family pairs what it rotates
  positions,  // a row a position: those beyond the context are left out
  output,     // not there where the embedding table serves instead
};

struct TensorRule {
  std::string_view theirs;  // "{}" stands for the layer's number
  std::string_view ours;
  RowRole role = RowRole::plain;
  bool optional = false;
};

// How config.json is read.
enum class ConfigKind : std::uint8_t { decoder, encoder, rotary_encoder };

struct ModelFamily {
  std::string_view class_name;    // as config.json's `architectures` has it
  std::string_view architecture;  // as general.architecture has it
  ConfigKind kind;
  bool rotates_pairs;       // GGUF's architecture wants pairs where their model has halves
  std::string_view prefix;  // what some models put before every name
  std::span<const TensorRule> tensors;
};

std::span<const ModelFamily> model_families() noexcept;

// Tensors that hold nothing a GGUF model needs: tables that follow from the configuration, heads for training.
bool is_ignored_tensor(std::string_view name) noexcept;

}  // namespace quarrel
