// Tokenizers of folders: what comes out must tokenise as the vocabulary it was made of.
#include <gtest/gtest.h>

#include "convert/hugging_face_tokenizer.h"
#include "convert/tokenizer_json.h"
#include "support/temp_dir.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer.h"
#include "unit/convert_support.h"

namespace quarrel {
namespace {

using test::expect_error;
using test::Json;
using test::TempDir;
using test::write_file;
using test::write_json;

class Tokenizers : public ::testing::Test {
 protected:
  std::unique_ptr<Tokenizer> load(std::uint32_t rows) {
    GgufWriter writer;
    put_tokenizer(folder_.path(), rows, writer, log_);
    bytes_ = writer.to_bytes();
    return Tokenizer::load(file(), log_);
  }
  GgufFile file() const { return GgufFile::view(bytes_, "made"); }
  void put(const Json& tokenizer) { write_json(folder_ / "tokenizer.json", tokenizer); }

  TempDir folder_;
  std::vector<std::byte> bytes_;
  MemoryLog log_;
};

using Ids = std::vector<TokenId>;

TEST_F(Tokenizers, WordLists) {
  write_file(folder_ / "vocab.txt", "[PAD]\r\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhello\nworld\n##ly\n##s\n!\n#\n##\ncafe");
  const auto tokenizer = load(16);
  EXPECT_EQ(tokenizer->algorithm(), "wordpiece");
  EXPECT_EQ(tokenizer->size(), 16U) << "filled up to the embedding table";
  EXPECT_EQ(tokenizer->encode("Hello worldlys! Café", {.add_special = true}), (Ids{2, 5, 6, 7, 8, 9, 12, 3}));
  EXPECT_EQ(tokenizer->encode("unheard"), (Ids{1}));
  EXPECT_EQ(tokenizer->kind(2), TokenKind::control);
  EXPECT_EQ(tokenizer->kind(13), TokenKind::unused);
  EXPECT_EQ(tokenizer->special().padding, 0);
  EXPECT_EQ(tokenizer->special().mask, 4);
  EXPECT_TRUE(log_.lines.empty());

  write_json(folder_ / "tokenizer_config.json", {{"do_lower_case", false}});
  EXPECT_EQ(load(16)->encode("Hello hello café"), (Ids{1, 5, 1}));
  expect_error(ErrorKind::bad_file, {"vocab.txt", "12 rows"}, [&] { load(12); });
}

Json word_piece() {
  return {{"added_tokens",
           {{{"id", 0}, {"content", "<pad>"}, {"special", true}},
            {{"id", 1}, {"content", "<unk>"}, {"special", true}},
            {{"id", 2}, {"content", "<s>"}, {"special", true}},
            {{"id", 3}, {"content", "</s>"}, {"special", true}}}},
          {"normalizer", {{"type", "BertNormalizer"}, {"lowercase", false}, {"strip_accents", true}}},
          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
          {"model",
           {{"type", "WordPiece"},
            {"unk_token", "<unk>"},
            {"vocab", {{"<pad>", 0}, {"<unk>", 1}, {"<s>", 2}, {"</s>", 3}, {"Cafe", 4}, {"##s", 5}}}}}};
}

TEST_F(Tokenizers, WordPieceWithNamesOfItsOwn) {
  put(word_piece());
  write_json(folder_ / "special_tokens_map.json",
             {{"cls_token", "<s>"}, {"sep_token", {{"content", "</s>"}}}, {"unk_token", "<unk>"}});
  const auto tokenizer = load(6);
  EXPECT_EQ(tokenizer->encode("Cafés cafe", {.add_special = true}), (Ids{2, 4, 5, 1, 3}));
  EXPECT_TRUE(log_.lines.empty());
}

// The chatting toy's vocabulary, as tokenizer.json has it.
Json byte_level(const GgufFile& toy, bool pairs) {
  const auto tokens = toy.strings("tokenizer.ggml.tokens").value();
  const auto kinds = toy.numbers("tokenizer.ggml.token_type").value();
  Json vocabulary = Json::object();
  Json added = Json::array();
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (kinds.as_int(id) == 3) {
      added.push_back({{"id", id}, {"content", tokens[id]}, {"special", true}});
    } else {
      vocabulary[std::string(tokens[id])] = id;
    }
  }
  Json merges = Json::array();
  const auto spelled = toy.strings("tokenizer.ggml.merges").value();
  for (const std::string_view merge : spelled) {
    const std::size_t space = merge.find(' ');
    if (pairs) {
      merges.push_back({merge.substr(0, space), merge.substr(space + 1)});
    } else {
      merges.push_back(merge);
    }
  }
  const Json digits = {{"type", "Digits"}, {"individual_digits", true}};
  const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  return {{"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {digits, bytes}}}},
          {"post_processor", nullptr},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}, {"unk_token", nullptr}}}};
}

TEST_F(Tokenizers, ByteLevelComesOutAsItWas) {
  const std::vector<std::byte> toy_bytes = test::make_toy_chat();
  const GgufFile toy = GgufFile::view(toy_bytes, "toy");
  const auto expected = Tokenizer::load(toy, log_);
  for (const bool pairs : {false, true}) {
    put(byte_level(toy, pairs));
    write_json(folder_ / "tokenizer_config.json", {{"bos_token", "<|im_start|>"},
                                                   {"eos_token", {{"content", "<|im_end|>"}}},
                                                   {"chat_template", "{{ messages }}"}});
    const auto tokenizer = load(static_cast<std::uint32_t>(expected->size()));
    EXPECT_EQ(tokenizer->pre_tokenizer(), "smollm");
    for (const char* text : {"Hello world, what is this?", " the 1234 worlds\n\n", "naïve 日本語 \xff", ""}) {
      EXPECT_EQ(tokenizer->encode(text, {.add_special = true}), expected->encode(text, {.add_special = true}));
    }
    EXPECT_EQ(tokenizer->encode("<|im_end|>", {.parse_special = true}), (Ids{2}));
    EXPECT_EQ(tokenizer->special().bos, 1);
    EXPECT_EQ(tokenizer->special().eos, 2);
    EXPECT_EQ(file().string("tokenizer.chat_template"), "{{ messages }}");
  }
  write_json(folder_ / "tokenizer_config.json",
             {{"chat_template", {{{"name", "tools"}, {"template", "t"}}, {{"name", "default"}, {"template", "d"}}}}});
  load(static_cast<std::uint32_t>(expected->size()));
  EXPECT_EQ(file().string("tokenizer.chat_template"), "d");
  write_file(folder_ / "chat_template.jinja", "own");
  load(static_cast<std::uint32_t>(expected->size()));
  EXPECT_EQ(file().string("tokenizer.chat_template"), "own");
}

TEST_F(Tokenizers, TheFrameOfATextIsKept) {
  const std::vector<std::byte> toy_bytes = test::make_toy_chat();
  const GgufFile toy = GgufFile::view(toy_bytes, "toy");
  const auto rows = static_cast<std::uint32_t>(toy.strings("tokenizer.ggml.tokens")->size());
  Json tokenizer = byte_level(toy, false);
  const auto special = [](const char* id) { return Json{{"SpecialToken", {{"id", id}, {"type_id", 0}}}}; };
  const Json text = {{"Sequence", {{"id", "A"}}}};
  tokenizer["post_processor"] = {
      {"type", "Sequence"},
      {"processors",
       {{{"type", "ByteLevel"}},
        {{"type", "TemplateProcessing"}, {"single", {special("<|im_start|>"), text, special("<|endoftext|>")}}}}}};
  put(tokenizer);
  write_json(folder_ / "config.json", {{"bos_token_id", 1}, {"eos_token_id", {2, 0}}});
  const auto loaded = load(rows);
  EXPECT_TRUE(loaded->special().add_bos);
  EXPECT_EQ(loaded->special().bos, 1);
  EXPECT_EQ(loaded->special().eos, 2);
  EXPECT_FALSE(loaded->special().add_eos) << "what ends a text there is not EOS";
  ASSERT_EQ(log_.lines.size(), 1U);
  EXPECT_NE(log_.lines[0].second.find("<|endoftext|>"), std::string::npos);
  write_json(folder_ / "tokenizer_config.json", {{"add_bos_token", false}});
  EXPECT_FALSE(load(rows)->special().add_bos);
}

TEST_F(Tokenizers, BytesAsTokensMergeByScore) {
  Json vocabulary = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}, {"<0x0A>", 3}, {"<0xC3>", 4}, {"<0xA9>", 5}};
  int next = 6;
  for (const char* token : {"\xE2\x96\x81", "a", "b", "c", "ab", "bc", "abc",
                            "\xE2\x96\x81"
                            "a"})
    vocabulary[token] = next++;
  put({{"added_tokens",
        {{{"id", 0}, {"content", "<unk>"}, {"special", true}},
         {{"id", 1}, {"content", "<s>"}, {"special", true}},
         {{"id", 2}, {"content", "</s>"}, {"special", true}}}},
       {"normalizer",
        {{"type", "Sequence"},
         {"normalizers", {{{"type", "Prepend"}, {"prepend", "\xE2\x96\x81"}}, {{"type", "Replace"}}}}}},
       {"pre_tokenizer", nullptr},
       {"post_processor",
        {{"type", "TemplateProcessing"},
         {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}}}},
       {"model",
        {{"type", "BPE"},
         {"unk_token", "<unk>"},
         {"byte_fallback", true},
         {"vocab", vocabulary},
         {"merges", {"b c", "a b", "a bc", "ab c", "\xE2\x96\x81 a"}}}}});
  write_json(folder_ / "tokenizer_config.json", {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  const auto tokenizer = load(14);
  EXPECT_EQ(tokenizer->algorithm(), "spm");
  // "▁abc": b c comes first, then a bc; "▁ a" never gets its turn.
  EXPECT_EQ(tokenizer->encode("abc", {.add_special = true}), (Ids{1, 6, 12}));
  EXPECT_EQ(tokenizer->encode("ab"), (Ids{6, 10}));
  EXPECT_EQ(tokenizer->encode("a\n\xC3\xA9"), (Ids{13, 3, 4, 5}));
  EXPECT_EQ(tokenizer->kind(3), TokenKind::byte);
  EXPECT_EQ(tokenizer->kind(0), TokenKind::unknown);
  EXPECT_EQ(tokenizer->decode(Ids{6, 12}), "abc");
}

TEST_F(Tokenizers, EveryKnownCutHasItsName) {
  for (const std::string_view name : convertible_pre_tokenizers()) {
    ASSERT_NE(find_pre_tokenizer(name), nullptr) << name;
  }
  const std::string llama3 =
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
      "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
      "\\s+(?!\\S)|\\s+";
  EXPECT_EQ(pre_tokenizer_of({llama3}, true), "llama-bpe");
  EXPECT_EQ(pre_tokenizer_of({llama3}, false), "dbrx");
  EXPECT_EQ(pre_tokenizer_of({llama3, llama3}, true), "");
  EXPECT_EQ(pre_tokenizer_of({}, false), "");
  std::string qwen2 = llama3;
  qwen2.erase(qwen2.find("{1,3}"), 5);
  EXPECT_EQ(pre_tokenizer_of({qwen2}, false), "qwen2");
  EXPECT_EQ(pre_tokenizer_of({qwen2}, true), "qwen2") << "better than nothing";
}

TEST_F(Tokenizers, RefusesWhatItDoesNotKnow) {
  expect_error(ErrorKind::not_found, {"tokenizer.json", "vocab.txt"}, [&] { load(8); });
  const Json good = word_piece();
  const auto refuse = [&](ErrorKind kind, const std::vector<std::string>& words, const char* pointer,
                          const Json& value) {
    Json changed = good;
    changed[Json::json_pointer(pointer)] = value;
    put(changed);
    SCOPED_TRACE(std::string(pointer) + " = " + value.dump());
    expect_error(kind, words, [&] { load(8); });
  };
  refuse(ErrorKind::unsupported, {"Unigram"}, "/model/type", "Unigram");
  refuse(ErrorKind::unsupported, {"BPE"}, "/model/type", "BPE");
  refuse(ErrorKind::bad_file, {"vocab"}, "/model/vocab", 7);
  refuse(ErrorKind::bad_file, {"'Cafe'", "usable id"}, "/model/vocab/Cafe", -1);
  refuse(ErrorKind::bad_file, {"'Cafe'", "8", "rows"}, "/model/vocab/Cafe", 8);
  refuse(ErrorKind::bad_file, {"'Cafe'", "id 5"}, "/model/vocab/Cafe", 5);
  refuse(ErrorKind::bad_file, {"added_tokens", "id"}, "/added_tokens/0/id", "0");
  refuse(ErrorKind::bad_file, {"4294967295", "rows"}, "/added_tokens/0/id", 4294967295U);
  refuse(ErrorKind::bad_file, {"content"}, "/added_tokens/0/content", "");
  refuse(ErrorKind::bad_file, {"merges[0]"}, "/model/merges", {"ab"});
  refuse(ErrorKind::bad_file, {"merges[1]"}, "/model/merges", {"a b", 7});
  refuse(ErrorKind::unsupported, {"continuing_subword_prefix"}, "/model/continuing_subword_prefix", "@@");
  refuse(ErrorKind::bad_file, {"model"}, "/model", nullptr);
  refuse(ErrorKind::bad_file, {"pretokenizers"}, "/pre_tokenizer", {{"type", "Sequence"}});

  const std::vector<std::byte> toy_bytes = test::make_toy_chat();
  const GgufFile toy = GgufFile::view(toy_bytes, "toy");
  Json strange = byte_level(toy, false);
  const Json split = {{"type", "Split"}, {"pattern", {{"Regex", "[aeiou]+"}}}};
  strange["pre_tokenizer"]["pretokenizers"].push_back(split);
  put(strange);
  expect_error(ErrorKind::unsupported, {"[aeiou]+", "supported are gpt-2", "qwen2"}, [&] { load(4096); });
}

}  // namespace
}  // namespace quarrel
