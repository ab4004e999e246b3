// Which texts a question is asked with, and how.
#include "ingest/prompt_context.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"

namespace quarrel {
namespace {

// Words are tokens.
std::size_t words(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count(text, ' ')) + (text.empty() ? 0 : 1);
}

FoundText found(std::uint64_t id, std::string text) {
  return {.id = id, .score = 0.5f, .state = TextState::found, .text = text};
}

constexpr const char* kShort = "{texts} | {question}";

TEST(PromptContext, TextsStandInTheirOrderWithNumbers) {
  const std::vector<FoundText> texts{found(7, "the fox is red"), found(3, "dogs bark")};
  const PromptContext context = with_context(texts, "what?", {.max_tokens = 100, .prompt_template = kShort}, words);
  EXPECT_EQ(context.question, "[1] the fox is red\n\n[2] dogs bark | what?");
  ASSERT_EQ(context.sources.size(), 2u);
  EXPECT_EQ(context.sources[1].number, 2u);
  EXPECT_EQ(context.sources[1].found.id, 3u);
  EXPECT_FALSE(context.sources[1].cut);
}

TEST(PromptContext, WhatDoesNotFitIsLeftOut) {
  const std::vector<FoundText> texts{found(1, "a b c"), found(2, "a b c d e f g"), found(3, "x y")};
  const PromptContext context = with_context(texts, "q", {.max_tokens = 7, .prompt_template = kShort}, words);
  EXPECT_EQ(context.question, "[1] a b c\n\n[2] x y | q");
}

TEST(PromptContext, TheNearestIsCutWhereItIsTooLong) {
  const std::vector<FoundText> texts{found(1, "one two three four"), found(2, "x")};
  const PromptContext context = with_context(texts, "q", {.max_tokens = 3, .prompt_template = kShort}, words);
  ASSERT_EQ(context.sources.size(), 1u);
  EXPECT_TRUE(context.sources[0].cut);
  EXPECT_EQ(context.sources[0].found.text, "one two");
  EXPECT_EQ(context.question, "[1] one two | q");
  EXPECT_EQ(source_json(context.sources[0])["cut"], true);
}

TEST(PromptContext, ACutLeavesCharactersWhole) {
  const auto bytes = [](std::string_view text) { return text.size(); };
  const std::vector<FoundText> texts{found(1, "äöüäöü")};
  for (std::size_t budget = 0; budget < 20; ++budget) {
    const PromptContext context = with_context(texts, "q", {.max_tokens = budget, .prompt_template = kShort}, bytes);
    if (context.sources.empty()) continue;
    EXPECT_EQ(context.sources[0].found.text.size() % 2, 0u) << budget;
    EXPECT_LE(context.sources[0].found.text.size() + 4, budget);
  }
}

TEST(PromptContext, WithoutTextsTheQuestionIsAsItWas) {
  EXPECT_EQ(with_context({}, "what?", {}, words).question, "what?");
  const std::vector<FoundText> gone{{.id = 1}, found(2, " \n")};
  EXPECT_EQ(with_context(gone, "what?", {}, words).question, "what?");
  const std::vector<FoundText> texts{found(1, "a b")};
  const PromptContext nothing = with_context(texts, "what?", {.max_tokens = 0}, words);
  EXPECT_EQ(nothing.question, "what?");
  EXPECT_TRUE(nothing.sources.empty());
}

TEST(PromptContext, WhatATextSaysIsNotFilledIn) {
  const std::vector<FoundText> texts{found(1, "{question} {texts}")};
  const PromptContext context =
      with_context(texts, "{texts}", {.max_tokens = 50, .prompt_template = "{question}: {texts}"}, words);
  EXPECT_EQ(context.question, "{texts}: [1] {question} {texts}");
}

TEST(PromptContext, TemplatesNameBothOnce) {
  EXPECT_NO_THROW(check_context_template("{question} {texts}"));
  for (const char* wrong : {"", "{texts}", "{question}", "{texts}{texts}{question}", "{question}{texts}{question}"}) {
    EXPECT_THROW(check_context_template(wrong), Error) << wrong;
  }
}

TEST(PromptContext, SourcesTellWhatTheRowHas) {
  FoundText text = found(9, "a");
  text.source = "b.md";
  text.metadata = R"({"line":3})";
  EXPECT_EQ(source_json({.number = 2, .found = text}).dump(),
            R"({"number":2,"score":0.5,"id":9,"text":"a","source":"b.md","metadata":{"line":3}})");
}

}  // namespace
}  // namespace quarrel
