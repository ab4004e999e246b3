// Answers through the public header, compared with what the parts below it give.
#include <algorithm>

#include "api/api_support.h"
#include "backend/create.h"
#include "base/log.h"
#include "session/generation_stream.h"

namespace quarrel::test {
namespace {

using ApiGenerate = ApiTest;

// The answer of the layer that the program uses, another model with another number of sequences.
std::vector<TokenId> generated_below(const std::string& file, const std::vector<TokenId>& prompt,
                                     const SamplingParams& sampling, std::int32_t tokens) {
  MemoryLog log;
  const auto model = LoadedModel::load(file, make_device({.threads = 1}), {}, log);
  Ask ask{.prompt = prompt, .sampling = sampling, .seed = 7, .max_tokens = tokens};
  ask.stop_tokens.emplace();
  return generate(model, ask).answers.front().tokens;
}

TEST_F(ApiGenerate, IsWhatThePartsBelowGive) {
  const auto prompt = model_.tokenize(kPrompt);
  const api::GenerateResult greedy = model_.generate(prompt, unending(48));
  EXPECT_EQ(greedy.tokens, generated_below(file_, prompt, {}, 48));
  EXPECT_EQ(greedy.reason, api::FinishReason::length);
  EXPECT_EQ(greedy.prompt_tokens, prompt.size());
  EXPECT_EQ(greedy.logprobs.size(), 48u);

  api::GenerateOptions options = unending(48);
  options.temperature = 1.5f;
  options.top_k = 50;
  options.top_p = 0.95f;
  options.min_p = 0.01f;
  options.repeat_penalty = 1.3f;
  options.penalty_window = 16;
  options.seed = 7;
  const api::GenerateResult drawn = model_.generate(prompt, options);
  EXPECT_EQ(drawn.tokens, generated_below(file_, prompt,
                                          {.temperature = 1.5f,
                                           .top_k = 50,
                                           .top_p = 0.95f,
                                           .min_p = 0.01f,
                                           .repeat_penalty = 1.3f,
                                           .penalty_window = 16},
                                          48));
  EXPECT_NE(drawn.tokens, greedy.tokens);
  EXPECT_EQ(drawn.seed, 7u);
}

TEST_F(ApiGenerate, TheCallbackIsGivenTheTextAndTheTokens) {
  api::GenerateOptions options = unending(48);
  options.logprobs = 3;
  std::string text;
  std::vector<api::Token> tokens;
  const api::GenerateResult result = model_.generate(kPrompt, options, [&](const api::Piece& piece) {
    text += piece.text;
    if (piece.token == api::kNoToken) return true;
    tokens.push_back(piece.token);
    EXPECT_EQ(piece.top.size(), 3u);
    EXPECT_EQ(piece.top.front().token, piece.token);  // greedy
    EXPECT_EQ(piece.top.front().logprob, piece.logprob);
    EXPECT_GE(piece.top[0].logprob, piece.top[1].logprob);
    return true;
  });
  EXPECT_EQ(text, result.text);
  EXPECT_FALSE(text.empty());
  EXPECT_EQ(tokens, result.tokens);
  EXPECT_EQ(result.top.size(), 48u);
  // A text prompt is the tokens of that text.
  EXPECT_EQ(model_.generate(model_.tokenize(kPrompt), options).text, text);
}

TEST_F(ApiGenerate, TheCallbacksFalseEndsIt) {
  std::size_t calls = 0;
  std::string text;
  const api::GenerateResult result = model_.generate(kPrompt, unending(-1), [&](const api::Piece& piece) {
    text += piece.text;
    return ++calls < 5;
  });
  EXPECT_EQ(calls, 5u);
  EXPECT_EQ(result.tokens.size(), 5u);
  EXPECT_EQ(result.text, text);
  EXPECT_EQ(result.reason, api::FinishReason::cancelled);
}

TEST_F(ApiGenerate, WhatTheCallbackThrowsComesOut) {
  EXPECT_THROW(
      model_.generate(kPrompt, unending(-1), [](const api::Piece&) -> bool { throw std::out_of_range("mine"); }),
      std::out_of_range);
  EXPECT_EQ(model_.generate(kPrompt, unending(4)).tokens.size(), 4u);
}

TEST_F(ApiGenerate, StopStringsNeverLeak) {
  const std::string whole = model_.generate(kPrompt, unending(200)).text;
  ASSERT_GT(whole.size(), 100u);
  // Every place where a character begins, and stops that end within a token, at its end, or span several.
  for (std::size_t begin = 0; begin + 12 < whole.size(); begin += 9) {
    for (const std::size_t length : {1u, 3u, 11u}) {
      const std::string stop = whole.substr(begin, length);
      const auto lead = [](char c) { return (static_cast<unsigned char>(c) & 0xc0u) != 0x80u; };
      if (!lead(stop.front()) || !lead(whole[begin + length])) continue;
      api::GenerateOptions options = unending(200);
      options.stop = {"", stop, "never to be found"};
      std::string text;
      const api::GenerateResult result = model_.generate(kPrompt, options, [&](const api::Piece& piece) {
        text += piece.text;
        return true;
      });
      EXPECT_EQ(text, whole.substr(0, whole.find(stop))) << begin << ", " << length;
      EXPECT_EQ(result.text, text);
      EXPECT_EQ(result.reason, api::FinishReason::stop);
    }
  }
  // A beginning of a stop string that never ends is text.
  api::GenerateOptions options = unending(200);
  options.stop = {whole.substr(whole.size() / 2) + "never to be found"};
  EXPECT_EQ(model_.generate(kPrompt, options).text, whole);
}

TEST_F(ApiGenerate, AStopTokenIsTheLastTokenAndNoText) {
  const api::GenerateResult whole = model_.generate(kPrompt, unending(32));
  api::GenerateOptions options = unending(32);
  options.stop_tokens = std::vector<api::Token>{whole.tokens[9]};
  const api::GenerateResult result = model_.generate(kPrompt, options);
  const auto first = std::ranges::find(whole.tokens, whole.tokens[9]) - whole.tokens.begin();
  EXPECT_EQ(std::ssize(result.tokens), first + 1);
  EXPECT_EQ(result.tokens.back(), whole.tokens[9]);
  EXPECT_EQ(result.reason, api::FinishReason::stop);
  EXPECT_TRUE(whole.text.starts_with(result.text.substr(0, result.text.find("\xef\xbf\xbd"))));
  std::size_t reported = 0;
  model_.generate(kPrompt, options, [&](const api::Piece& piece) {
    EXPECT_TRUE(piece.token != whole.tokens[9] || piece.text.empty());
    ++reported;
    return true;
  });
  EXPECT_GE(reported, result.tokens.size());
}

TEST_F(ApiGenerate, EndsWithTheContextOrTheLength) {
  const api::GenerateResult full = model_.generate(kPrompt, unending(-1));
  EXPECT_EQ(full.reason, api::FinishReason::context);
  EXPECT_EQ(full.prompt_tokens + full.tokens.size(), 1024u);
  EXPECT_EQ(model_.generate(kPrompt, unending(5000)).reason, api::FinishReason::context);
  const api::GenerateResult none = model_.generate(kPrompt, unending(0));
  EXPECT_EQ(none.reason, api::FinishReason::length);
  EXPECT_TRUE(none.tokens.empty());
}

TEST_F(ApiGenerate, ASeedIsChosenWhereNoneIsGivenAndGivesTheSameAgain) {
  api::GenerateOptions options = unending(24);
  options.temperature = 2.0f;
  options.seed.reset();
  const api::GenerateResult first = model_.generate(kPrompt, options);
  EXPECT_NE(model_.generate(kPrompt, options).seed, first.seed);
  options.seed = first.seed;
  EXPECT_EQ(model_.generate(kPrompt, options).tokens, first.tokens);
}

TEST_F(ApiGenerate, WhatCannotBeIsRefused) {
  using api::ErrorKind;
  const auto refused = [&](std::string_view words, const api::GenerateOptions& options) {
    expect_api_error(ErrorKind::bad_input, words, [&] { model_.generate(kPrompt, options); });
  };
  refused("max_tokens", {.max_tokens = -2});
  refused("21 tokens", {.logprobs = 21});
  refused("temperature", {.temperature = -1.0f});
  refused("top_p", {.top_p = 2.0f});
  refused("timeout", {.timeout = std::chrono::milliseconds(-1)});
  refused("stop strings", {.stop = std::vector<std::string>(1000, "a")});
  refused("bytes", {.stop = {std::string(1 << 20, 'a')}});
  expect_api_error(ErrorKind::bad_input, "empty", [&] { model_.generate(std::vector<api::Token>{}); });
  expect_api_error(ErrorKind::bad_input, "1000000", [&] { model_.generate(std::vector<api::Token>{1000000}); });
  expect_api_error(ErrorKind::bad_input, "1024", [&] { model_.generate(std::vector<api::Token>(2000, 5)); });
}

TEST_F(ApiGenerate, ACallbackMayLetGoOfTheModel) {
  auto last = std::make_unique<api::Model>(api::Model::load(file_, small_load()));
  const api::Model& model = *last;
  const api::GenerateResult result = model.generate(kPrompt, unending(8), [&](const api::Piece&) {
    last.reset();
    return true;
  });
  EXPECT_EQ(result.tokens, model_.generate(kPrompt, unending(8)).tokens);
}

}  // namespace
}  // namespace quarrel::test
