#include "text/vocabulary.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "base/error.h"

namespace quarrel {
namespace {

constexpr std::string_view kTokensKey = "tokenizer.ggml.tokens";
constexpr std::string_view kScoresKey = "tokenizer.ggml.scores";
constexpr std::string_view kKindsKey = "tokenizer.ggml.token_type";

// Converters often lose what a token is for, so a well-known spelling decides as well. In order of preference.
constexpr std::array<std::string_view, 12> kEndOfTurn = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>",         "<|endoftext|>", "<|end_of_text|>",
    "<EOT>",      "_<EOT>",     "[EOT]",   "<｜end▁of▁sentence｜>", "<turn|>",       "<end_of_utterance>"};
constexpr std::array<std::string_view, 30> kEndOfGeneration = {"<|eot_id|>",
                                                               "<|im_end|>",
                                                               "<|end|>",
                                                               "<|return|>",
                                                               "<|call|>",
                                                               "<|flush|>",
                                                               "<|calls|>",
                                                               "<end_of_turn>",
                                                               "<|endoftext|>",
                                                               "</s>",
                                                               "<|eom_id|>",
                                                               "<EOT>",
                                                               "_<EOT>",
                                                               "[EOT]",
                                                               "[EOS]",
                                                               "<|end_of_text|>",
                                                               "<end_of_utterance>",
                                                               "<eos>",
                                                               "<turn|>",
                                                               "<|tool_response>",
                                                               "<｜end▁of▁sentence｜>",
                                                               "[e~[",
                                                               "<|fim_pad|>",
                                                               "<fim-pad>",
                                                               "<fim_pad>",
                                                               "<|fim_repo|>",
                                                               "<|repo_name|>",
                                                               "<fim-repo>",
                                                               "<reponame>",
                                                               "<|file_sep|>"};
// Fill-in-the-middle marks: control tokens, but no end of anything.
constexpr std::array<std::string_view, 18> kFillMarks = {
    "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<|code_prefix|>", "<|prefix|>",
    "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>",  "<|code_suffix|>", "<|suffix|>",
    "<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>",   "<|code_middle|>", "<|middle|>"};

void check_count(std::string_view key, std::uint64_t count, std::size_t tokens) {
  if (count != tokens) {
    fail(ErrorKind::bad_file, "{} has {} entries, but {} has {}", key, count, kTokensKey, tokens);
  }
}

void load_texts(const GgufFile& file, Vocabulary& vocabulary) {
  const auto texts = file.strings(kTokensKey);
  if (!texts) fail(ErrorKind::bad_file, "the file has no {}: its vocabulary is missing", kTokensKey);
  if (texts->empty()) fail(ErrorKind::bad_file, "{} is empty", kTokensKey);
  if (texts->size() > static_cast<std::size_t>(std::numeric_limits<TokenId>::max())) {
    fail(ErrorKind::bad_file, "{} has {} entries, more than token ids can count", kTokensKey, texts->size());
  }
  vocabulary.texts.assign(texts->begin(), texts->end());
  for (const std::string& text : vocabulary.texts) vocabulary.longest = std::max(vocabulary.longest, text.size());
}

void load_scores(const GgufFile& file, Vocabulary& vocabulary) {
  vocabulary.scores.assign(vocabulary.size(), 0.0F);
  const auto scores = file.numbers(kScoresKey);
  if (!scores) return;
  check_count(kScoresKey, scores->count, vocabulary.size());
  vocabulary.has_scores = true;
  for (std::size_t i = 0; i < vocabulary.size(); ++i) {
    const auto score = static_cast<float>(scores->as_double(i));
    if (!std::isfinite(score)) fail(ErrorKind::bad_file, "{}[{}] is not a finite number", kScoresKey, i);
    vocabulary.scores[i] = score;
  }
}

void load_kinds(const GgufFile& file, Vocabulary& vocabulary) {
  vocabulary.kinds.assign(vocabulary.size(), TokenKind::normal);
  const auto kinds = file.numbers(kKindsKey);
  if (!kinds) return;
  check_count(kKindsKey, kinds->count, vocabulary.size());
  for (std::size_t i = 0; i < vocabulary.size(); ++i) {
    const std::int64_t kind = kinds->as_int(i);
    vocabulary.kinds[i] = kind >= 0 && kind <= 6 ? static_cast<TokenKind>(kind) : TokenKind::undefined;
  }
}

// The id under `key`, or `fallback` where the file is silent. Some converters wrote "none" as -1.
std::optional<TokenId> load_id(const GgufFile& file, std::string_view key, std::optional<TokenId> fallback,
                               std::size_t tokens) {
  if (fallback && static_cast<std::size_t>(*fallback) >= tokens) fallback.reset();
  const auto id = file.integer(key);
  if (!id) return fallback;
  if (*id == -1 || *id == std::numeric_limits<std::uint32_t>::max()) return std::nullopt;
  if (*id < 0 || static_cast<std::uint64_t>(*id) >= tokens) {
    fail(ErrorKind::bad_file, "{} is {}, but the vocabulary has {} tokens", key, *id, tokens);
  }
  return static_cast<TokenId>(*id);
}

void load_special(const GgufFile& file, const SpecialTokens& defaults, Vocabulary& vocabulary, Log& log) {
  const auto load = [&](std::string_view key, std::optional<TokenId> fallback) {
    return load_id(file, key, fallback, vocabulary.size());
  };
  SpecialTokens& special = vocabulary.special;
  special.bos = load("tokenizer.ggml.bos_token_id", defaults.bos);
  special.eos = load("tokenizer.ggml.eos_token_id", defaults.eos);
  special.eot = load("tokenizer.ggml.eot_token_id", defaults.eot);
  special.unknown = load("tokenizer.ggml.unknown_token_id", defaults.unknown);
  special.separator = load("tokenizer.ggml.seperator_token_id", defaults.separator);  // the format's own spelling
  special.padding = load("tokenizer.ggml.padding_token_id", defaults.padding);
  special.cls = load("tokenizer.ggml.cls_token_id", defaults.cls);
  special.mask = load("tokenizer.ggml.mask_token_id", defaults.mask);
  special.add_bos = file.boolean("tokenizer.ggml.add_bos_token").value_or(defaults.add_bos);
  special.add_eos = file.boolean("tokenizer.ggml.add_eos_token").value_or(defaults.add_eos);
  if (special.add_bos && !special.bos) {
    log.warn("tokenizer.ggml.add_bos_token asks for a BOS token, but the vocabulary names none: none is added");
    special.add_bos = false;
  }
  if (special.add_eos && !special.eos) {
    log.warn("tokenizer.ggml.add_eos_token asks for an EOS token, but the vocabulary names none: none is added");
    special.add_eos = false;
  }
}

void find_ends(const GgufFile& file, Vocabulary& vocabulary) {
  SpecialTokens& special = vocabulary.special;
  const auto make_control = [&](TokenId id) { vocabulary.kinds[static_cast<std::size_t>(id)] = TokenKind::control; };
  std::vector<TokenId>& ends = special.end_of_generation;
  for (const std::string_view text : kEndOfTurn) {
    if (!special.eot) special.eot = vocabulary.find(text);
  }
  for (const std::string_view text : kEndOfGeneration) {
    if (const auto id = vocabulary.find(text)) {
      ends.push_back(*id);
      make_control(*id);
    }
  }
  for (const std::string_view text : kFillMarks) {
    if (const auto id = vocabulary.find(text)) make_control(*id);
  }
  const auto drop = [&](std::string_view text) {
    if (const auto id = vocabulary.find(text)) std::erase(ends, *id);
  };
  const auto has = [&](std::string_view text) { return vocabulary.find(text).has_value(); };
  // Where <|return|> or <|flush|> ends the reply, <|end|> only ends one message of it.
  const bool has_calls = has("<|call|>") || has("<|calls|>");
  if (has_calls && (has("<|return|>") || has("<|flush|>"))) {
    drop("<|end|>");
    if (special.eot && vocabulary.text(*special.eot) == "<|end|>") special.eot.reset();
  }
  if (has("<|tool_response>")) drop("</s>");
  const auto eom = load_id(file, "tokenizer.ggml.eom_token_id", std::nullopt, vocabulary.size());
  for (const auto& id : {special.eos, special.eot, eom}) {
    if (id) ends.push_back(*id);
  }
  std::ranges::sort(ends);
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
}

bool contains_any(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::ranges::any_of(words, [&](std::string_view word) { return text.find(word) != std::string_view::npos; });
}

// Files do not say which tokens swallow white space; it is known of a few models by their names.
void find_strips(const GgufFile& file, Vocabulary& vocabulary) {
  std::string name(file.string("general.name").value_or(""));
  for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  const std::string_view pre = file.string("tokenizer.ggml.pre").value_or("");
  const std::string_view architecture = file.string("general.architecture").value_or("");
  const auto strip_left = [&](std::string_view text) {
    if (const auto id = vocabulary.find(text)) vocabulary.strips_left.push_back(*id);
  };
  if (contains_any(pre, {"jina-v2-de", "jina-v2-es", "jina-v2-code"}) ||
      contains_any(architecture, {"nomic-bert-moe", "jina-bert-v3"})) {
    strip_left("<mask>");
  } else if (contains_any(name, {"modern-bert"})) {
    strip_left("[MASK]");
  } else if (contains_any(name, {"phi-3", "phi3"})) {
    for (std::size_t i = 0; i < vocabulary.size(); ++i) {
      const auto id = static_cast<TokenId>(i);
      const TokenKind kind = vocabulary.kind(id);
      const std::string_view text = vocabulary.text(id);
      const bool is_special =
          kind == TokenKind::control || kind == TokenKind::user_defined || kind == TokenKind::unknown;
      const bool keeps = text == "<unk>" || text == "<s>" || text == "<|endoftext|>";
      if (is_special && !keeps) vocabulary.strips_right.push_back(id);
    }
  }
}

std::optional<std::uint8_t> hex_digit(char c) noexcept {
  if (c >= '0' && c <= '9') return static_cast<std::uint8_t>(c - '0');
  if (c >= 'A' && c <= 'F') return static_cast<std::uint8_t>(c - 'A' + 10);
  if (c >= 'a' && c <= 'f') return static_cast<std::uint8_t>(c - 'a' + 10);
  return std::nullopt;
}

}  // namespace

Vocabulary Vocabulary::load(const GgufFile& file, const SpecialTokens& defaults, Log& log) {
  Vocabulary vocabulary;
  load_texts(file, vocabulary);
  load_scores(file, vocabulary);
  load_kinds(file, vocabulary);
  vocabulary.index_.reserve(vocabulary.size());
  for (std::size_t i = 0; i < vocabulary.size(); ++i) {
    if (!vocabulary.texts[i].empty()) vocabulary.index_.emplace(vocabulary.texts[i], static_cast<TokenId>(i));
  }
  load_special(file, defaults, vocabulary, log);
  find_ends(file, vocabulary);
  find_strips(file, vocabulary);
  return vocabulary;
}

std::optional<TokenId> Vocabulary::find(std::string_view spelling) const noexcept {
  const auto found = index_.find(spelling);
  if (found == index_.end()) return std::nullopt;
  return found->second;
}

std::optional<std::uint8_t> byte_of_spelling(std::string_view spelling) noexcept {
  if (spelling.size() != 6 || !spelling.starts_with("<0x") || spelling[5] != '>') return std::nullopt;
  const auto high = hex_digit(spelling[3]);
  const auto low = hex_digit(spelling[4]);
  if (!high || !low) return std::nullopt;
  return static_cast<std::uint8_t>(*high << 4 | *low);
}

std::array<TokenId, 256> byte_tokens(const Vocabulary& vocabulary) {
  std::array<TokenId, 256> tokens{};
  tokens.fill(-1);
  for (std::size_t i = vocabulary.size(); i-- > 0;) {
    const auto byte = byte_of_spelling(vocabulary.texts[i]);
    if (byte) tokens[*byte] = static_cast<TokenId>(i);
  }
  return tokens;
}

}  // namespace quarrel
