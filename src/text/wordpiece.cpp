#include "text/wordpiece.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "text/byte_trie.h"
#include "text/unicode.h"

namespace quarrel {
namespace {

constexpr std::string_view kContinuation = "##";

struct WordPieceOptions {
  bool lowercase = true;
  bool strip_accents = true;
};

// Ideographs, which stand for themselves in a text without spaces. (One range begins late: so it does in the
// vocabularies' own normaliser.)
bool is_ideograph(char32_t c) noexcept {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

// Normalises a text and cuts it into words, as the models' own tokenizer did in training: control characters fall out,
// the rest is decomposed (NFD), accents are dropped, letters become small; blanks, punctuation and ideographs divide.
// Each word is handed over with "▁" before it, or empty in place of one that is too long to be known.
class WordCutter {
 public:
  using OnWord = std::function<void(std::string_view word)>;
  WordCutter(const WordPieceOptions& options, OnWord on_word) : options_(options), on_word_(std::move(on_word)) {}

  void add(char32_t code) {
    const bool is_blank = is_white_space(code);
    const bool is_line_or_tab = code == '\t' || code == '\n' || code == '\r';
    if (code == 0 || code == kReplacementChar) return;
    if (char_category(code) == CharCategory::control && !is_line_or_tab) return;
    if (is_blank) return finish_word();
    const bool alone = is_ideograph(code);  // asked of the character itself, as it may decompose to another kind
    if (alone) finish_word();
    if (options_.strip_accents) {
      const Decomposition decomposition = decompose(code);
      for (const char32_t part : decomposition.parts()) add_decomposed(part);
    } else {
      add_normal(code);
    }
    if (alone) finish_word();
  }

  void finish_word() {
    put_marks();
    if (characters_ > kLongestWord) {
      on_word_({});
    } else if (characters_ > 0) {
      on_word_(word_);
    }
    word_.resize(kLowerBlock.size());
    characters_ = 0;
  }

 private:
  // Marks of one letter are sorted by their class. Those without a width are dropped afterwards in principle; dropping
  // them at once keeps the order of the others and bounds the work for a text of nothing but marks.
  void add_decomposed(char32_t code) {
    const std::uint8_t order = combining_class(code);
    if (order == 0) put_marks();
    if (is_nonspacing_mark(code)) return;
    if (order == 0) return add_normal(code);
    marks_.emplace_back(order, code);
  }

  void put_marks() {
    if (marks_.empty()) return;
    std::ranges::stable_sort(marks_, {}, &std::pair<std::uint8_t, char32_t>::first);
    for (const auto& [order, code] : std::exchange(marks_, {})) add_normal(code);
  }

  void add_normal(char32_t code) {
    const CharCategory category = char_category(code);
    const bool alone = category == CharCategory::punctuation || (code < 0x7F && category == CharCategory::symbol);
    if (alone && characters_ > 0) finish_word();
    constexpr char32_t kDottedCapitalI = 0x130;  // the only letter whose small form is two characters
    if (options_.lowercase && code == kDottedCapitalI) {
      append_utf8(word_, U'i');
      append_utf8(word_, 0x307);
      ++characters_;
    } else {
      append_utf8(word_, options_.lowercase ? to_lower(code) : code);
    }
    ++characters_;
    if (alone) finish_word();
  }

  static constexpr std::size_t kLongestWord = 100;  // in characters: the same for every BERT

  const WordPieceOptions& options_;
  const OnWord on_word_;
  std::string word_{kLowerBlock};
  std::size_t characters_ = 0;
  std::vector<std::pair<std::uint8_t, char32_t>> marks_;  // class and code, of the letter before them
};

class WordPieceTokenizer final : public Tokenizer {
 public:
  WordPieceTokenizer(Vocabulary vocabulary, WordPieceOptions options)
      : Tokenizer(std::move(vocabulary)), options_(options) {
    // Files spell the beginning of a word "▁the", word lists spell the rest "##ing": know which one this is.
    marks_continuation_ = std::ranges::none_of(this->vocabulary().texts,
                                               [](const std::string& text) { return text.starts_with(kLowerBlock); });
    build_trie();
  }

  std::string_view algorithm() const noexcept override { return "wordpiece"; }

 protected:
  void encode_plain(std::string_view text, bool after_special, std::vector<TokenId>& ids,
                    std::uint64_t& steps) const override;
  std::string plain_piece(TokenId id) const override;
  std::string clean_up(std::string text) const override;

 private:
  void build_trie();
  void encode_word(std::string_view word, std::vector<TokenId>& ids, std::uint64_t& steps) const;

  WordPieceOptions options_;
  bool marks_continuation_ = false;
  ByteTrie trie_;  // keys begin with "▁" where a word begins
};

void WordPieceTokenizer::build_trie() {
  std::vector<std::string> respelled;
  std::vector<ByteTrie::Entry> entries;
  respelled.reserve(vocabulary().size());  // entries point into it
  for (std::size_t i = 0; i < vocabulary().size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (vocabulary().kind(id) == TokenKind::control || vocabulary().kind(id) == TokenKind::unknown) continue;
    std::string_view text = vocabulary().text(id);
    if (marks_continuation_ && text.starts_with(kContinuation)) {
      text.remove_prefix(kContinuation.size());
    } else if (marks_continuation_) {
      text = respelled.emplace_back(std::string(kLowerBlock).append(text));
    }
    entries.emplace_back(text, id);
  }
  trie_ = ByteTrie(std::move(entries));
}

void WordPieceTokenizer::encode_plain(std::string_view text, bool, std::vector<TokenId>& ids,
                                      std::uint64_t& steps) const {
  WordCutter cutter(options_, [&](std::string_view word) { encode_word(word, ids, steps); });
  for (std::size_t at = 0; at < text.size(); ++steps) {
    const Utf8Char c = decode_utf8(text, at);
    at += c.length;
    cutter.add(c.code);
  }
  cutter.finish_word();
}

void WordPieceTokenizer::encode_word(std::string_view word, std::vector<TokenId>& ids, std::uint64_t& steps) const {
  const std::size_t before = ids.size();
  const auto put_unknown = [&] {
    ids.resize(before);
    if (const std::optional<TokenId> unknown = special().unknown) ids.push_back(*unknown);
  };
  if (word.empty()) return put_unknown();
  for (std::size_t at = 0; at < word.size();) {
    TokenId best = -1;
    std::size_t best_end = at;
    std::uint32_t node = ByteTrie::kRoot;
    for (std::size_t end = at; end < word.size();) {
      node = trie_.child(node, word[end++]);
      ++steps;
      if (node == ByteTrie::kNone) break;
      if (trie_.value(node) < 0) continue;
      best = trie_.value(node);
      best_end = end;
    }
    if (best < 0) return put_unknown();  // a part nobody knows makes the whole word unknown
    ids.push_back(best);
    at = best_end;
  }
}

std::string WordPieceTokenizer::plain_piece(TokenId id) const {
  const std::string_view text = vocabulary().text(id);
  if (!marks_continuation_) return unescape_spaces(text);
  if (text.starts_with(kContinuation)) return std::string(text.substr(kContinuation.size()));
  return std::string(" ").append(text);
}

// Pulls punctuation back to the word it was cut from: "don ' t" is "don't", "end ." is "end.".
std::string WordPieceTokenizer::clean_up(std::string text) const {
  std::string joined;  // without the space before ? ! . ,
  for (const char c : text) {
    const bool follows = c == '?' || c == '!' || c == '.' || c == ',';
    if (follows && joined.ends_with(' ')) joined.pop_back();
    joined += c;
  }
  std::string quoted;  // without the spaces around a single '
  for (std::size_t i = 0; i < joined.size(); ++i) {
    const bool between = joined[i] == '\'' && i > 0 && joined[i - 1] == ' ' && quoted.ends_with(' ') &&
                         i + 1 < joined.size() && joined[i + 1] == ' ';
    if (between) quoted.pop_back();
    quoted += joined[i];
    if (between) ++i;
  }
  std::string result;  // without the space before 's 'm 're 've
  for (std::size_t i = 0; i < quoted.size(); ++i) {
    const std::string_view rest = std::string_view(quoted).substr(i);
    const bool contraction =
        rest.starts_with("'s") || rest.starts_with("'m") || rest.starts_with("'re") || rest.starts_with("'ve");
    if (contraction && result.ends_with(' ')) result.pop_back();
    result += quoted[i];
  }
  return result;
}

}  // namespace

std::unique_ptr<Tokenizer> load_wordpiece(const GgufFile& file, Log& log) {
  SpecialTokens defaults;
  defaults.unknown = 100;
  defaults.separator = 102;
  defaults.padding = 0;
  defaults.mask = 103;
  Vocabulary vocabulary = Vocabulary::load(file, defaults, log);
  // Every text begins with CLS and ends with SEP, whatever the flags for BOS and EOS say.
  SpecialTokens& special = vocabulary.special;
  if (!special.cls) special.cls = special.bos;
  if (!special.cls && vocabulary.size() > 101) special.cls = 101;
  special.bos = special.cls;
  special.eos = special.separator;
  special.add_bos = special.bos.has_value();
  special.add_eos = special.eos.has_value();

  WordPieceOptions options;
  options.lowercase = file.boolean("tokenizer.ggml.normalizer.lowercase").value_or(true);
  options.strip_accents = file.boolean("tokenizer.ggml.normalizer.strip_accents").value_or(options.lowercase);
  return std::make_unique<WordPieceTokenizer>(std::move(vocabulary), options);
}

}  // namespace quarrel
