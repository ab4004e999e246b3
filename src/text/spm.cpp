#include "text/spm.h"

#include <array>
#include <queue>

#include "text/unicode.h"

namespace quarrel {
namespace {

constexpr std::int32_t kNobody = -1;

// A stretch of the text that became one symbol: a link of a chain, empty once its left neighbour swallowed it.
struct Symbol {
  std::size_t begin;
  std::size_t length;
  std::int32_t previous;
  std::int32_t next;
};

struct Candidate {
  float score;
  std::int32_t left;
  std::int32_t right;
  std::size_t length;  // of both when it was found: a candidate whose symbols grew since is stale

  // The queue's top is the highest score, and of equals the leftmost.
  bool operator<(const Candidate& other) const noexcept {
    return score != other.score ? score < other.score : left > other.left;
  }
};

class SpmTokenizer final : public Tokenizer {
 public:
  SpmTokenizer(Vocabulary vocabulary, bool add_space_prefix)
      : Tokenizer(std::move(vocabulary)),
        bytes_(byte_tokens(this->vocabulary())),
        add_space_prefix_(add_space_prefix) {}

  std::string_view algorithm() const noexcept override { return "spm"; }

 protected:
  void encode_plain(std::string_view text, bool after_special, std::vector<TokenId>& ids,
                    std::uint64_t& steps) const override;
  std::string plain_piece(TokenId id) const override;
  bool prefixes_space() const noexcept override { return add_space_prefix_; }

 private:
  void append_bytes(std::string_view text, std::vector<TokenId>& ids) const;

  std::array<TokenId, 256> bytes_;
  bool add_space_prefix_;
};

std::vector<Symbol> split_characters(std::string_view text) {
  std::vector<Symbol> symbols;
  symbols.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = decode_utf8(text, at).length;
    const auto index = static_cast<std::int32_t>(symbols.size());
    at += length;
    symbols.push_back({at - length, length, index - 1, at < text.size() ? index + 1 : kNobody});
  }
  return symbols;
}

void SpmTokenizer::encode_plain(std::string_view text, bool after_special, std::vector<TokenId>& ids,
                                std::uint64_t& steps) const {
  std::string escaped;
  escaped.reserve(text.size() + text.size() / 4 + kLowerBlock.size());
  if (after_special && add_space_prefix_) escaped += kLowerBlock;
  for (const char c : text) {
    if (c == ' ') {
      escaped += kLowerBlock;
    } else {
      escaped += c;
    }
  }
  const std::string_view whole = escaped;
  std::vector<Symbol> symbols = split_characters(whole);
  std::priority_queue<Candidate> queue;

  const auto consider = [&](std::int32_t left, std::int32_t right) {
    ++steps;
    if (left == kNobody || right == kNobody) return;
    const Symbol& first = symbols[static_cast<std::size_t>(left)];
    const std::size_t length = first.length + symbols[static_cast<std::size_t>(right)].length;
    if (length > vocabulary().longest) return;  // bounds what a look-up costs
    steps += length;
    if (const auto id = find_plain(whole.substr(first.begin, length))) {
      queue.push({vocabulary().score(*id), left, right, length});
    }
  };

  for (std::size_t i = 1; i < symbols.size(); ++i) {
    consider(static_cast<std::int32_t>(i - 1), static_cast<std::int32_t>(i));
  }
  while (!queue.empty()) {
    ++steps;
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[static_cast<std::size_t>(best.left)];
    Symbol& right = symbols[static_cast<std::size_t>(best.right)];
    if (left.length == 0 || right.length == 0 || left.length + right.length != best.length) continue;
    left.length += right.length;
    right.length = 0;
    left.next = right.next;
    if (right.next != kNobody) symbols[static_cast<std::size_t>(right.next)].previous = best.left;
    consider(left.previous, best.left);
    consider(best.left, left.next);
  }
  for (std::int32_t at = 0; at != kNobody; at = symbols[static_cast<std::size_t>(at)].next) {
    const Symbol& symbol = symbols[static_cast<std::size_t>(at)];
    const std::string_view piece = whole.substr(symbol.begin, symbol.length);
    if (const auto id = find_plain(piece)) {
      ids.push_back(*id);
    } else {
      append_bytes(piece, ids);
    }
  }
}

void SpmTokenizer::append_bytes(std::string_view text, std::vector<TokenId>& ids) const {
  for (const char c : text) {
    const TokenId id = bytes_[static_cast<std::uint8_t>(c)];
    if (id >= 0) {
      ids.push_back(id);
    } else if (const std::optional<TokenId> unknown = special().unknown) {
      ids.push_back(*unknown);
      return;  // one unknown token stands for the whole character
    }
  }
}

std::string SpmTokenizer::plain_piece(TokenId id) const {
  const std::string_view text = vocabulary().text(id);
  if (vocabulary().kind(id) == TokenKind::byte) {
    if (const auto byte = byte_of_spelling(text)) return std::string(1, static_cast<char>(*byte));
  }
  return unescape_spaces(text);
}

}  // namespace

std::unique_ptr<Tokenizer> load_spm(const GgufFile& file, Log& log) {
  SpecialTokens defaults;
  defaults.bos = 1;
  defaults.eos = 2;
  defaults.unknown = 0;
  defaults.add_bos = true;
  Vocabulary vocabulary = Vocabulary::load(file, defaults, log);
  if (!vocabulary.has_scores) log.warn("the file has no tokenizer.ggml.scores: all tokens count as equally likely");
  const bool add_space_prefix = file.boolean("tokenizer.ggml.add_space_prefix").value_or(true);
  return std::make_unique<SpmTokenizer>(std::move(vocabulary), add_space_prefix);
}

}  // namespace quarrel
