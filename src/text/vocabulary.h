// What a GGUF file says about its tokens, whatever the algorithm: spellings, kinds, scores, the special ones and what
// ends a reply. Read by Tokenizer::load and its algorithms; immutable afterwards. All of it comes from outside and is
// checked here: sizes, ids and numbers, with the key in the message.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/log.h"
#include "gguf/file.h"

namespace quarrel {

using TokenId = std::int32_t;

// What a vocabulary says of a token, by the numbers files carry.
enum class TokenKind : std::uint8_t {
  undefined = 0,
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6
};

struct SpecialTokens {
  std::optional<TokenId> bos, eos, eot, unknown, separator, padding, cls, mask;
  bool add_bos = false;
  bool add_eos = false;
  std::vector<TokenId> end_of_generation;  // ascending: EOS, EOT and their kin, by id and by well-known text
};

struct Vocabulary {
  Vocabulary() = default;
  Vocabulary(Vocabulary&&) noexcept = default;
  Vocabulary& operator=(Vocabulary&&) noexcept = default;
  Vocabulary(const Vocabulary&) = delete;  // `index` points into `texts`
  Vocabulary& operator=(const Vocabulary&) = delete;
  ~Vocabulary() = default;

  // `defaults` are the special tokens an algorithm assumes where the file is silent; ids beyond the vocabulary are
  // dropped from them. Throws Error(bad_file).
  static Vocabulary load(const GgufFile& file, const SpecialTokens& defaults, Log& log);

  std::size_t size() const noexcept { return texts.size(); }
  std::string_view text(TokenId id) const noexcept { return texts[static_cast<std::size_t>(id)]; }
  TokenKind kind(TokenId id) const noexcept { return kinds[static_cast<std::size_t>(id)]; }
  float score(TokenId id) const noexcept { return scores[static_cast<std::size_t>(id)]; }
  // Of tokens that share a spelling the lowest id; an empty spelling is never found.
  std::optional<TokenId> find(std::string_view spelling) const noexcept;

  std::vector<std::string> texts;
  std::vector<TokenKind> kinds;
  std::vector<float> scores;
  bool has_scores = false;
  std::size_t longest = 0;  // bytes of the longest spelling
  SpecialTokens special;
  // White space before or after these is theirs: it vanishes from the text. Ascending.
  std::vector<TokenId> strips_left, strips_right;

 private:
  std::unordered_map<std::string_view, TokenId> index_;
};

// The byte a token like <0x0A> stands for; nothing when it is spelled otherwise.
std::optional<std::uint8_t> byte_of_spelling(std::string_view spelling) noexcept;
// For each byte the token spelled <0xNN>, or -1.
std::array<TokenId, 256> byte_tokens(const Vocabulary& vocabulary);

}  // namespace quarrel
