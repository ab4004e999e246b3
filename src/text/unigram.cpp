#include "text/unigram.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/error.h"
#include "text/byte_trie.h"
#include "text/charsmap.h"
#include "text/unicode.h"

namespace quarrel {
namespace {

constexpr std::string_view kCharsMapKey = "tokenizer.ggml.precompiled_charsmap";
constexpr double kUnknownPenalty = 10.0;  // below the worst score, as SentencePiece has it

struct UnigramOptions {
  bool add_space_prefix = true;
  bool merge_spaces = false;  // and drop them at both ends
};

class UnigramTokenizer final : public Tokenizer {
 public:
  UnigramTokenizer(Vocabulary vocabulary, CharsMap charsmap, UnigramOptions options);

  std::string_view algorithm() const noexcept override { return "unigram"; }

 protected:
  void encode_plain(std::string_view text, bool after_special, std::vector<TokenId>& ids,
                    std::uint64_t& steps) const override;
  std::string plain_piece(TokenId id) const override;
  bool prefixes_space() const noexcept override { return options_.add_space_prefix; }

 private:
  std::string normalize(std::string_view text, std::uint64_t& steps) const;
  void append_unknown(std::string_view text, std::vector<TokenId>& ids) const;

  CharsMap charsmap_;
  UnigramOptions options_;
  ByteTrie trie_;
  double unknown_score_ = 0;
  std::array<TokenId, 256> bytes_;
  bool has_bytes_;  // every byte has a token: nothing is unknown
};

UnigramTokenizer::UnigramTokenizer(Vocabulary loaded, CharsMap charsmap, UnigramOptions options)
    : Tokenizer(std::move(loaded)),
      charsmap_(std::move(charsmap)),
      options_(options),
      bytes_(byte_tokens(vocabulary())),
      has_bytes_(std::ranges::find(bytes_, -1) == bytes_.end()) {
  std::vector<ByteTrie::Entry> entries;
  double least = 0;
  for (std::size_t i = 0; i < size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const TokenKind kind = vocabulary().kind(id);
    if (kind == TokenKind::normal) least = std::min<double>(least, vocabulary().score(id));
    if (kind == TokenKind::normal || kind == TokenKind::user_defined) entries.emplace_back(vocabulary().text(id), id);
  }
  trie_ = ByteTrie(std::move(entries));
  unknown_score_ = least - kUnknownPenalty;
}

std::string UnigramTokenizer::normalize(std::string_view text, std::uint64_t& steps) const {
  std::string result;
  result.reserve(text.size() + text.size() / 2 + kLowerBlock.size());
  bool in_word = false;
  bool needs_space = options_.add_space_prefix;  // before the next word
  if (needs_space && !options_.merge_spaces) result += kLowerBlock;
  const auto put = [&](std::string_view characters) {
    steps += characters.size();
    for (const char c : characters) {
      if (c == ' ') {
        in_word = false;
        if (!options_.merge_spaces) result += kLowerBlock;
        continue;
      }
      if (!in_word && needs_space && options_.merge_spaces) result += kLowerBlock;
      in_word = true;
      needs_space = true;
      result += c;
    }
  };
  for (std::size_t at = 0; at < text.size();) {
    const CharsMap::Match match = charsmap_.match(text, at, steps);
    if (match.length > 0) {
      put(match.replacement);
      at += match.length;
      continue;
    }
    const Utf8Char c = decode_utf8(text, at);
    put(c.status == Utf8Status::valid ? text.substr(at, c.length) : kReplacementText);
    at += c.length;
  }
  // A text may hold "▁" itself; at the end it goes the way of the spaces it looks like.
  while (options_.merge_spaces && result.ends_with(kLowerBlock)) result.resize(result.size() - kLowerBlock.size());
  return result;
}

void UnigramTokenizer::encode_plain(std::string_view text, bool, std::vector<TokenId>& ids,
                                    std::uint64_t& steps) const {
  const std::string normalized = normalize(text, steps);
  if (normalized.size() >= std::numeric_limits<std::uint32_t>::max()) {
    fail(ErrorKind::bad_input, "the text is too long to tokenise: {} bytes when normalised", normalized.size());
  }
  // The best way to reach each byte: its score, and the token and place it came from.
  struct Arrival {
    double score = -std::numeric_limits<double>::infinity();
    std::uint32_t from = 0;
    TokenId token = -1;  // -1: a character nobody knows
  };
  std::vector<Arrival> arrivals(normalized.size() + 1);
  arrivals[0].score = 0;
  const auto arrive = [&](std::size_t at, double score, std::size_t from, TokenId token) {
    if (score > arrivals[at].score) arrivals[at] = {score, static_cast<std::uint32_t>(from), token};
  };
  for (std::size_t at = 0; at < normalized.size();) {
    const std::size_t character_end = at + decode_utf8(normalized, at).length;
    bool character_known = false;
    std::uint32_t node = ByteTrie::kRoot;
    for (std::size_t end = at; end < normalized.size();) {
      node = trie_.child(node, normalized[end++]);
      ++steps;
      if (node == ByteTrie::kNone) break;
      const TokenId id = trie_.value(node);
      if (id < 0) continue;
      // Scores are logarithms, so that nothing beats the 0 of what a user defined.
      const double score = vocabulary().kind(id) == TokenKind::user_defined ? 0.0 : vocabulary().score(id);
      arrive(end, arrivals[at].score + score, at, id);
      character_known = character_known || end == character_end;
    }
    if (!character_known) arrive(character_end, arrivals[at].score + unknown_score_, at, -1);
    at = character_end;
  }

  std::vector<Arrival> path;  // from the text's end to its beginning
  for (std::size_t at = normalized.size(); at > 0; at = arrivals[at].from) path.push_back(arrivals[at]);
  steps += path.size();
  for (std::size_t i = path.size(); i-- > 0;) {
    if (path[i].token >= 0) {
      ids.push_back(path[i].token);
      continue;
    }
    const std::size_t begin = path[i].from;
    while (i > 0 && path[i - 1].token < 0) --i;  // unknown neighbours become one
    const std::size_t end = i > 0 ? path[i - 1].from : normalized.size();
    append_unknown(std::string_view(normalized).substr(begin, end - begin), ids);
  }
}

void UnigramTokenizer::append_unknown(std::string_view text, std::vector<TokenId>& ids) const {
  if (has_bytes_) {
    for (const char c : text) ids.push_back(bytes_[static_cast<std::uint8_t>(c)]);
  } else if (const std::optional<TokenId> unknown = special().unknown) {
    ids.push_back(*unknown);
  }
}

std::string UnigramTokenizer::plain_piece(TokenId id) const {
  const std::string_view text = vocabulary().text(id);
  const auto byte = byte_of_spelling(text);
  if (byte && vocabulary().kind(id) == TokenKind::byte) return std::string(1, static_cast<char>(*byte));
  return unescape_spaces(text);
}

CharsMap load_charsmap(const GgufFile& file) {
  const auto numbers = file.numbers(kCharsMapKey);
  if (!numbers) return {};
  if (numbers->kind != GgufKind::i8 && numbers->kind != GgufKind::u8) {
    fail(ErrorKind::bad_file, "{} holds {}, not bytes", kCharsMapKey, kind_name(numbers->kind));
  }
  std::string bytes(numbers->count, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(numbers->data[i]);
  return {bytes, kCharsMapKey};
}

}  // namespace

std::unique_ptr<Tokenizer> load_unigram(const GgufFile& file, Log& log) {
  SpecialTokens defaults;
  defaults.eos = 1;
  defaults.unknown = 2;
  defaults.padding = 0;
  defaults.add_eos = true;
  Vocabulary vocabulary = Vocabulary::load(file, defaults, log);
  if (!vocabulary.has_scores) {
    fail(ErrorKind::bad_file, "the file has no tokenizer.ggml.scores, which a \"t5\" vocabulary needs");
  }
  UnigramOptions options;
  options.add_space_prefix = file.boolean("tokenizer.ggml.add_space_prefix").value_or(true);
  options.merge_spaces = file.boolean("tokenizer.ggml.remove_extra_whitespaces").value_or(false);
  return std::make_unique<UnigramTokenizer>(std::move(vocabulary), load_charsmap(file), options);
}

}  // namespace quarrel
