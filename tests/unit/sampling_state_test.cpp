// A lane's sampling state: counts that are kept up token by token must be those of the whole text counted again.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "backend/sampler_state.h"

namespace quarrel {
namespace {

bool by_id(const TokenCount& a, const TokenCount& b) { return a.id < b.id; }

// The definition: count everything again.
std::vector<TokenCount> counted(std::span<const TokenId> text, std::size_t prompt, const SamplingParams& params) {
  const bool subtracts = params.presence_penalty != 0.0f || params.frequency_penalty != 0.0f;
  const bool recent = params.penalty_scope == PenaltyScope::recent;
  std::map<TokenId, TokenCount> counts;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto behind = static_cast<std::int64_t>(text.size() - i);
    const bool near = params.penalty_window < 0 || behind <= params.penalty_window;
    TokenCount& count = counts[text[i]];
    count.id = text[i];
    if (near && (params.repeat_penalty != 1.0f || (subtracts && recent))) ++count.recent;
    if (i >= prompt && subtracts && !recent) ++count.answered;
  }
  std::vector<TokenCount> list;
  for (const auto& [id, count] : counts) {
    if (count.recent > 0 || count.answered > 0) list.push_back(count);
  }
  return list;
}

void expect_counts(SamplerState& state, const std::vector<TokenCount>& expected) {
  const std::span<const TokenCount> seen = state.request({}, 0).seen;
  std::vector<TokenCount> actual(seen.begin(), seen.end());
  std::ranges::sort(actual, by_id);
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(actual[i].id, expected[i].id);
    ASSERT_EQ(actual[i].recent, expected[i].recent) << actual[i].id;
    ASSERT_EQ(actual[i].answered, expected[i].answered) << actual[i].id;
  }
}

SampleResult token(TokenId id, float mu = 0.0f) {
  return {.outcome = SampleOutcome::token, .id = id, .mirostat_mu = mu, .top = {}};
}

TEST(SamplerState, CountsAreThoseOfTheWholeText) {
  std::vector<SamplingParams> cases;
  for (const std::int32_t window : {-1, 0, 1, 7, 64, 1000}) {
    cases.push_back({.repeat_penalty = 1.1f, .penalty_window = window});
    cases.push_back({.frequency_penalty = 0.5f, .penalty_window = window});
    cases.push_back({.presence_penalty = 0.5f, .penalty_scope = PenaltyScope::recent, .penalty_window = window});
    cases.push_back({.repeat_penalty = 1.1f, .frequency_penalty = 0.5f, .penalty_window = window});
    cases.push_back({.penalty_window = window});
  }
  for (const SamplingParams& params : cases) {
    SCOPED_TRACE(testing::Message() << params.penalty_window << " " << params.repeat_penalty);
    for (const std::size_t kinds : {3u, 50u, 5000u}) {  // few tokens that come again and again, many that rarely do
      std::vector<TokenId> text;
      const auto draw = [&] {
        return static_cast<TokenId>(uniform(9, text.size()) * static_cast<double>(kinds)) * 37 % 100003;
      };
      for (int i = 0; i < 90; ++i) text.push_back(draw());
      const std::size_t prompt = 70;
      SamplerState state;
      state.start({.sampling = &params, .draw = 20, .text = text, .prompt_tokens = prompt});
      for (int i = 0; i < 300; ++i) {
        expect_counts(state, has_penalties(params) ? counted(text, prompt, params) : std::vector<TokenCount>{});
        if (testing::Test::HasFatalFailure()) return;
        text.push_back(draw());
        state.accept(token(text.back()));
      }
      EXPECT_EQ(state.request({}, 0).draw, 320u);
    }
  }
}

// A lane that begins in the middle of a text goes on as the one that was there from the start.
TEST(SamplerState, BeginsWhereTheTextHasGotTo) {
  const SamplingParams params{.repeat_penalty = 1.2f, .frequency_penalty = 0.3f, .penalty_window = 16};
  std::vector<TokenId> text = {1, 2, 3, 4, 5, 1};
  SamplerState whole;
  whole.start({.sampling = &params, .text = text, .prompt_tokens = 6});
  for (TokenId id = 0; id < 40; ++id) {
    text.push_back(id * 7 % 11);
    whole.accept(token(text.back(), 3.5f));
  }
  SamplerState resumed;
  resumed.start({.sampling = &params, .draw = 40, .mirostat_mu = 3.5f, .text = text, .prompt_tokens = 6});
  for (TokenId id = 0; id < 40; ++id) {
    const SampleRequest expected = whole.request({}, 0);
    std::vector<TokenCount> seen(expected.seen.begin(), expected.seen.end());
    std::ranges::sort(seen, by_id);
    expect_counts(resumed, seen);
    EXPECT_EQ(resumed.request({}, 0).draw, expected.draw);
    EXPECT_EQ(resumed.request({}, 0).mirostat_mu, expected.mirostat_mu);
    for (SamplerState* state : {&whole, &resumed}) state->accept(token(id * 5 % 13, static_cast<float>(id)));
  }
}

TEST(SamplerState, OnlyATokenCounts) {
  const SamplingParams params{.frequency_penalty = 1.0f};
  SamplerState state;
  state.start({.sampling = &params, .draw = 3, .mirostat_mu = 2.0f});
  for (const SampleOutcome outcome : {SampleOutcome::no_token, SampleOutcome::bad_logits, SampleOutcome::none}) {
    state.accept({.outcome = outcome, .id = -1, .mirostat_mu = 9.0f, .top = {}});
  }
  EXPECT_EQ(state.request({}, 0).draw, 3u);
  EXPECT_EQ(state.request({}, 0).mirostat_mu, 2.0f);
  EXPECT_TRUE(state.request({}, 0).seen.empty());
  const std::vector<std::uint64_t> mask = {5};
  EXPECT_EQ(state.request(mask, 4).mask.data(), mask.data());
  EXPECT_EQ(state.request(mask, 4).top, 4);
}

// What a device is told that draws by itself.
TEST(SamplerState, TellsWhatADrawTakes) {
  const auto state_of = [](const SamplingParams& params) {
    SamplerState state;
    state.start({.sampling = &params, .draw = 3, .mirostat_mu = 1.5f});
    return state;
  };
  SamplingParams params{.temperature = 0.7f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .typical_p = 0.8f, .seed = 9};
  const SamplerState::Draw draw = state_of(params).draw(1000, 0);
  EXPECT_EQ(draw.random, uniform(9, 3));
  EXPECT_EQ(state_of(params).draw(1000, 2).random, uniform(9, 5));
  EXPECT_EQ(draw.temperature, static_cast<double>(0.7f));
  EXPECT_EQ(draw.top_k, 40);
  EXPECT_EQ(draw.typical_p, 0.8f);
  EXPECT_EQ(draw.top_p, 0.95f);
  EXPECT_EQ(draw.min_p, 0.05f);
  EXPECT_FALSE(draw.mirostat);
  EXPECT_FALSE(state_of(params).is_greedy());
  params.top_k = 999;
  EXPECT_EQ(state_of(params).draw(1000, 0).top_k, 999);
  params.top_k = 1000;
  EXPECT_EQ(state_of(params).draw(1000, 0).top_k, 0) << "that is all of them";
  params.mirostat = true;
  EXPECT_TRUE(state_of(params).draw(1000, 0).mirostat);
  EXPECT_EQ(state_of(params).mirostat_mu(), 1.5f);
  params.temperature = 0.0f;
  EXPECT_TRUE(state_of(params).is_greedy());
}

// A device counts the tokens that it has drawn and nobody has seen: what it is told must leave room for them.
TEST(SamplerState, CountsWithUnseenTokensAreThoseOfTheWholeText) {
  for (const std::int32_t window : {-1, 1, 4, 100}) {
    for (const PenaltyScope scope : {PenaltyScope::answer, PenaltyScope::recent}) {
      const SamplingParams params{
          .repeat_penalty = 1.2f, .presence_penalty = 0.5f, .penalty_scope = scope, .penalty_window = window};
      std::vector<TokenId> text = {1, 2, 3, 1, 2};
      SamplerState state;
      state.start({.sampling = &params, .text = text, .prompt_tokens = 3});
      for (int step = 0; step < 12; ++step) {
        SCOPED_TRACE(testing::Message() << "window " << window << ", step " << step);
        const TokenId next = step * 5 % 4;
        text.push_back(next);
        std::vector<TokenCount> counts;
        state.copy_counts(1, counts);
        const TokenCount added = state.added_by_token();
        auto known = std::ranges::find(counts, next, &TokenCount::id);
        if (known == counts.end()) known = counts.insert(known, {.id = next});
        known->recent += added.recent;
        known->answered += added.answered;
        std::erase_if(counts, [](const TokenCount& count) { return count.recent == 0 && count.answered == 0; });
        std::ranges::sort(counts, by_id);
        const auto expected = counted(text, 3, params);
        ASSERT_EQ(counts.size(), expected.size());
        for (std::size_t i = 0; i < counts.size(); ++i) {
          EXPECT_EQ(counts[i].id, expected[i].id);
          EXPECT_EQ(counts[i].recent, expected[i].recent) << counts[i].id;
          EXPECT_EQ(counts[i].answered, expected[i].answered) << counts[i].id;
        }
        state.accept(token(next));
      }
    }
  }
}

TEST(SamplerState, SaysWhetherLogitsChange) {
  const auto changes = [](const SamplingParams& params) {
    SamplerState state;
    state.start({.sampling = &params});
    return state.changes_logits();
  };
  EXPECT_FALSE(changes({.temperature = 1.0f}));
  EXPECT_TRUE(changes({.repeat_penalty = 1.1f}));
  EXPECT_FALSE(changes({.repeat_penalty = 1.1f, .penalty_window = 0}));
  EXPECT_TRUE(changes({.presence_penalty = 0.1f}));
  EXPECT_TRUE(changes({.frequency_penalty = 0.1f}));
  EXPECT_TRUE(changes({.logit_bias = {{1, 2.0f}}}));
  // Those of a token in their order: what they are rounded to between depends on it.
  const SamplingParams several{.logit_bias = {{7, 1.0f}, {3, 2.0f}, {7, 3.0f}, {3, 4.0f}}};
  SamplerState state;
  state.start({.sampling = &several});
  const std::vector<std::pair<TokenId, float>> expected = {{3, 2.0f}, {3, 4.0f}, {7, 1.0f}, {7, 3.0f}};
  EXPECT_EQ(state.params().logit_bias, expected);
}

}  // namespace
}  // namespace quarrel
