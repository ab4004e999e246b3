// Tiny models of every architecture, a few megabytes each, the same bytes on every machine: the models whose
// golden logits lie under tests/data/arch. Pure functions: any thread may call them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quant/types.h"

namespace quarrel::test {

struct ToySsm {
  std::uint32_t conv = 4, inner = 256, state = 32;
  std::uint32_t heads = 8, groups = 2;  // Mamba-2
  std::uint32_t rank = 0;               // Mamba-1, which has neither heads nor groups
};

// Departures from a toy's recipe. The golden logits are those of the defaults.
struct ToyOptions {
  std::uint64_t seed = 1;
  // Of the large matrices, any type that can be encoded; norms, biases, routers and rows that no block fits stay F32.
  QuantType type = QuantType::f32;
  std::optional<std::uint32_t> embedding = {}, layers = {}, feed_forward = {}, heads = {}, kv_heads = {}, head = {};
  std::optional<std::uint32_t> rotary = {}, vocabulary = {}, context = {}, experts = {}, experts_used = {}, window = {};
  std::optional<double> rope_base = {};
  std::optional<ToySsm> ssm = {};
  bool channels = false;  // of the one that chats: it speaks in channels, by control tokens behind all others
  bool ranks = false;     // of the one that embeds: a score in place of a vector
};

// Every toy: "llama", "llama3", "mixtral", "qwen2" … "bert".
std::span<const std::string_view> toy_names() noexcept;

// A whole GGUF file. Throws Error(usage) for an unknown name or more layers than the recipe's pattern has.
std::vector<std::byte> make_toy(std::string_view name, const ToyOptions& options = {});
// The same as folder/NAME.gguf; gives back its path.
std::filesystem::path write_toy(std::string_view name, const std::filesystem::path& folder,
                                const ToyOptions& options = {});

// A toy llama that can chat: a byte-level BPE vocabulary (the 256 bytes, common English words by merges, and
// <|endoftext|>, <|im_start|>, <|im_end|>, the last one EOS) and a ChatML template. It answers nonsense, but any text
// goes in and comes out. The vocabulary's size is its own: `options.vocabulary` must be empty. Another toy can be given
// that vocabulary by its name.
std::vector<std::byte> make_toy_chat(const ToyOptions& options = {}, std::string_view recipe = "llama");
std::filesystem::path write_toy_chat(const std::filesystem::path& folder, const ToyOptions& options = {});

// A toy bert that embeds texts: a WordPiece vocabulary of [PAD], [UNK], [CLS], [SEP], [MASK], the lower-case letters
// and digits at a word's begin and within it, and a few whole words. Its size is its own, as above.
std::vector<std::byte> make_toy_embed(const ToyOptions& options = {});
std::filesystem::path write_toy_embed(const std::filesystem::path& folder, const ToyOptions& options = {});

// What make_toy_chat puts in the file, by id.
std::vector<std::string> toy_chat_tokens();

}  // namespace quarrel::test
