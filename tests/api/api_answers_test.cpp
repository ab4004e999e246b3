// Several answers to one prompt, and the best of them, through the public headers.
#include <algorithm>
#include <numeric>

#include "api/c_api_support.h"

namespace quarrel::test {
namespace {

using ApiAnswers = ApiTest;
using ApiAnswersInC = CApiTest;

api::GenerateOptions several(std::int32_t answers, std::int32_t best_of = 0) {
  api::GenerateOptions options = unending(24);
  options.temperature = 1.5f;
  options.seed = 5;
  options.answers = answers;
  options.best_of = best_of;
  return options;
}

double mean(const api::GenerateResult& result) {
  const double sum = std::accumulate(result.logprobs.begin(), result.logprobs.end(), 0.0);
  return sum / static_cast<double>(result.logprobs.size());
}

TEST_F(ApiAnswers, EachIsTheOneThatItsSeedGivesAlone) {
  const std::vector<api::GenerateResult> answers = model_.generate_many(kPrompt, several(5));
  ASSERT_EQ(answers.size(), 5u);
  EXPECT_EQ(answers.front().seed, 5u);
  for (const api::GenerateResult& answer : answers) {
    api::GenerateOptions alone = several(1);
    alone.seed = answer.seed;
    const api::GenerateResult same = model_.generate(kPrompt, alone);
    EXPECT_EQ(answer.tokens, same.tokens);
    EXPECT_EQ(answer.text, same.text);
    EXPECT_EQ(answer.logprobs, same.logprobs);
    EXPECT_EQ(answer.reason, api::FinishReason::length);
    EXPECT_EQ(answer.prompt_tokens, same.prompt_tokens);
  }
  EXPECT_NE(answers[0].tokens, answers[1].tokens);
}

TEST_F(ApiAnswers, TheLikeliestAreChosenBestFirst) {
  std::vector<api::GenerateResult> all = model_.generate_many(kPrompt, several(6));
  std::ranges::stable_sort(all, std::greater<>{}, mean);
  const std::vector<api::GenerateResult> best = model_.generate_many(kPrompt, several(2, 6));
  ASSERT_EQ(best.size(), 2u);
  EXPECT_EQ(best[0].tokens, all[0].tokens);
  EXPECT_EQ(best[1].tokens, all[1].tokens);
  EXPECT_EQ(best[0].seed, all[0].seed);
  // One answer is the best, where it is one of several.
  EXPECT_EQ(model_.generate(kPrompt, several(1, 6)).tokens, all[0].tokens);
  const std::vector<api::Message> messages{{.role = "user", .content = "Hello"}};
  EXPECT_EQ(model_.chat(messages, several(1, 3)).tokens, model_.chat_many(messages, several(2, 3)).front().tokens);
}

// Nobody knows which will be chosen before all have ended: pieces of those that were come then.
TEST_F(ApiAnswers, PiecesOfTheBestComeAtTheEnd) {
  std::vector<std::vector<api::Token>> tokens(2);
  std::size_t last = 0;
  const auto best = model_.generate_many(kPrompt, several(2, 5), [&](const api::Piece& piece) {
    EXPECT_GE(piece.answer, last);
    last = piece.answer;
    if (piece.token != api::kNoToken) tokens.at(piece.answer).push_back(piece.token);
    return true;
  });
  EXPECT_EQ(tokens[0], best[0].tokens);
  EXPECT_EQ(tokens[1], best[1].tokens);
}

// One that fails leaves the others alone, and says why.
TEST_F(ApiAnswers, OneThatFailsDiscardsNoOther) {
  const auto whole = model_.generate_many(kPrompt, several(3));
  api::GenerateOptions options = several(3);
  options.mask = [](std::size_t answer, std::span<const api::Token> tokens, std::span<std::uint64_t> allowed) {
    if (answer == 1 && tokens.size() == 6) throw std::runtime_error("no grammar for that");
    if (answer == 2 && tokens.size() == 9) return;  // nothing may come
    std::ranges::fill(allowed, ~std::uint64_t{0});
  };
  const auto answers = model_.generate_many(kPrompt, options);
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_EQ(answers[0].tokens, whole[0].tokens);
  EXPECT_EQ(answers[0].reason, api::FinishReason::length);
  EXPECT_EQ(answers[0].error, "");
  EXPECT_EQ(answers[1].reason, api::FinishReason::failed);
  EXPECT_NE(answers[1].error.find("no grammar for that"), std::string::npos) << answers[1].error;
  EXPECT_EQ(answers[1].tokens, std::vector(whole[1].tokens.begin(), whole[1].tokens.begin() + 6));
  EXPECT_EQ(answers[2].reason, api::FinishReason::no_token);
  EXPECT_FALSE(answers[2].error.empty());
  EXPECT_EQ(answers[2].tokens, std::vector(whole[2].tokens.begin(), whole[2].tokens.begin() + 9));

  // Where it is the only one, there is nothing else to give.
  options.answers = 1;
  options.mask = [](std::size_t, std::span<const api::Token>, std::span<std::uint64_t>) {
    throw std::runtime_error("no grammar at all");
  };
  expect_api_error(api::ErrorKind::failed, "no grammar at all", [&] { model_.generate(kPrompt, options); });
}

TEST_F(ApiAnswers, PiecesTellWhoseTheyAre) {
  std::vector<std::string> texts(3);
  std::vector<std::vector<api::Token>> tokens(3);
  const auto answers = model_.generate_many(kPrompt, several(3, 3), [&](const api::Piece& piece) {
    texts.at(piece.answer) += piece.text;
    if (piece.token != api::kNoToken) tokens.at(piece.answer).push_back(piece.token);
    return true;
  });
  ASSERT_EQ(answers.size(), 3u);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i].text, texts[i]);
    EXPECT_EQ(answers[i].tokens, tokens[i]);
  }
}

// What ends one of them early leaves the others alone.
TEST_F(ApiAnswers, EndEachForItself) {
  const auto whole = model_.generate_many(kPrompt, several(3));
  const auto ended = model_.generate_many(kPrompt, several(3), [&](const api::Piece& piece) {
    return piece.answer != 1 || piece.token != whole[1].tokens[4];
  });
  EXPECT_EQ(ended[0].tokens, whole[0].tokens);
  EXPECT_EQ(ended[2].tokens, whole[2].tokens);
  EXPECT_EQ(ended[1].reason, api::FinishReason::cancelled);
  EXPECT_LE(ended[1].tokens.size(), 5u);

  // A stop string that only one of them has.
  const auto has = [](const api::GenerateResult& answer, const std::string& text) {
    return answer.text.find(text) != std::string::npos;
  };
  std::string stop;
  for (std::size_t begin = 0; begin + 2 < whole[2].text.size() && stop.empty(); ++begin) {
    const std::string part = whole[2].text.substr(begin, 2);
    const bool plain = std::ranges::all_of(part, [](char c) { return static_cast<unsigned char>(c) < 0x80u; });
    if (plain && !has(whole[0], part) && !has(whole[1], part)) stop = part;
  }
  ASSERT_FALSE(stop.empty());
  api::GenerateOptions options = several(3);
  options.stop = {stop};
  const auto stopped = model_.generate_many(kPrompt, options);
  EXPECT_EQ(stopped[0].text, whole[0].text);
  EXPECT_EQ(stopped[1].text, whole[1].text);
  EXPECT_EQ(stopped[2].text, whole[2].text.substr(0, whole[2].text.find(stop)));
  EXPECT_EQ(stopped[2].reason, api::FinishReason::stop);
}

TEST_F(ApiAnswers, OneCancelEndsThemAll) {
  api::GenerateOptions options = several(3);
  options.max_tokens = -1;
  options.cancel = api::CancelToken();
  std::size_t calls = 0;
  const auto answers = model_.generate_many(kPrompt, options, [&](const api::Piece&) {
    if (++calls == 9) options.cancel->cancel();
    return true;
  });
  EXPECT_EQ(calls, 9u);
  ASSERT_EQ(answers.size(), 3u);
  for (const api::GenerateResult& answer : answers) EXPECT_EQ(answer.reason, api::FinishReason::cancelled);
  EXPECT_THROW(
      model_.generate_many(kPrompt, several(3), [](const api::Piece&) -> bool { throw std::out_of_range("mine"); }),
      std::out_of_range);
  EXPECT_EQ(model_.generate_many(kPrompt, several(2, 4)).size(), 2u);
}

TEST_F(ApiAnswers, WhatCannotBeIsRefused) {
  const auto refused = [&](std::string_view words, const api::GenerateOptions& options) {
    expect_api_error(api::ErrorKind::bad_input, words, [&] { model_.generate_many(kPrompt, options); });
  };
  refused("answers can be 1 to 16, not 0", several(0));
  refused("answers can be 1 to 16, not 17", several(17));
  refused("best_of can be 3 (the answers asked for) to 16, or 0, not 2", several(3, 2));
  refused("not 17", several(3, 17));
  refused("not -1", several(1, -1));
  expect_api_error(api::ErrorKind::bad_input, "generate_many", [&] { model_.generate(kPrompt, several(2)); });
  EXPECT_EQ(model_.generate_many(kPrompt, several(16)).size(), 16u);
}

TEST_F(ApiAnswersInC, AreTheSame) {
  const auto expected = model_.generate_many(kPrompt, several(2, 4));
  quarrel_generate_options options = unending_c(24);
  EXPECT_EQ(options.answers, 1);
  EXPECT_EQ(options.best_of, 0);
  options.temperature = 1.5f;
  options.seed = 5;
  options.logprobs = 1;
  options.answers = 2;
  options.best_of = 4;
  const quarrel_text prompt = quarrel_text_of(kPrompt);
  quarrel_result* result = nullptr;
  ASSERT_EQ(quarrel_generate_text(handle_, prompt, &options, nullptr, nullptr, &result, &error_), QUARREL_OK)
      << error_.message;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    quarrel_result_info info{};
    info.size = sizeof info;
    ASSERT_EQ(quarrel_result_get_answer_info(result, i, &info, &error_), QUARREL_OK) << error_.message;
    EXPECT_EQ(info.answer_count, 2u);
    EXPECT_EQ(std::string_view(info.text.data, info.text.bytes), expected[i].text);
    EXPECT_EQ(info.seed, expected[i].seed);
    const quarrel_logprob* top = nullptr;
    std::size_t count = 0;
    EXPECT_EQ(quarrel_result_get_answer_top(result, i, 23, &top, &count, &error_), QUARREL_OK);
    EXPECT_EQ(count, 1u);
    EXPECT_EQ(quarrel_result_get_answer_top(result, i, 24, &top, &count, &error_), QUARREL_BAD_INPUT);
    EXPECT_EQ(quarrel_result_get_answer_top(result, 2, 0, &top, &count, &error_), QUARREL_BAD_INPUT);
    EXPECT_EQ(quarrel_result_get_answer_info(result, 2, &info, &error_), QUARREL_BAD_INPUT);
  }
  quarrel_result_info info{};
  info.size = sizeof info;
  EXPECT_EQ(quarrel_result_get_answer_info(nullptr, 0, &info, &error_), QUARREL_USAGE);
  quarrel_result_free(result);

  std::size_t places = 0;
  const auto count = [](const quarrel_piece* piece, void* user) {
    *static_cast<std::size_t*>(user) |= std::size_t{1} << piece->answer;
    return 1;
  };
  EXPECT_EQ(quarrel_generate_text(handle_, prompt, &options, count, &places, nullptr, &error_), QUARREL_OK);
  EXPECT_EQ(places, 3u);
  places = 0;
  options.best_of = 0;
  EXPECT_EQ(quarrel_generate_text(handle_, prompt, &options, count, &places, nullptr, &error_), QUARREL_OK);
  EXPECT_EQ(places, 3u);
}

}  // namespace
}  // namespace quarrel::test
