// What the engine can do with an answer, through the public header: each option is seen to do something.
#include <algorithm>
#include <limits>
#include <set>

#include "api/api_support.h"

namespace quarrel::test {
namespace {

using api::FinishReason;

class ApiOptions : public ApiTest {
 protected:
  static api::GenerateOptions drawn(std::int32_t max_tokens) {
    api::GenerateOptions options = unending(max_tokens);
    options.temperature = 1.5f;
    return options;
  }
  std::vector<api::Token> tokens(const api::GenerateOptions& options) const {
    return model_.generate(kPrompt, options).tokens;
  }
  static void permit(std::span<std::uint64_t> allowed, api::Token token) {
    allowed[static_cast<std::size_t>(token) / 64] |= std::uint64_t{1} << (static_cast<std::size_t>(token) % 64);
  }
  static std::size_t different(const std::vector<api::Token>& tokens) {
    return std::set<api::Token>(tokens.begin(), tokens.end()).size();
  }
};

TEST_F(ApiOptions, ALogitBiasMovesTheChoice) {
  api::GenerateOptions options = unending(6);
  options.logit_bias = {{77, 1000.0f}};
  EXPECT_EQ(tokens(options), std::vector<api::Token>(6, 77));
  const api::Token first = tokens(unending(1)).front();
  options.logit_bias = {{first, -std::numeric_limits<float>::infinity()}};
  EXPECT_NE(tokens(options).front(), first);

  options.logit_bias.clear();
  for (api::Token id = 0; id < model_.info().vocabulary; ++id) {
    options.logit_bias.emplace_back(id, -std::numeric_limits<float>::infinity());
  }
  const api::GenerateResult none = model_.generate(kPrompt, options);
  EXPECT_EQ(none.reason, FinishReason::no_token);
  EXPECT_TRUE(none.tokens.empty());
  EXPECT_FALSE(none.error.empty());
}

TEST_F(ApiOptions, FiltersAndMirostatChangeWhatIsDrawn) {
  const std::vector<api::Token> plain = tokens(drawn(40));
  api::GenerateOptions options = drawn(40);
  options.typical_p = 0.2f;
  EXPECT_NE(tokens(options), plain);
  options = drawn(40);
  options.mirostat = true;
  const std::vector<api::Token> mild = tokens(options);
  EXPECT_NE(mild, plain);
  options.mirostat_tau = 0.5f;
  EXPECT_NE(tokens(options), mild);
  options.mirostat_tau = 5.0f;
  options.mirostat_eta = 0.9f;
  EXPECT_NE(tokens(options), mild);
}

// A penalty that counts the answer alone leaves the prompt's tokens as they are.
TEST_F(ApiOptions, PenaltiesCountWhatTheirScopeSays) {
  const api::Token favourite = tokens(unending(1)).front();
  const std::vector<api::Token> prompt(8, favourite);
  api::GenerateOptions options = unending(1);
  options.logit_bias = {{favourite, 20.0f}};
  options.presence_penalty = 1000.0f;
  EXPECT_EQ(model_.generate(prompt, options).tokens.front(), favourite);
  options.penalty_scope = api::PenaltyScope::recent;
  EXPECT_NE(model_.generate(prompt, options).tokens.front(), favourite);
  options.presence_penalty = 0.0f;
  options.frequency_penalty = 1000.0f;
  EXPECT_NE(model_.generate(prompt, options).tokens.front(), favourite);
  options.max_tokens = 30;
  options.penalty_scope = api::PenaltyScope::answer;
  EXPECT_EQ(different(model_.generate(prompt, options).tokens), 30u);
}

TEST_F(ApiOptions, AMaskSaysWhatMayCome) {
  std::vector<std::size_t> lengths;
  api::GenerateOptions options = drawn(20);
  const auto vocabulary = static_cast<std::size_t>(model_.info().vocabulary);
  options.mask = [&](std::size_t answer, std::span<const api::Token> so_far, std::span<std::uint64_t> allowed) {
    EXPECT_EQ(answer, 0u);
    EXPECT_GE(allowed.size() * 64, vocabulary);
    EXPECT_TRUE(std::ranges::all_of(allowed, [](std::uint64_t word) { return word == 0; }));
    lengths.push_back(so_far.size());
    permit(allowed, so_far.size() % 2 == 0 ? 65 : 70);
  };
  const api::GenerateResult result = model_.generate(kPrompt, options);
  ASSERT_EQ(result.tokens.size(), 20u);
  for (std::size_t i = 0; i < result.tokens.size(); ++i) EXPECT_EQ(result.tokens[i], i % 2 == 0 ? 65 : 70);
  ASSERT_EQ(lengths.size(), 20u);
  EXPECT_EQ(lengths.back(), 19u);

  options.mask = [](std::size_t, std::span<const api::Token> so_far, std::span<std::uint64_t> allowed) {
    if (so_far.size() < 5) permit(allowed, 65);
  };
  const api::GenerateResult ended = model_.generate(kPrompt, options);
  EXPECT_EQ(ended.reason, FinishReason::no_token);
  EXPECT_EQ(ended.tokens, std::vector<api::Token>(5, 65));
}

TEST_F(ApiOptions, SpecialTokensAreShownOnRequest) {
  api::GenerateOptions options = unending(3);
  options.logit_bias = {{1, 1000.0f}};
  EXPECT_EQ(model_.generate(kPrompt, options).text, "");
  options.show_special = true;
  const api::GenerateResult shown = model_.generate(kPrompt, options);
  EXPECT_EQ(shown.text, "<|im_start|><|im_start|><|im_start|>");
  EXPECT_EQ(shown.text, model_.detokenize(shown.tokens, true));
}

TEST_F(ApiOptions, ThePromptHasLogprobsToo) {
  const std::vector<api::Token> prompt = model_.tokenize(kPrompt);
  api::GenerateOptions options = unending(8);
  options.logprobs = 2;
  const api::GenerateResult answer = model_.generate(prompt, options);
  EXPECT_TRUE(answer.prompt_logprobs.empty());

  // The answer again, as a part of the prompt.
  std::vector<api::Token> longer = prompt;
  longer.insert(longer.end(), answer.tokens.begin(), answer.tokens.end());
  options.prompt_logprobs = true;
  options.max_tokens = 0;
  const api::GenerateResult scored = model_.generate(longer, options);
  ASSERT_EQ(scored.prompt_logprobs.size(), longer.size() - 1);
  ASSERT_EQ(scored.prompt_top.size(), longer.size() - 1);
  EXPECT_TRUE(scored.tokens.empty());
  for (std::size_t i = 0; i < answer.tokens.size(); ++i) {
    const std::size_t place = prompt.size() - 1 + i;
    EXPECT_EQ(scored.prompt_logprobs[place].token, answer.tokens[i]);
    // Rows of a prompt are computed otherwise than rows of an answer.
    EXPECT_NEAR(scored.prompt_logprobs[place].logprob, answer.logprobs[i], 0.05f) << i;
    EXPECT_EQ(scored.prompt_top[place].size(), 2u);
  }
  options.answers = 3;
  options.max_tokens = 2;
  const auto several = model_.generate_many(longer, options);
  EXPECT_EQ(several[0].prompt_logprobs.size(), longer.size() - 1);
  EXPECT_TRUE(several[1].prompt_logprobs.empty());
}

TEST_F(ApiOptions, AFullContextStopsShiftsOrIsRefused) {
  api::GenerateOptions options = unending(1500);
  const std::size_t room = 1024 - model_.tokenize(kPrompt).size();
  EXPECT_EQ(model_.generate(kPrompt, options).tokens.size(), room);
  options.overflow = api::Overflow::refuse;
  expect_api_error(api::ErrorKind::bad_input, "1024", [&] { model_.generate(kPrompt, options); });
  options.overflow = api::Overflow::shift;
  std::vector<std::size_t> dropped;
  for (const std::int32_t keep : {0, 400}) {
    options.keep = keep;
    api::Generation generation = model_.open(std::vector<api::Token>(500, 65), options);
    while (const auto event = generation.next()) {
      if (event->kind != api::Event::Kind::shifted) continue;
      dropped.push_back(event->dropped_tokens);
      break;
    }
    const api::GenerateResult result = generation.wait().front();
    EXPECT_EQ(result.tokens.size(), 1500u);
    EXPECT_EQ(result.reason, FinishReason::length);
  }
  // What is kept cannot be dropped.
  ASSERT_EQ(dropped.size(), 2u);
  EXPECT_GT(dropped[0], dropped[1]);
}

TEST_F(ApiOptions, ThePrefixCacheIsUsedAsAsked) {
  const std::vector<api::Token> prompt(200, 65);
  EXPECT_EQ(model_.generate(prompt, unending(1)).cached_tokens, 0u);
  const api::GenerateResult again = model_.generate(prompt, unending(1));
  EXPECT_GT(again.cached_tokens, 100u);
  api::GenerateOptions options = unending(1);
  options.salt = 3;
  EXPECT_EQ(model_.generate(prompt, options).cached_tokens, 0u);
  EXPECT_GT(model_.generate(prompt, options).cached_tokens, 100u);
  options.salt = 0;
  options.use_cache = false;
  const api::GenerateResult without = model_.generate(prompt, options);
  EXPECT_EQ(without.cached_tokens, 0u);
  EXPECT_EQ(without.logprobs, again.logprobs);

  api::LoadOptions load = small_load();
  load.prefix_cache = false;
  const api::Model forgetful = api::Model::load(file_, load);
  forgetful.generate(prompt, unending(1));
  EXPECT_EQ(forgetful.generate(prompt, unending(1)).cached_tokens, 0u);
}

TEST_F(ApiOptions, WhatIsPinnedStaysInTheCache) {
  for (const bool pinned : {false, true}) {
    const api::Model model =
        api::Model::load(file_, {.threads = 2, .context = 512, .sequences = 1, .cache_tokens = 1024});
    const std::vector<api::Token> first(200, 65);
    api::GenerateOptions options = unending(1);
    if (pinned) options.pinned = 200;
    model.generate(first, options);
    for (api::Token other = 66; other < 76; ++other) model.generate(std::vector<api::Token>(200, other), unending(1));
    EXPECT_EQ(model.generate(first, unending(1)).cached_tokens > 100, pinned);
  }
}

// A mask that waits keeps the model busy, so that others wait: how many may, in all and of one key, and who is first.
TEST_F(ApiOptions, QueuesHaveLimitsAndPriorities) {
  api::LoadOptions load = small_load();
  load.sequences = 1;
  load.queue_limit = 3;
  load.key_queue_limit = 2;
  const api::Model model = api::Model::load(file_, load);
  const Gate gate;
  api::Generation held = model.open(kPrompt, held_at(gate, unending(2)));
  gate.wait_until_reached();
  api::GenerateOptions options = unending(2);
  options.key = 7;
  options.priority = api::Priority::batch;
  api::Generation first = model.open(kPrompt, options);
  api::Generation second = model.open(kPrompt, options);
  expect_api_error(api::ErrorKind::busy, "wait", [&] { model.open(kPrompt, options); });
  options.key = 8;
  options.priority = api::Priority::interactive;
  api::Generation urgent = model.open(kPrompt, options);
  options.key = 9;
  expect_api_error(api::ErrorKind::busy, "try again", [&] { model.open(kPrompt, options); });
  EXPECT_EQ(model.metrics().waiting, 3);
  EXPECT_EQ(model.metrics().refused, 2u);
  gate.open();
  const double urgent_waited = urgent.wait().front().queue_seconds;
  EXPECT_LT(urgent_waited, first.wait().front().queue_seconds);
  EXPECT_LT(urgent_waited, second.wait().front().queue_seconds);
  EXPECT_EQ(held.wait().front().tokens.size(), 2u);

  load.queue_limit = 1024;
  load.queue_token_limit = 100;
  const api::Model narrow = api::Model::load(file_, load);
  const Gate other;
  api::Generation busy = narrow.open(kPrompt, held_at(other, unending(2)));
  other.wait_until_reached();
  api::Generation fits = narrow.open(std::vector<api::Token>(60, 65), unending(2));
  expect_api_error(api::ErrorKind::busy, "wait", [&] { narrow.open(std::vector<api::Token>(60, 65), unending(2)); });
  other.open();
}

TEST_F(ApiOptions, WhatCannotBeIsRefused) {
  const auto refused = [&](api::ErrorKind kind, std::string_view words, const api::GenerateOptions& options) {
    expect_api_error(kind, words, [&] { model_.generate(kPrompt, options); });
  };
  refused(api::ErrorKind::bad_input, "typical_p", {.typical_p = -1.0f});
  refused(api::ErrorKind::bad_input, "mirostat_tau", {.mirostat = true, .mirostat_tau = -1.0f});
  refused(api::ErrorKind::usage, "overflow", {.overflow = static_cast<api::Overflow>(9)});
  refused(api::ErrorKind::usage, "priority", {.priority = static_cast<api::Priority>(-1)});
  refused(api::ErrorKind::usage, "scope", {.penalty_scope = static_cast<api::PenaltyScope>(2)});
  refused(api::ErrorKind::bad_input, "", {.logit_bias = {{-4, 1.0f}}});
  refused(api::ErrorKind::bad_input, "", {.logit_bias = {{1 << 24, 1.0f}}});
}

}  // namespace
}  // namespace quarrel::test
