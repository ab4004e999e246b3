#include "fuzz/vocabularies.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "gguf/writer.h"
#include "support/toy_model.h"

namespace quarrel::fuzz {
namespace {

constexpr std::int32_t kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kByte = 6;

// What a file says of its tokens, put together token by token.
struct Draft {
  std::vector<std::string> tokens;
  std::vector<std::int32_t> kinds;
  std::vector<float> scores;

  void add(std::string_view text, std::int32_t kind, float score = 0) {
    tokens.emplace_back(text);
    kinds.push_back(kind);
    scores.push_back(score);
  }
  void add_bytes() {
    for (unsigned byte = 0; byte < 256; ++byte) add(fmt::format("<0x{:02X}>", byte), kByte);
  }
  void put(GgufWriter& writer, std::string_view model) const {
    writer.put_string("tokenizer.ggml.model", model);
    writer.put_strings("tokenizer.ggml.tokens", tokens);
    writer.put_i32s("tokenizer.ggml.token_type", kinds);
    writer.put_f32s("tokenizer.ggml.scores", scores);
  }
};

std::unique_ptr<Tokenizer> load(const GgufWriter& writer) {
  const std::vector<std::byte> bytes = writer.to_bytes();
  MemoryLog log;
  return Tokenizer::load(GgufFile::view(bytes, "fuzzed.gguf"), log);
}

void put_bytes(GgufWriter& writer, std::string_view key, std::string_view bytes) {
  const GgufNumbers numbers{GgufKind::u8, bytes.size(), reinterpret_cast<const std::byte*>(bytes.data())};
  writer.put_entry({.key = key, .kind = GgufKind::array, .value = numbers, .offset = 0});
}

// A normalisation table of a few sequences. A state of the trie owns 256 places, so that no two ever meet.
class CharsMapMaker {
 public:
  void add(std::string_view from, std::string_view to) {
    std::size_t state = 0;
    for (const char c : from) {
      const auto label = static_cast<std::uint8_t>(c);
      if (states_[state][label] == 0) {
        states_[state][label] = states_.size();
        states_.emplace_back();
        values_.push_back(kNone);
      }
      state = states_[state][label];
    }
    values_[state] = static_cast<std::uint32_t>(replacements_.size());
    replacements_.append(to).push_back('\0');
  }

  std::string bytes() const {
    std::vector<std::uint32_t> units((states_.size() + 1) * 256, 0);
    units[0] = base(0) << 10;
    for (std::size_t state = 0; state < states_.size(); ++state) {
      if (values_[state] != kNone) units[base(state)] = values_[state];
      for (std::uint32_t label = 1; label < 256; ++label) {
        const std::size_t child = states_[state][label];
        if (child == 0) continue;
        const std::uint32_t place = base(state) ^ label;
        const std::uint32_t leaf = values_[child] != kNone ? 1U << 8 : 0U;
        units[place] = (place ^ base(child)) << 10 | leaf | label;
      }
    }
    std::string result;
    append(result, static_cast<std::uint32_t>(units.size() * 4));
    for (const std::uint32_t unit : units) append(result, unit);
    return result + replacements_;
  }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  static std::uint32_t base(std::size_t state) { return static_cast<std::uint32_t>(256 * (state + 1)); }
  static void append(std::string& bytes, std::uint32_t value) {
    for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(value >> shift & 0xFF);
  }

  std::vector<std::array<std::size_t, 256>> states_{1};
  std::vector<std::uint32_t> values_{kNone};
  std::string replacements_;
};

// The vocabulary of the chatting toy with a few tokens of other kinds.
GgufWriter byte_level(const GgufFile& toy, std::string_view pre_tokenizer) {
  Draft draft;
  for (const std::string& text : test::toy_chat_tokens()) {
    draft.add(text, text.starts_with("<|") ? kControl : kNormal);
  }
  draft.add("<tool>", kUserDefined);
  draft.add("STOP", kControl);  // one word for every pre-tokeniser
  GgufWriter writer;
  draft.put(writer, "gpt2");
  writer.put_entry(*toy.find("tokenizer.ggml.merges"));
  writer.put_string("tokenizer.ggml.pre", pre_tokenizer);
  writer.put_u32("tokenizer.ggml.bos_token_id", 1);
  writer.put_u32("tokenizer.ggml.eos_token_id", 2);
  writer.put_bool("tokenizer.ggml.add_bos_token", true);
  return writer;
}

// Characters and merges without a byte alphabet.
GgufWriter raw_bpe() {
  Draft draft;
  draft.add("<pad>", kControl);
  draft.add("<eos>", kControl);
  draft.add("<bos>", kControl);
  draft.add("<unk>", kUnknown);
  draft.add_bytes();
  for (const char* text : {"▁", "t", "h", "e", "▁t", "he", "▁the", "\n", "\n\n", "▁▁", "é", "中"}) {
    draft.add(text, kNormal);
  }
  draft.add("<tool>", kUserDefined);
  draft.add("Q", kControl);
  GgufWriter writer;
  draft.put(writer, "gemma4");
  const std::vector<std::string> merges = {"▁ t", "h e", "▁t he", "\n \n", "▁ ▁"};
  writer.put_strings("tokenizer.ggml.merges", merges);
  writer.put_u32("tokenizer.ggml.bos_token_id", 2);
  writer.put_u32("tokenizer.ggml.eos_token_id", 1);
  writer.put_u32("tokenizer.ggml.unknown_token_id", 3);
  return writer;
}

Draft spaced_words() {
  Draft draft;
  draft.add("<unk>", kUnknown);
  draft.add("<s>", kControl);
  draft.add("</s>", kControl);
  draft.add_bytes();
  float score = -1;
  for (const char* text : {"▁",  "e",   "t",    "a", "h",  "▁t", "he", "▁the", "in",  "an", "▁a", "▁▁", "▁▁▁▁",
                           "er", "and", "▁and", "é", "中", "\n", "S",  "ST",   "STO", "fi", "1",  "."}) {
    draft.add(text, kNormal, score--);
  }
  draft.add("<tool>", kUserDefined);
  draft.add("STOP", kControl);
  return draft;
}

}  // namespace

std::vector<FuzzVocabulary> bpe_vocabularies() {
  const std::vector<std::byte> bytes = test::make_toy_chat();
  const GgufFile toy = GgufFile::view(bytes, "toy.gguf");
  std::vector<FuzzVocabulary> result;
  for (const char* name :
       {"default", "gpt-2",        "smollm",         "falcon",      "llama-bpe", "qwen2",    "laguna",
        "qwen35",  "seed-coder",   "minicpm5",       "gpt-4o",      "tekken",    "tiny_aya", "superbpe",
        "kimi-k2", "deepseek-llm", "deepseek-coder", "deepseek-v3", "bloom",     "viking"}) {
    result.push_back({.tokenizer = load(byte_level(toy, name)), .keeps_bytes = true});
  }
  result.push_back({.tokenizer = load(raw_bpe()), .keeps_bytes = true, .loses_blocks = true});
  return result;
}

std::vector<FuzzVocabulary> spm_vocabularies() {
  std::vector<FuzzVocabulary> result;
  for (const bool prefix : {true, false}) {
    GgufWriter writer;
    spaced_words().put(writer, "llama");
    writer.put_bool("tokenizer.ggml.add_space_prefix", prefix);
    writer.put_bool("tokenizer.ggml.add_eos_token", prefix);
    // Phi-3's special tokens swallow the white space after them, so that not every text comes back.
    if (!prefix) writer.put_string("general.name", "phi-3");
    result.push_back({.tokenizer = load(writer), .keeps_bytes = prefix, .loses_blocks = true});
  }
  return result;
}

std::vector<FuzzVocabulary> wordpiece_vocabularies() {
  std::vector<FuzzVocabulary> result;
  for (const bool continuation : {true, false}) {
    Draft draft;
    draft.add("[PAD]", kControl);
    draft.add("[UNK]", kUnknown);
    draft.add("[CLS]", kControl);
    draft.add("[SEP]", kControl);
    for (const char* word : {"the", "a", "b", "to", "ken", "un", "don", "t", "s", "'", ".", ",", "!", "中", "é", "1"}) {
      draft.add(continuation ? word : std::string("▁").append(word), kNormal);
      draft.add(continuation ? std::string("##").append(word) : word, kNormal);
    }
    draft.add("<tool>", kUserDefined);
    draft.add("stop", kControl);
    GgufWriter writer;
    draft.put(writer, "bert");
    writer.put_u32("tokenizer.ggml.unknown_token_id", 1);
    writer.put_u32("tokenizer.ggml.cls_token_id", 2);
    writer.put_u32("tokenizer.ggml.seperator_token_id", 3);
    writer.put_bool("tokenizer.ggml.normalizer.lowercase", continuation);
    result.push_back({.tokenizer = load(writer)});
  }
  return result;
}

std::vector<FuzzVocabulary> unigram_vocabularies() {
  CharsMapMaker charsmap;
  charsmap.add("ﬁ", "fi");
  charsmap.add("Ａ", "a");
  charsmap.add("e\u0301", "é");
  charsmap.add("\t", " ");
  charsmap.add("\u200B", "");
  charsmap.add("\u0130", "i\xCC");  // a replacement that ends inside a character
  std::vector<FuzzVocabulary> result;
  for (const bool merged : {false, true}) {
    GgufWriter writer;
    spaced_words().put(writer, "t5");
    writer.put_u32("tokenizer.ggml.unknown_token_id", 0);
    writer.put_u32("tokenizer.ggml.eos_token_id", 2);
    writer.put_bool("tokenizer.ggml.remove_extra_whitespaces", merged);
    if (merged) put_bytes(writer, "tokenizer.ggml.precompiled_charsmap", charsmap.bytes());
    result.push_back({.tokenizer = load(writer)});
  }
  return result;
}

std::vector<std::byte> spelled_vocabulary(std::string_view model, std::string_view lines) {
  Draft draft;
  std::vector<std::string> merges;
  std::string_view pre_tokenizer = "llama-bpe";
  std::string_view charsmap;
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (line.starts_with('m')) {
      merges.emplace_back(line.substr(1));
    } else if (line.starts_with('p')) {
      pre_tokenizer = line.substr(1);
    } else if (line.starts_with('c')) {
      charsmap = line.substr(1);
    } else if (line.size() >= 2) {
      draft.add(line.substr(2), line[0] - '0', static_cast<float>(line[1]) - 100);
    }
  }
  GgufWriter writer;
  draft.put(writer, model);
  writer.put_string("tokenizer.ggml.pre", pre_tokenizer);
  writer.put_strings("tokenizer.ggml.merges", merges);
  if (!charsmap.empty()) put_bytes(writer, "tokenizer.ggml.precompiled_charsmap", charsmap);
  return writer.to_bytes();
}

}  // namespace quarrel::fuzz
