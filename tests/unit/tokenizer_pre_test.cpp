// The pre-tokenisers against the regular expressions they stand for, run by PCRE2 on random text.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <gtest/gtest.h>
#include <pcre2.h>

#include <random>
#include <string>
#include <vector>

#include "text/pre_tokenizer.h"
#include "text/unicode.h"

namespace quarrel {
namespace {

// Splits as the tables promise: each pattern cuts every piece of the one before, and what lies between matches is a
// piece as well. A piece is a subject of its own, so that no pattern looks beyond it.
class Oracle {
 public:
  explicit Oracle(const std::string& pattern) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    // The set \s of UCP holds the same characters as the White_Space property but U+180E, which no test text has.
    code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF | PCRE2_UCP, &error,
                          &offset, nullptr);
    EXPECT_NE(code_, nullptr) << pattern << " at " << offset;
    match_ = pcre2_match_data_create_from_pattern(code_, nullptr);
  }
  Oracle(const Oracle&) = delete;
  Oracle& operator=(const Oracle&) = delete;
  ~Oracle() {
    pcre2_match_data_free(match_);
    pcre2_code_free(code_);
  }

  std::vector<std::string> split(const std::vector<std::string>& pieces) const {
    std::vector<std::string> finer;
    for (const std::string& piece : pieces) {
      std::size_t done = 0;
      for (std::size_t at = 0; at < piece.size();) {
        const int found = pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(piece.data()), piece.size(), at,
                                      PCRE2_NOTEMPTY, match_, nullptr);
        if (found < 0) break;
        const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match_);
        if (range[0] > done) finer.push_back(piece.substr(done, range[0] - done));
        finer.push_back(piece.substr(range[0], range[1] - range[0]));
        at = done = range[1];
      }
      if (done < piece.size()) finer.push_back(piece.substr(done));
    }
    return finer;
  }

 private:
  pcre2_code* code_ = nullptr;
  pcre2_match_data* match_ = nullptr;
};

const std::string kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const std::string kEnds = R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]))";
const std::string kTail = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string kTailSlash = R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string kPlainWord = R"(|[^\r\n\p{L}\p{N}]?\p{L}+)";

std::string cased(const std::string& none, const std::string& end) {
  const std::string upper = none + R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])";
  const std::string lower = none + R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])";
  const std::string prefix = R"([^\r\n\p{L}\p{N}]?)";
  return prefix + "(?:" + upper + ")*(?:" + lower + ")+" + end + "|" + prefix + "(?:" + upper + ")+(?:" + lower + ")*" +
         end;
}

struct Family {
  const char* name;
  std::vector<std::string> patterns;
};

std::vector<Family> families() {
  const std::string east = R"([\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}]+)";
  const std::string bloom = R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{ff0c}\x{3001}\x{964}\x{6d4}\x{60c})]+)";
  return {
      {"gpt-2", {kGpt2}},
      {"starcoder", {R"(\p{N})", kGpt2}},
      {"falcon", {R"([\p{P}$+<=>^~|`]+)", kGpt2, "[0-9][0-9][0-9]"}},
      {"default", {R"([\p{P}$+<=>^~|]+)", kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
      {"llama-bpe", {kEnds + kPlainWord + R"(|\p{N}{1,3})" + kTail}},
      {"qwen2", {kEnds + kPlainWord + R"(|\p{N})" + kTail}},
      {"bailingmoe",
       {R"('(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"}},
      {"qwen35",
       {kEnds + R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}},
      {"seed-coder", {kEnds + kPlainWord + R"(|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)"}},
      {"minicpm5", {R"(\p{N}{1,3})", kEnds + kPlainWord + R"(|\p{N}+)" + kTail}},
      {"laguna", {R"([^\n]+|[\n]+)", kEnds + kPlainWord + R"(|\p{N})" + kTail}},
      {"gpt-4o", {cased("", kEnds + "?") + R"(|\p{N}{1,3})" + kTailSlash}},
      {"tekken", {cased("", "") + R"(|\p{N})" + kTailSlash}},
      {"kimi-k2", {R"(\p{sc:Han}+|)" + cased(R"((?!\p{sc:Han}))", kEnds + "?") + R"(|\p{N}{1,3})" + kTail}},
      {"tiny_aya",
       {R"([0-9]{1,3}(?=(?:[0-9]{3})*(?![0-9\p{L}\p{M}\p{N}_])))",
        cased("", kEnds + "?") + R"(|\p{N}{1,3})" + kTailSlash}},
      {"superbpe", {R"(\p{N}+)", R"([0-9]{1,3}(?=(?:[0-9]{3})*(?![0-9])))"}},
      {"deepseek-coder", {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", east, R"(\p{N})"}},
      {"deepseek-v3",
       {R"(\p{N}{1,3})", R"([\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+)",
        R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}},
      {"bloom", {bloom}},
      {"viking", {bloom, R"(\p{N})"}},
      {"gemma4", {R"([^\n]+|[\n]+)"}},
  };
}

// Characters of every kind the patterns tell apart, the common ones often.
std::string random_text(std::mt19937& random) {
  static const std::vector<std::string> kPieces = {
      "a",  "b",  "s",      "t",          "d",          "m",          "re",     "ll",     "ve",     "A", "B",  "S",
      "LL", "'",  "'s",     "'RE",        "1",          "2",          "3",      "0",      " ",      " ", " ",  "  ",
      "\n", "\r", "\t",     "\v",         ".",          ",",          "!",      "?",      "/",      "_", "-",  "$",
      "+",  "<",  "|",      "`",          "(",          "\"",         "\\",     "é",      "É",      "ß", "ǅ",  "ʰ",
      "ª",  "中", "文",     "々",         "〇",         "か",         "ナ",     "한",     "글",     "ж", "Ж",  "א",
      "ع",  "क",  "ि",      "्",           "\u0301",     "\u20DD",     "½",      "Ⅷ",      "٣",      "²", "€",  "©",
      "→",  "🚀", "\u200d", "\u00ad",     "\u0001",     "\u00a0",     "\u3000", "\u2028", "\u0085", "…", "。", "，",
      "「", "ﬁ",  "Ω",      "\U0001D400", "\U00020000", "\U000E0001", "\uE000", "\u0378"};
  std::string text;
  const std::size_t length = random() % 40;
  for (std::size_t i = 0; i < length; ++i) {
    const std::string& piece = kPieces[random() % kPieces.size()];
    const std::size_t times = random() % 6 == 0 ? 1 + random() % 7 : 1;
    for (std::size_t n = 0; n < times; ++n) text += piece;
  }
  return text;
}

std::vector<std::string> words(const PreTokenizer& pre_tokenizer, const std::string& text) {
  std::uint64_t steps = 0;
  std::vector<std::string> result;
  std::size_t begin = 0;
  for (const std::size_t end : split_words(pre_tokenizer, text, steps)) {
    result.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  EXPECT_EQ(begin, text.size());
  return result;
}

TEST(PreTokenizer, AgreesWithItsPattern) {
  for (const Family& family : families()) {
    const PreTokenizer* pre_tokenizer = find_pre_tokenizer(family.name);
    ASSERT_NE(pre_tokenizer, nullptr) << family.name;
    std::vector<std::unique_ptr<Oracle>> oracles;
    for (const std::string& pattern : family.patterns) oracles.push_back(std::make_unique<Oracle>(pattern));
    std::mt19937 random(7);
    for (int i = 0; i < 3000; ++i) {
      const std::string text = random_text(random);
      std::vector<std::string> expected;
      if (!text.empty()) expected.push_back(text);
      for (const auto& oracle : oracles) expected = oracle->split(expected);
      ASSERT_EQ(words(*pre_tokenizer, text), expected) << family.name << ": " << text;
    }
  }
}

TEST(PreTokenizer, EveryNameCutsWithoutLoss) {
  std::mt19937 random(8);
  for (const std::string_view name : pre_tokenizer_names()) {
    const PreTokenizer* pre_tokenizer = find_pre_tokenizer(name);
    ASSERT_NE(pre_tokenizer, nullptr);
    for (int i = 0; i < 100; ++i) {
      std::string text = random_text(random);
      for (char& c : text) {
        if (random() % 20 == 0) c = static_cast<char>(random());  // not UTF-8 any more
      }
      for (const std::string& word : words(*pre_tokenizer, text)) EXPECT_FALSE(word.empty()) << name;
    }
  }
  EXPECT_EQ(find_pre_tokenizer("no such name"), nullptr);
}

TEST(PreTokenizer, DigitsInThreesFromTheRight) {
  EXPECT_EQ(words(*find_pre_tokenizer("superbpe"), "1234567"), (std::vector<std::string>{"1", "234", "567"}));
  EXPECT_EQ(words(*find_pre_tokenizer("tiny_aya"), "12345 6"), (std::vector<std::string>{"12", "345", " ", "6"}));
}

TEST(Unicode, DecodesStrictly) {
  const auto status = [](std::string_view text) { return decode_utf8(text, 0).status; };
  EXPECT_EQ(status("\xC3\xA9"), Utf8Status::valid);
  EXPECT_EQ(decode_utf8("\xF0\x9F\x9A\x80", 0).code, U'🚀');
  EXPECT_EQ(status("\xF0\x9F\x9A"), Utf8Status::truncated);
  EXPECT_EQ(status("\xC0\x80"), Utf8Status::invalid);      // overlong
  EXPECT_EQ(status("\xED\xA0\x80"), Utf8Status::invalid);  // a surrogate
  EXPECT_EQ(status("\xF4\x90\x80\x80"), Utf8Status::invalid);
  EXPECT_EQ(status("\x80"), Utf8Status::invalid);
  EXPECT_EQ(to_valid_utf8("a\xF0\x9F\x9A!\xFF\xFE"), "a\uFFFD!\uFFFD\uFFFD");
}

TEST(Unicode, CharacterClassesAgreeWithPcre) {
  const Oracle han(R"(\p{sc:Han})");
  const Oracle white(R"(\s)");
  const Oracle letter(R"(\p{L})");
  const auto matches = [](const Oracle& oracle, const std::string& text) {
    return oracle.split({"a" + text}).size() == 2 || oracle.split({"1" + text}).size() == 2;
  };
  // The tables of Unicode's versions differ in what was assigned late, so only long assigned blocks are compared.
  for (char32_t code = 0x80; code < 0xA000; code += code < 0x3000 ? 1 : 7) {
    std::string text;
    append_utf8(text, code);
    const CharClasses classes = char_classes(code);
    if (code != 0x180E) {
      EXPECT_EQ((classes & char_class::kWhite) != 0, matches(white, text)) << static_cast<std::uint32_t>(code);
    }
    EXPECT_EQ((classes & char_class::kHan) != 0, matches(han, text)) << static_cast<std::uint32_t>(code);
    EXPECT_EQ((classes & char_class::kLetter) != 0, letter.split({"1" + text}).size() == 2)
        << static_cast<std::uint32_t>(code);
  }
}

}  // namespace
}  // namespace quarrel
