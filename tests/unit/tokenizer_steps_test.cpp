// No text makes a tokenizer slow: the steps for twice the text are about twice as many.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/sanitized.h"
#include "text/pre_tokenizer.h"
#include "unit/tokenizer_support.h"

namespace quarrel {
namespace {

constexpr std::size_t kBytes = std::size_t{1} << (test::kSanitized ? 14 : 17);
constexpr std::size_t kSmall = std::size_t{1} << (test::kSanitized ? 11 : 13);  // for what is tried with many texts
constexpr double kMostGrowth = 2.3;                                             // n log n gives 2.12 here

std::vector<std::string> patterns() {
  return {"a",        " ",   "\n",     "\t",      "1",   "'",  "A",   ".",
          "<",        "▁",   "\u0301", "é",       "中",  "🚀", " \n", "a ",
          "aA",       "Aa",  "ab",     "a\u0301", "ªA",  "'s", "  a", "1a",
          "<|im_end", "</s", "\xFF",   "\xC3",    "the", "ｆ", "한",  std::string(1, '\0')};
}

using StepsOf = std::function<std::uint64_t(const std::string&)>;

void expect_linear(const std::string& name, const StepsOf& steps_of, const std::vector<std::string>& repeats,
                   std::size_t bytes) {
  for (const std::string& pattern : repeats) {
    const std::size_t count = bytes / pattern.size();
    const std::uint64_t once = steps_of(repeated(pattern, count));
    const std::uint64_t twice = steps_of(repeated(pattern, 2 * count));
    EXPECT_LE(static_cast<double>(twice), kMostGrowth * static_cast<double>(once)) << name << ": " << pattern;
    EXPECT_GE(once, count) << name << ": " << pattern << " must count what it does";
  }
  // What stands before and after a long run must not bring back its square.
  const std::string run = "x" + repeated(" ", bytes) + "\u0301" + repeated("A", bytes) + "\n" + repeated("7", bytes);
  const std::uint64_t once = steps_of(run);
  EXPECT_LE(static_cast<double>(steps_of(run + run)), kMostGrowth * static_cast<double>(once)) << name;
}

TEST(Steps, OfEveryAlgorithm) {
  for (const char* name :
       {"gpt-2", "deepseek-llm", "mpt", "llama-spm", "bert-bge", "unigram-merged-spaces", "unigram-kept-spaces"}) {
    const auto tokenizer = load_real(name);
    const StepsOf steps_of = [&](const std::string& text) {
      std::uint64_t steps = 0;
      tokenizer->encode(text, {.parse_special = true, .steps = &steps});
      return steps;
    };
    expect_linear(name, steps_of, patterns(), kSmall);
    expect_linear(name, steps_of, {"a", " ", "\u0301"}, kBytes);
  }
}

TEST(Steps, OfEveryPreTokenizer) {
  std::vector<const SplitStep*> done;  // names that share their steps need one look
  for (const std::string_view name : pre_tokenizer_names()) {
    const PreTokenizer* pre_tokenizer = find_pre_tokenizer(name);
    if (std::ranges::find(done, pre_tokenizer->steps.data()) != done.end()) continue;
    done.push_back(pre_tokenizer->steps.data());
    const StepsOf steps_of = [&](const std::string& text) {
      std::uint64_t steps = 0;
      split_words(*pre_tokenizer, text, steps);
      return steps;
    };
    expect_linear(std::string(name), steps_of, patterns(), kSmall);
  }
}

TEST(Steps, OfAMegabyte) {
  for (const char* name : {"gpt-2", "llama-spm", "bert-bge", "unigram-merged-spaces"}) {
    const auto tokenizer = load_real(name);
    for (const char* pattern : {"a", " ", "\u0301"}) {
      std::uint64_t steps = 0;
      const std::string text = repeated(pattern, (std::size_t{1} << 20) / std::string_view(pattern).size());
      tokenizer->encode(text, {.steps = &steps});
      EXPECT_LE(steps, 200 * text.size()) << name << ": " << pattern;
    }
  }
}

// Merges chosen so that one symbol grows from the left through the whole text.
TEST(Steps, OfOneGrowingToken) {
  std::vector<std::string> tokens;
  std::vector<std::string> merges;
  for (std::size_t i = 1; i <= 200; ++i) {
    tokens.push_back(std::string(i, 'a'));
    if (i > 1) merges.push_back(std::string(i - 1, 'a') + " a");
  }
  const auto tokenizer = load_made([&](GgufWriter& writer) {
    writer.put_string("tokenizer.ggml.model", "gpt2");
    writer.put_string("tokenizer.ggml.pre", "gpt-2");
    writer.put_strings("tokenizer.ggml.tokens", tokens);
    writer.put_strings("tokenizer.ggml.merges", merges);
  });
  std::uint64_t once = 0;
  std::uint64_t twice = 0;
  tokenizer->encode(std::string(kBytes, 'a'), {.steps = &once});
  tokenizer->encode(std::string(2 * kBytes, 'a'), {.steps = &twice});
  EXPECT_LE(static_cast<double>(twice), kMostGrowth * static_cast<double>(once));
}

}  // namespace
}  // namespace quarrel
