// Special tokens: which texts become them, where they may not, what is added, and what ends a reply.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "unit/tokenizer_support.h"

namespace quarrel {
namespace {

using Ids = std::vector<TokenId>;

constexpr std::int32_t kNormal = 1, kControl = 3, kUserDefined = 4;

// A byte-level vocabulary of the letters a to f, with specials behind them.
struct Special {
  std::string text;
  std::int32_t kind;
};
void put_letters(GgufWriter& writer, const std::vector<Special>& specials) {
  std::vector<std::string> texts = {"a", "b", "c", "d", "e", "f", "<", ">", "|", "Ġ", "ab"};
  std::vector<std::int32_t> kinds(texts.size(), kNormal);
  for (const Special& special : specials) {
    texts.push_back(special.text);
    kinds.push_back(special.kind);
  }
  const std::vector<std::string> merges = {"a b"};
  writer.put_string("tokenizer.ggml.model", "gpt2");
  writer.put_string("tokenizer.ggml.pre", "gpt-2");
  writer.put_strings("tokenizer.ggml.tokens", texts);
  writer.put_i32s("tokenizer.ggml.token_type", kinds);
  writer.put_strings("tokenizer.ggml.merges", merges);
}

std::unique_ptr<Tokenizer> letters(const std::vector<Special>& specials) {
  return load_made([&](GgufWriter& writer) { put_letters(writer, specials); });
}

TEST(SpecialTokens, ControlOnlyWhenParsed) {
  const auto tokenizer = letters({{"<c>", kControl}, {"<d>", kUserDefined}});
  EXPECT_EQ(tokenizer->encode("ab<c>ab<d>"), (Ids{10, 6, 2, 7, 10, 12}));
  EXPECT_EQ(tokenizer->encode("ab<c>ab<d>", {.parse_special = true}), (Ids{10, 11, 10, 12}));
  EXPECT_EQ(tokenizer->decode(Ids{10, 11, 12}), "ab<d>");
  EXPECT_EQ(tokenizer->decode(Ids{10, 11, 12}, true), "ab<c><d>");
}

TEST(SpecialTokens, LongestAtAPositionWins) {
  const auto tokenizer = letters({{"<a", kControl}, {"<ab>", kControl}, {"<ab", kControl}, {"b>", kControl}});
  EXPECT_EQ(tokenizer->encode("<ab>", {.parse_special = true}), (Ids{12}));
  EXPECT_EQ(tokenizer->encode("<abc<ac", {.parse_special = true}), (Ids{13, 2, 11, 2}));
  EXPECT_EQ(tokenizer->encode("ab>", {.parse_special = true}), (Ids{0, 14}));
}

TEST(SpecialTokens, LiteralRangesStayText) {
  const auto tokenizer = letters({{"<c>", kControl}, {"<d>", kUserDefined}});
  const std::string text = "<c>a<c>b<c>";
  const auto encode = [&](std::vector<TextRange> literal) {
    return tokenizer->encode(text, {.parse_special = true, .literal = literal});
  };
  const Ids all = {11, 0, 11, 1, 11};
  EXPECT_EQ(encode({}), all);
  EXPECT_EQ(encode({{3, 8}}), (Ids{11, 0, 6, 2, 7, 1, 11}));
  EXPECT_EQ(encode({{5, 6}}), (Ids{11, 0, 6, 2, 7, 1, 11})) << "an overlap is enough";
  EXPECT_EQ(encode({{2, 3}, {10, 11}}), (Ids{6, 2, 7, 0, 11, 1, 6, 2, 7}));
  EXPECT_EQ(encode({{3, 4}, {7, 8}}), all) << "neighbours do not touch";
  EXPECT_EQ(encode({{5, 5}}), all) << "an empty range holds nothing";
  EXPECT_EQ(encode({{0, 100}}), (Ids{6, 2, 7, 0, 6, 2, 7, 1, 6, 2, 7}));
  const std::vector<TextRange> whole = {{0, 3}};
  EXPECT_EQ(tokenizer->encode("<d>", {.parse_special = true, .literal = whole}), (Ids{12})) << "user-defined";
}

TEST(SpecialTokens, FlagsDecideWhatIsAdded) {
  const auto with = [](bool bos, bool eos) {
    return load_made([&](GgufWriter& writer) {
      put_letters(writer, {{"<s>", kControl}, {"</s>", kControl}});
      writer.put_u32("tokenizer.ggml.bos_token_id", 11);
      writer.put_u32("tokenizer.ggml.eos_token_id", 12);
      writer.put_bool("tokenizer.ggml.add_bos_token", bos);
      writer.put_bool("tokenizer.ggml.add_eos_token", eos);
    });
  };
  EXPECT_EQ(with(true, true)->encode("a", {.add_special = true}), (Ids{11, 0, 12}));
  EXPECT_EQ(with(false, true)->encode("a", {.add_special = true}), (Ids{0, 12}));
  EXPECT_EQ(with(true, false)->encode("", {.add_special = true}), (Ids{11}));
  EXPECT_EQ(with(true, true)->encode("a"), (Ids{0}));
}

TEST(SpecialTokens, ABosThatIsNotThereIsNotAdded) {
  MemoryLog log;
  const auto tokenizer = load_made(
      [](GgufWriter& writer) {
        put_letters(writer, {});
        writer.put_bool("tokenizer.ggml.add_bos_token", true);
      },
      log);
  EXPECT_EQ(tokenizer->encode("a", {.add_special = true}), (Ids{0}));
  ASSERT_EQ(log.lines.size(), 1U);
  EXPECT_NE(log.lines[0].second.find("tokenizer.ggml.add_bos_token"), std::string::npos);
}

TEST(SpecialTokens, EndOfGenerationByIdAndByText) {
  const auto tokenizer = load_made([](GgufWriter& writer) {
    put_letters(writer, {{"<|im_end|>", kNormal}, {"<x>", kControl}, {"<|endoftext|>", kControl}, {"<y>", kControl}});
    writer.put_u32("tokenizer.ggml.eos_token_id", 12);
    writer.put_u32("tokenizer.ggml.eom_token_id", 14);
  });
  EXPECT_EQ(tokenizer->special().end_of_generation, (Ids{11, 12, 13, 14}));
  EXPECT_EQ(tokenizer->special().eot, 11);
  EXPECT_EQ(tokenizer->kind(11), TokenKind::control) << "by its spelling";
  EXPECT_TRUE(tokenizer->is_end_of_generation(12));
  EXPECT_FALSE(tokenizer->is_end_of_generation(0));
  EXPECT_FALSE(tokenizer->is_end_of_generation(-1));
}

TEST(SpecialTokens, AnEndOfMessageIsNoEndWhereRepliesHaveSeveral) {
  const auto tokenizer = letters({{"<|end|>", kControl}, {"<|return|>", kControl}, {"<|call|>", kControl}});
  EXPECT_EQ(tokenizer->special().end_of_generation, (Ids{12, 13}));
  EXPECT_FALSE(tokenizer->is_end_of_generation(11));
  EXPECT_EQ(letters({{"<|end|>", kControl}})->special().end_of_generation, (Ids{11}));
}

TEST(SpecialTokens, SomeSwallowTheSpacesAround) {
  const auto phi = load_made([](GgufWriter& writer) {
    put_letters(writer, {{"<e>", kControl}, {"<s>", kControl}});
    writer.put_string("general.name", "Phi-3 mini");
  });
  EXPECT_EQ(phi->encode("<e> \na<s> a", {.parse_special = true}), (Ids{11, 0, 12, 9, 0}));
  const auto jina = load_made([](GgufWriter& writer) {
    put_letters(writer, {{"<mask>", kControl}});
    writer.put_string("general.architecture", "jina-bert-v3");
  });
  EXPECT_EQ(jina->encode("a  <mask> a", {.parse_special = true}), (Ids{0, 11, 9, 0}));
}

TEST(Tokenizer, IdsOutsideAreRefused) {
  const auto tokenizer = letters({});
  EXPECT_THROW(tokenizer->decode(Ids{0, 11}), Error);
  EXPECT_THROW(tokenizer->decode(Ids{-1}), Error);
  EXPECT_EQ(tokenizer->kind(99), TokenKind::undefined);
  EXPECT_EQ(tokenizer->spelling(-1), "");
  EXPECT_EQ(tokenizer->find("ab"), 10);
  EXPECT_EQ(tokenizer->find("abc"), std::nullopt);
}

TEST(Tokenizer, NamesWhatItIs) {
  const auto bpe = load_real("falcon");
  EXPECT_EQ(bpe->algorithm(), "bpe");
  EXPECT_EQ(bpe->pre_tokenizer(), "falcon");
  EXPECT_EQ(load_real("phi-3")->algorithm(), "spm");
  EXPECT_EQ(load_real("bert-bge")->algorithm(), "wordpiece");
}

TEST(Tokenizer, BytesThatAreNotTextSurvive) {
  const std::string text = "a\xFF\xC3 \xF0\x9F\x9A b\x80";
  for (const char* name : {"gpt-2", "llama-spm"}) {
    const auto tokenizer = load_real(name);
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text) << name;
  }
  // These have no token for the byte FF, or one that means the letter ÿ.
  for (const char* name : {"starcoder", "deepseek-coder"}) {
    const auto tokenizer = load_real(name);
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), "a\uFFFD\xC3 \xF0\x9F\x9A b\x80") << name;
  }
}

TEST(Tokenizer, WholeWordsComeBeforeMergesWhereTheModelSaysSo) {
  const auto with = [](const char* pre) {
    return load_made([&](GgufWriter& writer) {
      const std::vector<std::string> texts = {"a", "b", "c", "ab", "abc", "Ġ"};
      const std::vector<std::string> merges = {"a b"};
      writer.put_string("tokenizer.ggml.model", "gpt2");
      writer.put_string("tokenizer.ggml.pre", pre);
      writer.put_strings("tokenizer.ggml.tokens", texts);
      writer.put_strings("tokenizer.ggml.merges", merges);
      writer.put_u32("tokenizer.ggml.bos_token_id", 5);
    });
  };
  EXPECT_EQ(with("gpt-2")->encode("abc", {.add_special = true}), (Ids{3, 2}));
  EXPECT_EQ(with("llama-bpe")->encode("abc", {.add_special = true}), (Ids{5, 4})) << "and BOS by default";
}

TEST(Tokenizer, LinesAreMergedRawWhereTheModelSaysSo) {
  const auto tokenizer = load_made([](GgufWriter& writer) {
    const std::vector<std::string> texts = {"a", "b", "▁", "▁a", "\n", "\n\n", "<0xC3>", "<0xA9>", "<bos>"};
    const std::vector<std::int32_t> kinds = {1, 1, 1, 1, 1, 1, 6, 6, 3};
    const std::vector<std::string> merges = {"▁ a"};
    writer.put_string("tokenizer.ggml.model", "gemma4");
    writer.put_strings("tokenizer.ggml.tokens", texts);
    writer.put_i32s("tokenizer.ggml.token_type", kinds);
    writer.put_strings("tokenizer.ggml.merges", merges);
  });
  const Ids ids = tokenizer->encode("b a\n\né");
  EXPECT_EQ(ids, (Ids{1, 3, 5, 6, 7}));
  EXPECT_EQ(tokenizer->decode(ids), "b a\n\né");
}

// Files that say nothing of how their text is cut, or only the general name, but frame messages as gpt-oss does.
TEST(PreTokenizerChoice, MessageFramesTellGptOssApart) {
  const auto algorithm = [](const char* pre, bool framed) {
    const auto tokenizer = load_made([&](GgufWriter& writer) {
      std::vector<std::string> tokens = {"a", "b", "<|channel|>", "<|message|>"};
      if (framed) tokens.emplace_back("<|return|>");
      writer.put_string("tokenizer.ggml.model", "gpt2");
      if (pre != nullptr) writer.put_string("tokenizer.ggml.pre", pre);
      writer.put_strings("tokenizer.ggml.tokens", tokens);
      writer.put_strings("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
    });
    return std::string(tokenizer->pre_tokenizer());
  };
  EXPECT_EQ(algorithm(nullptr, true), "gpt-4o");
  EXPECT_EQ(algorithm("default", true), "gpt-4o");
  EXPECT_EQ(algorithm("gpt-2", true), "gpt-4o");
  EXPECT_EQ(algorithm("default", false), "default");
  EXPECT_EQ(algorithm("qwen2", true), "qwen2");
}

}  // namespace
}  // namespace quarrel
