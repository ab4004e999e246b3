#include "text/bpe.h"

#include <algorithm>
#include <array>
#include <queue>
#include <unordered_map>

#include "base/error.h"
#include "text/merge_table.h"
#include "text/pre_tokenizer.h"
#include "text/unicode.h"

namespace quarrel {
namespace {

constexpr std::string_view kMergesKey = "tokenizer.ggml.merges";

// Byte-level vocabularies spell each byte as one visible character: the printable ones of Latin-1 as themselves, the
// others, in order, as the characters from U+0100 on.
struct ByteAlphabet {
  std::array<char32_t, 256> character{};
  std::array<std::int16_t, 0x144> byte{};  // -1: no byte's character

  constexpr ByteAlphabet() {
    byte.fill(-1);
    char32_t next = 0x100;
    for (std::size_t b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      character[b] = printable ? static_cast<char32_t>(b) : next++;
      byte[character[b]] = static_cast<std::int16_t>(b);
    }
  }
};
constexpr ByteAlphabet kAlphabet;

// A symbol of the chain that merging works on, dead once its left neighbour swallowed it.
struct Link {
  SymbolId symbol;
  std::int32_t previous;
  std::int32_t next;
};
constexpr std::int32_t kNobody = -1;

struct Candidate {
  std::uint32_t rank;
  std::int32_t left;
  SymbolId left_symbol, right_symbol;  // as they were: a candidate whose links changed since is stale
  SymbolId merged;

  // The queue's top is the lowest rank, and of equals the leftmost.
  bool operator<(const Candidate& other) const noexcept {
    return rank != other.rank ? rank > other.rank : left > other.left;
  }
};

// What merging needs for one word after the other, so that its memory is reused.
struct Scratch {
  std::vector<Link> links;
  std::priority_queue<Candidate> queue;
  std::string spelled;
};

class BpeTokenizer final : public Tokenizer {
 public:
  BpeTokenizer(Vocabulary vocabulary, const PreTokenizer& pre_tokenizer, std::span<const std::string_view> merges);

  std::string_view algorithm() const noexcept override { return "bpe"; }
  std::string_view pre_tokenizer() const noexcept override { return pre_tokenizer_.name; }

 protected:
  void encode_plain(std::string_view text, bool after_special, std::vector<TokenId>& ids,
                    std::uint64_t& steps) const override;
  std::string plain_piece(TokenId id) const override;

 private:
  SymbolId intern(std::string_view text);
  void load_merges(std::span<const std::string_view> merges);
  void load_bytes();
  std::optional<TokenId> whole_word(std::string_view word, Scratch& scratch) const;
  void link_word(std::string_view word, Scratch& scratch) const;
  void merge(Scratch& scratch, std::uint64_t& steps) const;
  void append(SymbolId symbol, std::vector<TokenId>& ids) const;
  void append_spelled(std::string_view text, std::vector<TokenId>& ids) const;

  const PreTokenizer& pre_tokenizer_;
  MergeTable merges_;
  // Symbols below size() are tokens; the others are strings that only merges speak of.
  std::unordered_map<std::string, SymbolId> extra_index_;
  std::vector<std::string> extras_;
  std::array<SymbolId, 256> byte_symbols_{};  // of the byte alphabet; a byte without one is written as U+FFFD
  std::array<TokenId, 256> byte_tokens_{};    // <0xNN>
};

BpeTokenizer::BpeTokenizer(Vocabulary vocabulary, const PreTokenizer& pre_tokenizer,
                           std::span<const std::string_view> merges)
    : Tokenizer(std::move(vocabulary)), pre_tokenizer_(pre_tokenizer), merges_(merges.size()) {
  load_merges(merges);
  load_bytes();
  byte_tokens_ = byte_tokens(this->vocabulary());
}

SymbolId BpeTokenizer::intern(std::string_view text) {
  if (const auto id = vocabulary().find(text)) return static_cast<SymbolId>(*id);
  const auto next = static_cast<SymbolId>(size() + extras_.size());
  const auto [at, added] = extra_index_.emplace(text, next);
  if (added) extras_.emplace_back(text);
  return at->second;
}

void BpeTokenizer::load_merges(std::span<const std::string_view> merges) {
  std::string merged;
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string_view merge = merges[rank];
    const std::size_t space = merge.find(' ', 1);  // a part may begin with a space
    if (space == std::string_view::npos || space + 1 == merge.size()) {
      fail(ErrorKind::bad_file, "{}[{}] is \"{}\", not two parts with a space between", kMergesKey, rank,
           to_valid_utf8(merge.substr(0, 64)));
    }
    const std::string_view left = merge.substr(0, space);
    const std::string_view right = merge.substr(space + 1);
    merged.assign(left).append(right);
    merges_.add(intern(left), intern(right), static_cast<std::uint32_t>(rank), intern(merged));
  }
}

void BpeTokenizer::load_bytes() {
  for (std::size_t b = 0; b < 256; ++b) {
    std::string spelled;
    append_utf8(spelled, kAlphabet.character[b]);
    // A user-defined token of that spelling stands for the character, not for the byte.
    const auto id = vocabulary().find(spelled);
    const bool is_byte = id && vocabulary().kind(*id) != TokenKind::user_defined && !is_hidden(*id);
    byte_symbols_[b] = is_byte ? static_cast<SymbolId>(*id) : kNoSymbol;
  }
}

void BpeTokenizer::encode_plain(std::string_view text, bool, std::vector<TokenId>& ids, std::uint64_t& steps) const {
  std::string escaped;
  if (pre_tokenizer_.raw) {
    for (const char c : text) {
      if (c == ' ') {
        escaped += kLowerBlock;
      } else {
        escaped += c;
      }
    }
    text = escaped;
  }
  Scratch scratch;
  std::size_t begin = 0;
  for (const std::size_t end : split_words(pre_tokenizer_, text, steps)) {
    const std::string_view word = text.substr(begin, end - begin);
    begin = end;
    if (const auto id = whole_word(word, scratch)) {
      ids.push_back(*id);
      continue;
    }
    link_word(word, scratch);
    merge(scratch, steps);
    for (std::int32_t at = 0; at != kNobody; at = scratch.links[static_cast<std::size_t>(at)].next) {
      append(scratch.links[static_cast<std::size_t>(at)].symbol, ids);
    }
  }
}

std::optional<TokenId> BpeTokenizer::whole_word(std::string_view word, Scratch& scratch) const {
  if (pre_tokenizer_.raw) {
    const bool only_newlines = word.find_first_not_of('\n') == std::string_view::npos;
    return only_newlines ? find_plain(word) : std::nullopt;
  }
  // A byte takes at least one byte to spell, so a longer word cannot be a token.
  if (!pre_tokenizer_.ignore_merges || word.size() > vocabulary().longest) return std::nullopt;
  scratch.spelled.clear();
  for (const char c : word) append_utf8(scratch.spelled, kAlphabet.character[static_cast<std::uint8_t>(c)]);
  return find_plain(scratch.spelled);
}

void BpeTokenizer::link_word(std::string_view word, Scratch& scratch) const {
  std::vector<Link>& links = scratch.links;
  links.clear();
  const auto add = [&](SymbolId symbol) {
    const auto at = static_cast<std::int32_t>(links.size());
    if (at > 0) links.back().next = at;
    links.push_back({symbol, at - 1, kNobody});
  };
  if (!pre_tokenizer_.raw) {
    for (const char c : word) {
      const SymbolId symbol = byte_symbols_[static_cast<std::uint8_t>(c)];
      if (symbol != kNoSymbol) {
        add(symbol);
        continue;
      }
      for (const char r : kReplacementText) add(byte_symbols_[static_cast<std::uint8_t>(r)]);
    }
    return;
  }
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t length = decode_utf8(word, at).length;
    const std::string_view character = word.substr(at, length);
    at += length;
    if (const auto id = find_plain(character)) {
      add(static_cast<SymbolId>(*id));
      continue;
    }
    for (const char c : character) {
      const TokenId id = byte_tokens_[static_cast<std::uint8_t>(c)];
      add(id >= 0 ? static_cast<SymbolId>(id) : kNoSymbol);
    }
  }
}

void BpeTokenizer::merge(Scratch& scratch, std::uint64_t& steps) const {
  std::vector<Link>& links = scratch.links;
  const auto consider = [&](std::int32_t left, std::int32_t right) {
    ++steps;
    if (left == kNobody || right == kNobody) return;
    const SymbolId a = links[static_cast<std::size_t>(left)].symbol;
    const SymbolId b = links[static_cast<std::size_t>(right)].symbol;
    if (const Merge* found = merges_.find(a, b)) scratch.queue.push({found->rank, left, a, b, found->merged});
  };
  for (std::size_t i = 1; i < links.size(); ++i) {
    consider(static_cast<std::int32_t>(i - 1), static_cast<std::int32_t>(i));
  }
  while (!scratch.queue.empty()) {
    ++steps;
    const Candidate best = scratch.queue.top();
    scratch.queue.pop();
    Link& left = links[static_cast<std::size_t>(best.left)];
    if (left.symbol != best.left_symbol || left.next == kNobody) continue;
    Link& right = links[static_cast<std::size_t>(left.next)];
    if (right.symbol != best.right_symbol) continue;
    left.symbol = best.merged;
    right.symbol = kNoSymbol;
    left.next = right.next;
    if (left.next != kNobody) links[static_cast<std::size_t>(left.next)].previous = best.left;
    consider(left.previous, best.left);
    consider(best.left, left.next);
  }
}

void BpeTokenizer::append(SymbolId symbol, std::vector<TokenId>& ids) const {
  if (symbol < size()) {
    ids.push_back(static_cast<TokenId>(symbol));
  } else if (symbol != kNoSymbol) {
    append_spelled(extras_[symbol - size()], ids);
  } else if (const std::optional<TokenId> unknown = special().unknown; pre_tokenizer_.raw && unknown) {
    // Byte-level files often name their end-of-text token here, which no text of a user may become.
    ids.push_back(*unknown);
  }
}

// The characters of a merge that has no token of its own.
void BpeTokenizer::append_spelled(std::string_view text, std::vector<TokenId>& ids) const {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = decode_utf8(text, at).length;
    const auto id = find_plain(text.substr(at, length));
    at += length;
    if (id) ids.push_back(*id);
  }
}

std::string BpeTokenizer::plain_piece(TokenId id) const {
  const std::string_view text = vocabulary().text(id);
  if (pre_tokenizer_.raw) {
    const auto byte = byte_of_spelling(text);
    if (byte && vocabulary().kind(id) == TokenKind::byte) return std::string(1, static_cast<char>(*byte));
    return unescape_spaces(text);
  }
  std::string bytes;
  bytes.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    const std::int16_t byte = c.code < kAlphabet.byte.size() ? kAlphabet.byte[c.code] : std::int16_t{-1};
    if (byte >= 0) {
      bytes += static_cast<char>(byte);
    } else {
      bytes += text.substr(at, c.length);  // not of the alphabet: it stands for itself
    }
    at += c.length;
  }
  return bytes;
}

// The name of the pre-tokeniser, as the file has it or as it should. One converter of gpt-oss left the general name in
// its files, but the tokens that frame that family's messages tell it apart.
std::string_view pre_tokenizer_name(const GgufFile& file) {
  if (file.string("tokenizer.ggml.model") == "gemma4") return "gemma4";
  const std::string_view name = file.string("tokenizer.ggml.pre").value_or("");
  if (!name.empty() && name != "default" && name != "gpt-2") return name;
  const auto tokens = file.strings("tokenizer.ggml.tokens");
  const auto has = [&](std::string_view token) { return tokens && std::ranges::find(*tokens, token) != tokens->end(); };
  return has("<|channel|>") && has("<|message|>") && has("<|return|>") ? "gpt-4o" : name;
}

}  // namespace

std::unique_ptr<Tokenizer> load_bpe(const GgufFile& file, Log& log) {
  const std::string_view name = pre_tokenizer_name(file);
  const PreTokenizer* pre_tokenizer = find_pre_tokenizer(name);
  SpecialTokens defaults;
  if (pre_tokenizer != nullptr) {
    defaults.add_bos = pre_tokenizer->add_bos;
  } else if (name.empty()) {
    pre_tokenizer = find_pre_tokenizer("default");
    log.warn("the file has no tokenizer.ggml.pre: text is split as for \"default\", which may cost quality");
  } else {
    // Most vocabularies of today descend from this family.
    pre_tokenizer = find_pre_tokenizer("dbrx");
    log.warn("tokenizer.ggml.pre is \"{}\", which is not known: text is split as for \"{}\", which may cost quality",
             to_valid_utf8(name.substr(0, 64)), pre_tokenizer->name);
  }
  Vocabulary vocabulary = Vocabulary::load(file, defaults, log);
  const auto merges = file.strings(kMergesKey);
  if (!merges) fail(ErrorKind::bad_file, "the file has no {}, which a \"gpt2\" vocabulary needs", kMergesKey);
  return std::make_unique<BpeTokenizer>(std::move(vocabulary), *pre_tokenizer, *merges);
}

}  // namespace quarrel
