#include "text/tokenizer.h"

#include <algorithm>

#include "base/error.h"
#include "text/bpe.h"
#include "text/spm.h"
#include "text/unigram.h"
#include "text/wordpiece.h"

namespace quarrel {
namespace {

constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;  // so that positions fit 32 bits everywhere

}  // namespace

Tokenizer::Tokenizer(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)), matcher_(vocabulary_) {}

std::unique_ptr<Tokenizer> Tokenizer::load(const GgufFile& file, Log& log) {
  const auto model = file.string("tokenizer.ggml.model");
  if (!model) fail(ErrorKind::unsupported, "the file has no vocabulary: tokenizer.ggml.model is missing");
  if (*model == "gpt2" || *model == "gemma4") return load_bpe(file, log);
  if (*model == "llama") return load_spm(file, log);
  if (*model == "bert") return load_wordpiece(file, log);
  if (*model == "t5") return load_unigram(file, log);
  if (*model == "no_vocab" || *model == "none") {
    fail(ErrorKind::unsupported, "the file has no vocabulary: tokenizer.ggml.model is \"{}\"", *model);
  }
  fail(ErrorKind::unsupported, "tokenizer.ggml.model is \"{}\", which is not supported (gpt2, llama, bert, t5 are)",
       *model);
}

bool Tokenizer::is_end_of_generation(TokenId id) const noexcept {
  return std::ranges::binary_search(special().end_of_generation, id);
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  if (text.size() > kMaxTextBytes) {
    fail(ErrorKind::bad_input, "a text of {} bytes is too long to tokenise (limit {})", text.size(), kMaxTextBytes);
  }
  std::uint64_t steps = 0;
  std::vector<TokenId> ids;
  const std::optional<TokenId> bos = special().bos;
  if (options.add_special && special().add_bos && bos) ids.push_back(*bos);
  bool after_special = true;
  for (const TextFragment& fragment : matcher_.cut(text, options.parse_special, options.literal, steps)) {
    if (fragment.token) {
      ids.push_back(*fragment.token);
    } else {
      encode_plain(text.substr(fragment.range.begin, fragment.range.end - fragment.range.begin), after_special, ids,
                   steps);
    }
    after_special = fragment.token.has_value();
  }
  const std::optional<TokenId> eos = special().eos;
  if (options.add_special && special().add_eos && eos) ids.push_back(*eos);
  if (options.steps != nullptr) *options.steps += steps;
  return ids;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool show_special) const {
  std::string text;
  bool first = true;
  for (const TokenId id : ids) {
    text += piece(id, first, show_special);
    first = first && !show_special && is_hidden(id);
  }
  return clean_up(std::move(text));
}

std::string Tokenizer::piece(TokenId id, bool first, bool show_special) const {
  if (!contains(id)) {
    fail(ErrorKind::bad_input, "token id {} is outside the vocabulary of {} tokens", id, size());
  }
  if (is_hidden(id)) return show_special ? std::string(vocabulary_.text(id)) : std::string();
  if (vocabulary_.kind(id) == TokenKind::user_defined) return std::string(vocabulary_.text(id));
  std::string bytes = plain_piece(id);
  if (first && prefixes_space() && bytes.starts_with(' ')) bytes.erase(0, 1);
  return bytes;
}

}  // namespace quarrel
