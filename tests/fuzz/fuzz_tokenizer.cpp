// Text to tokens and back. The first byte holds the options; its two highest bits choose what the bytes after it are:
// a text for one of the fixed vocabularies, a vocabulary spelled line by line, or a whole GGUF file with one.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "fuzz/targets.h"
#include "fuzz/vocabularies.h"
#include "gguf/file.h"
#include "text/text_stream.h"
#include "text/unicode.h"

namespace quarrel::fuzz {
namespace {

constexpr std::uint8_t kAddSpecial = 1, kParseSpecial = 2, kShowSpecial = 4, kLiteral = 8;
constexpr std::uint8_t kSpelled = 0x40, kFile = 0x80;
constexpr std::size_t kHeaderBytes = 4;  // options, vocabulary, and two that choose a range of the text

constexpr std::string_view kFixedText =
    "Hello the world <s> <|im_end|> \t\n\n don't 12345 a\u0301é中文 🚀 \xFF\xC3 ▁the  <0x41>";

// The text of tokens as a stream shows it: without control tokens, ill-formed bytes replaced.
std::string shown_text(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::string bytes;
  bool first = true;
  for (const TokenId id : ids) {
    bytes += tokenizer.piece(id, first, false);
    first = first && tokenizer.is_hidden(id);
  }
  return to_valid_utf8(bytes);
}

void check_stream(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, std::string_view stop) {
  const std::string whole = shown_text(tokenizer, ids);
  const std::string valid_stop = to_valid_utf8(stop);
  const auto stream_all = [&](const std::vector<std::string>& stops) {
    TextStream stream(tokenizer, stops, false);
    std::string text;
    for (const TokenId id : ids) text += stream.push(id);
    return text + stream.finish();
  };
  require(stream_all({}) == whole, "a stream gives the text of its tokens");
  const std::size_t found = valid_stop.empty() ? std::string::npos : whole.find(valid_stop);
  require(stream_all({std::string(stop)}) == whole.substr(0, found), "a stream ends before its stop string");
}

void check_ids(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  for (const TokenId id : ids) {
    require(id >= 0 && static_cast<std::size_t>(id) < tokenizer.size(), "ids lie in the vocabulary");
  }
}

// The work is n log n with a modest factor for vocabularies of short tokens.
void check_steps(std::uint64_t steps, std::size_t bytes) {
  const std::uint64_t size = bytes + 16;
  require(steps <= 100 * size * std::bit_width(size), "encoding takes n log n steps");
}

// A control token comes of itself only where the text may name it.
void check_no_control(const Tokenizer& tokenizer, std::string_view text) {
  for (const TokenId id : tokenizer.encode(text)) {
    require(tokenizer.kind(id) != TokenKind::control, "plain text never becomes a control token");
  }
}

void encode_text(const FuzzVocabulary& vocabulary, std::uint8_t options, Input chosen, std::string_view text) {
  const Tokenizer& tokenizer = *vocabulary.tokenizer;
  const std::size_t begin = std::to_integer<std::size_t>(chosen[0]) * text.size() / 256;
  const std::size_t end = std::min(begin + std::to_integer<std::size_t>(chosen[1]), text.size());
  const TextRange literal{begin, end};
  std::uint64_t steps = 0;
  EncodeOptions how;
  how.add_special = (options & kAddSpecial) != 0;
  how.parse_special = (options & kParseSpecial) != 0;
  how.steps = &steps;
  if ((options & kLiteral) != 0 && end > begin) how.literal = {&literal, 1};
  const std::vector<TokenId> ids = tokenizer.encode(text, how);
  check_ids(tokenizer, ids);
  check_steps(steps, text.size());
  const bool show = (options & kShowSpecial) != 0;
  const std::string decoded = tokenizer.decode(ids, show);
  check_stream(tokenizer, ids, text.substr(begin, end - begin));
  check_no_control(tokenizer, text);

  const bool has_block = text.find(kLowerBlock) != std::string_view::npos;
  const bool plain = tokenizer.encode(text) == tokenizer.encode(text, {.parse_special = true});
  if (vocabulary.keeps_bytes && !(vocabulary.loses_blocks && has_block)) {
    const std::string back = tokenizer.decode(tokenizer.encode(text));
    // A user-defined token takes the space that a prefix puts before what follows it.
    const bool has_user_defined = vocabulary.loses_blocks && text.find("<tool>") != std::string_view::npos;
    if (!has_user_defined) require(back == text, "a text comes back as it was");
    if (plain && !show && !has_user_defined) require(decoded == text, "what is added is hidden again");
  }
}

// A vocabulary that nobody vouches for: any answer will do that keeps to the interface.
void use_vocabulary(Input file_bytes, std::uint8_t options) {
  MemoryLog log;
  const GgufFile file = GgufFile::view(file_bytes, "fuzzed.gguf");
  const auto tokenizer = Tokenizer::load(file, log);
  std::string text(kFixedText);
  for (std::size_t id = 0; id < tokenizer->size() && text.size() < 4096; ++id) {
    text += tokenizer->spelling(static_cast<TokenId>(id));
  }
  const std::vector<TokenId> ids = tokenizer->encode(
      text, {.add_special = (options & kAddSpecial) != 0, .parse_special = (options & kParseSpecial) != 0});
  check_ids(*tokenizer, ids);
  tokenizer->decode(ids, (options & kShowSpecial) != 0);
  check_stream(*tokenizer, ids, "the");
  for (std::size_t id = 0; id < tokenizer->size(); ++id) tokenizer->piece(static_cast<TokenId>(id), true, true);
}

void run(Input input, const std::vector<FuzzVocabulary>& vocabularies, std::string_view model) {
  if (input.empty()) return;
  const auto options = std::to_integer<std::uint8_t>(input[0]);
  try {
    if ((options & kFile) != 0) {
      use_vocabulary(input.subspan(1), options);
    } else if ((options & kSpelled) != 0) {
      use_vocabulary(spelled_vocabulary(model, as_text(input.subspan(1))), options);
    } else if (input.size() >= kHeaderBytes) {
      const std::size_t index = std::to_integer<std::size_t>(input[1]) % vocabularies.size();
      encode_text(vocabularies[index], options, input.subspan(2, 2), as_text(input.subspan(kHeaderBytes)));
    }
  } catch (const Error&) {
    require((options & (kFile | kSpelled)) != 0, "a sound vocabulary takes every text");
  }
}

}  // namespace

void tokenizer_bpe(Input input) {
  static const std::vector<FuzzVocabulary> kVocabularies = bpe_vocabularies();
  run(input, kVocabularies, "gpt2");
}

void tokenizer_spm(Input input) {
  static const std::vector<FuzzVocabulary> kVocabularies = spm_vocabularies();
  run(input, kVocabularies, "llama");
}

void tokenizer_wordpiece(Input input) {
  static const std::vector<FuzzVocabulary> kVocabularies = wordpiece_vocabularies();
  run(input, kVocabularies, "bert");
}

void tokenizer_unigram(Input input) {
  static const std::vector<FuzzVocabulary> kVocabularies = unigram_vocabularies();
  run(input, kVocabularies, "t5");
}

}  // namespace quarrel::fuzz
