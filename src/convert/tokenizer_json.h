// What `tokenizer.json` says of a vocabulary, whatever the algorithm: tokens by id, merges, how text is cut before and
// what is put around it after. All of it comes from outside: ids are bounded by the rows of the embedding table, and
// messages name the field. Read by the conversion of tokenizers alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quarrel {

struct AddedToken {
  std::uint32_t id = 0;
  std::string text = {};
  bool special = false;
};

struct TokenizerJson {
  // Throws Error: not_found, io, bad_file, and unsupported for parts that our tokenizers lack.
  static TokenizerJson read(const std::filesystem::path& path, std::uint32_t rows);

  std::string model = {};                               // "BPE", "WordPiece", "Unigram"
  std::vector<std::optional<std::string>> tokens = {};  // by id; ids nobody has are empty
  std::vector<AddedToken> added = {};
  std::vector<std::string> merges = {};  // "left right", the first to be made first
  bool byte_fallback = false;
  bool ignore_merges = false;
  bool byte_level = false;               // bytes are spelled by the alphabet of GPT-2
  std::vector<std::string> splits = {};  // the regular expressions that cut text, in their order
  std::optional<bool> adds_space = {};   // whether text gets a space in front
  std::optional<bool> lowercase = {};
  std::optional<bool> strip_accents = {};
  std::string unknown = {};   // the unknown token's text
  std::string begins = {};    // the token put before a text; empty: none
  std::string ends = {};      // and after it
  bool has_template = false;  // whether the two above were said at all
};

// The name that our text layer has for these splits; empty if nobody knows them. Several share theirs and differ in
// whether a word that is a token is taken whole.
std::string_view pre_tokenizer_of(const std::vector<std::string>& splits, bool ignore_merges) noexcept;
// Every name there is, for messages and tests.
std::vector<std::string_view> convertible_pre_tokenizers();

}  // namespace quarrel
