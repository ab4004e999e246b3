// The vocabulary of the chatting toy: control tokens, then a token a byte, then what the merges make, as a trained
// byte-level BPE has it, only smaller. A merge list that spells each word from the left needs no training.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/error.h"
#include "support/golden.h"
#include "support/toy_model.h"
#include "support/toy_recipes.h"

namespace quarrel::test {
namespace {

constexpr std::array<std::string_view, 3> kControl{"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
constexpr std::uint32_t kEndOfText = 0, kStart = 1, kEnd = 2;
constexpr std::int32_t kNormalKind = 1, kControlKind = 3;

constexpr std::array<std::string_view, 36> kWords{
    " the",   " and",  " of",    " to",       " in",   " that", " is",   " was",   " you", " for", " are",  " with",
    " this",  " have", " not",   " from",     " can",  " help", " what", " world", " one", " his", " they", " there",
    " would", "user",  "system", "assistant", "Hello", "The",   "You",   "What",   "er",   "ing",  "tion",  "\n\n"};

constexpr std::array<std::string_view, 5> kMarks{"<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>"};

constexpr std::string_view kTemplate =
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

constexpr std::string_view kChannelTemplate =
    "{% for message in messages %}"
    "{{ '<|start|>' + message['role'] + '<|message|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}";

std::string utf8(std::uint32_t code) {
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3f))};  // none is beyond U+07FF
}

// How byte-level BPE spells each byte: printable ones as themselves, the others, in order, from U+0100 up.
std::array<std::string, 256> byte_spellings() {
  std::array<std::string, 256> spellings;
  std::uint32_t next = 0x100;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
    spellings[byte] = utf8(printable ? byte : next++);
  }
  return spellings;
}

struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<std::int32_t> kinds;
  std::vector<std::string> merges;
};

Vocabulary chat_vocabulary(bool channels = false) {
  Vocabulary vocabulary;
  const std::array<std::string, 256> bytes = byte_spellings();
  vocabulary.tokens.assign(kControl.begin(), kControl.end());
  vocabulary.tokens.insert(vocabulary.tokens.end(), bytes.begin(), bytes.end());
  std::set<std::string> known(vocabulary.tokens.begin(), vocabulary.tokens.end());
  for (const std::string_view word : kWords) {
    std::string left;
    for (const char c : word) {
      const std::string& right = bytes[static_cast<unsigned char>(c)];
      if (!left.empty() && known.insert(left + right).second) {
        vocabulary.merges.push_back(fmt::format("{} {}", left, right));
        vocabulary.tokens.push_back(left + right);
      }
      left += right;
    }
  }
  vocabulary.kinds.assign(vocabulary.tokens.size(), kNormalKind);
  std::fill_n(vocabulary.kinds.begin(), kControl.size(), kControlKind);
  if (channels) {
    vocabulary.tokens.insert(vocabulary.tokens.end(), kMarks.begin(), kMarks.end());
    vocabulary.kinds.resize(vocabulary.tokens.size(), kControlKind);
  }
  return vocabulary;
}

GgufWriter chat_writer(const ToyOptions& options, std::string_view recipe_name) {
  if (options.vocabulary) fail(ErrorKind::usage, "the chatting toy has a vocabulary of its own");
  const Vocabulary vocabulary = chat_vocabulary(options.channels);
  ToyRecipe recipe = toy_recipe(recipe_name, options);
  recipe.name = "chat";
  recipe.vocabulary = static_cast<std::uint32_t>(vocabulary.tokens.size());

  GgufWriter writer;
  put_toy_entries(writer, recipe);
  writer.put_string("tokenizer.ggml.model", "gpt2");
  writer.put_string("tokenizer.ggml.pre", "smollm");
  writer.put_strings("tokenizer.ggml.tokens", vocabulary.tokens);
  writer.put_i32s("tokenizer.ggml.token_type", vocabulary.kinds);
  writer.put_strings("tokenizer.ggml.merges", vocabulary.merges);
  writer.put_u32("tokenizer.ggml.bos_token_id", kStart);
  writer.put_u32("tokenizer.ggml.eos_token_id", kEnd);
  writer.put_u32("tokenizer.ggml.unknown_token_id", kEndOfText);
  writer.put_u32("tokenizer.ggml.padding_token_id", kEnd);
  writer.put_bool("tokenizer.ggml.add_bos_token", false);
  writer.put_string("tokenizer.chat_template", options.channels ? kChannelTemplate : kTemplate);
  add_toy_tensors(writer, recipe, options.seed, options.type);
  return writer;
}

}  // namespace

std::vector<std::string> toy_chat_tokens() { return chat_vocabulary().tokens; }

std::vector<std::byte> make_toy_chat(const ToyOptions& options, std::string_view recipe) {
  return finished_toy(chat_writer(options, recipe));
}

std::filesystem::path write_toy_chat(const std::filesystem::path& folder, const ToyOptions& options) {
  std::filesystem::path path = folder / "chat.gguf";
  save_bytes(path, make_toy_chat(options));
  return path;
}

}  // namespace quarrel::test
