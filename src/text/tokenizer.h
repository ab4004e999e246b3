// Text to token ids and back, for the vocabulary a GGUF file carries. `load` reads the file and picks the algorithm;
// callers see only this interface. Immutable after loading: any thread may encode and decode.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "gguf/file.h"
#include "text/special_matcher.h"
#include "text/vocabulary.h"

namespace quarrel {

struct EncodeOptions {
  bool add_special = false;    // BOS, EOS, CLS, SEP as the vocabulary asks
  bool parse_special = false;  // the text of control tokens becomes those tokens (user-defined ones always do)
  // Where `parse_special` must not apply: what a user wrote inside a rendered template. Ascending, not overlapping.
  // A control token's text that overlaps such a range stays plain text.
  std::span<const TextRange> literal = {};
  // Counts elementary steps (comparisons, heap operations, character moves), so that a test can bound the work.
  std::uint64_t* steps = nullptr;
};

class Tokenizer {
 public:
  // Throws Error(bad_file) for a damaged vocabulary, Error(unsupported) for none or an unknown model.
  static std::unique_ptr<Tokenizer> load(const GgufFile& file, Log& log);
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  std::size_t size() const noexcept { return vocabulary_.size(); }
  const SpecialTokens& special() const noexcept { return vocabulary_.special; }
  bool is_end_of_generation(TokenId id) const noexcept;
  // Of an id outside the vocabulary: undefined, and no spelling.
  TokenKind kind(TokenId id) const noexcept { return contains(id) ? vocabulary_.kind(id) : TokenKind::undefined; }
  // Control and unknown tokens: text shows them only when asked to, and what follows them may still be the first of it.
  bool is_hidden(TokenId id) const noexcept { return kind(id) == TokenKind::control || kind(id) == TokenKind::unknown; }
  // As the vocabulary spells it ("Ġthe", "▁the", "##ing"), not the text it stands for.
  std::string_view spelling(TokenId id) const noexcept {
    return contains(id) ? vocabulary_.text(id) : std::string_view{};
  }
  std::optional<TokenId> find(std::string_view spelling) const noexcept { return vocabulary_.find(spelling); }
  // "bpe", "spm", "wordpiece" or "unigram", and the pre-tokeniser in use where there is one.
  virtual std::string_view algorithm() const noexcept = 0;
  virtual std::string_view pre_tokenizer() const noexcept { return {}; }

  // Any bytes are accepted; what is not UTF-8 is encoded as well as the vocabulary can. Throws Error(bad_input) for a
  // text beyond a gigabyte.
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options = {}) const;

  // Throws Error(bad_input) for an id outside the vocabulary. With `show_special`, control tokens appear as spelled.
  std::string decode(std::span<const TokenId> ids, bool show_special = false) const;

  // The bytes one token adds to a text, given whether it is the first of it: what `decode` is made of. Throws
  // Error(bad_input) for an id outside the vocabulary.
  std::string piece(TokenId id, bool first, bool show_special) const;

 protected:
  explicit Tokenizer(Vocabulary vocabulary);

  const Vocabulary& vocabulary() const noexcept { return vocabulary_; }
  // A token that plain text may become: control and unknown ones are named by special text alone.
  std::optional<TokenId> find_plain(std::string_view spelling) const noexcept {
    const auto id = vocabulary_.find(spelling);
    return id && !is_hidden(*id) ? id : std::nullopt;
  }

  // Appends the tokens of a stretch that holds no special token; never called with an empty one. `after_special` says
  // that it begins the text or follows a special token.
  virtual void encode_plain(std::string_view text, bool after_special, std::vector<TokenId>& ids,
                            std::uint64_t& steps) const = 0;
  // The bytes of a token that is neither control nor unknown nor user-defined.
  virtual std::string plain_piece(TokenId id) const = 0;
  // Does `encode` put a space before the text, which the first piece must lose again?
  virtual bool prefixes_space() const noexcept { return false; }
  // What decoding does to the whole text at last.
  virtual std::string clean_up(std::string text) const { return text; }

 private:
  bool contains(TokenId id) const noexcept { return id >= 0 && static_cast<std::size_t>(id) < size(); }

  Vocabulary vocabulary_;
  SpecialMatcher matcher_;
};

}  // namespace quarrel
