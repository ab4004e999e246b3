// The load of `bench --serve`: arrivals, lengths, tokens, and the percentiles of what is measured.
#include "app/serve_load.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "app/percentiles.h"
#include "base/error.h"

namespace quarrel {
namespace {

std::string refusal(const LoadSettings& settings) {
  try {
    (void)resolved(settings);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return {};
}

TEST(Percentiles, OfAHundredAreTheirNumbers) {
  std::vector<double> values;
  for (int i = 100; i > 0; --i) values.push_back(i);
  const Percentiles result = percentiles(values);
  EXPECT_EQ(result.count, 100u);
  EXPECT_DOUBLE_EQ(result.mean, 50.5);
  EXPECT_EQ(result.p50, 50.0);
  EXPECT_EQ(result.p95, 95.0);
  EXPECT_EQ(result.p99, 99.0);
  EXPECT_EQ(result.max, 100.0);
}

TEST(Percentiles, OfFewAreAmongThem) {
  const Percentiles two = percentiles({3.0, 1.0});
  EXPECT_EQ(two.p50, 1.0);
  EXPECT_EQ(two.p95, 3.0);
  EXPECT_EQ(two.p99, 3.0);
  const Percentiles one = percentiles({7.0});
  EXPECT_EQ(one.p50, 7.0);
  EXPECT_EQ(one.max, 7.0);
  std::vector<double> twenty(20, 1.0);
  twenty.back() = 9.0;
  EXPECT_EQ(percentiles(twenty).p95, 1.0);
  EXPECT_EQ(percentiles(twenty).p99, 9.0);
}

TEST(Percentiles, OfNothingAreZero) {
  const Percentiles none = percentiles({});
  EXPECT_EQ(none.count, 0u);
  EXPECT_EQ(none.p99, 0.0);
}

TEST(TokenRange, Parses) {
  EXPECT_EQ(parse_token_range("128", "--x").least, 128);
  EXPECT_EQ(parse_token_range("128", "--x").most, 128);
  EXPECT_EQ(parse_token_range("1:4194304", "--x").least, 1);
  EXPECT_EQ(parse_token_range("1:4194304", "--x").most, kMostLoadTokens);
  EXPECT_EQ(parse_token_range("5:5", "--x").most, 5);
}

TEST(TokenRange, RefusesWhatIsNone) {
  for (const char* text : {"", ":", "5:", ":5", "0", "-1", "1:0", "4194305", "1:99999999999", "1:2:3", "a", "1.5", " 1",
                           "5:4", "0:7", "\x1b[2J"}) {
    try {
      (void)parse_token_range(text, "--prompt-tokens");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_NE(std::string(error.what()).find("--prompt-tokens"), std::string::npos) << text;
      EXPECT_EQ(std::string(error.what()).find('\x1b'), std::string::npos);
    }
  }
}

TEST(LoadSettings, DefaultsFollowTheLoop) {
  EXPECT_EQ(resolved({}).requests, 32);
  EXPECT_EQ(resolved({.clients = 3}).requests, 12);
  EXPECT_EQ(resolved({.rate = 2.0}).requests, 64);
  EXPECT_EQ(resolved({.requests = 9}).requests, 9);
}

TEST(LoadSettings, RefuseWhatMakesNoSense) {
  EXPECT_NE(refusal({.clients = 8, .requests = 7}).find("8 clients"), std::string::npos);
  EXPECT_NE(refusal({.shared_prefix = 129}).find("129"), std::string::npos);
  EXPECT_EQ(refusal({.shared_prefix = 128}), "");
  EXPECT_EQ(refusal({.rate = 1.0, .requests = 1}), "");
  for (const double rate :
       {-1.0, 1e-4, 1e7, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_NE(refusal({.rate = rate}).find("--rate"), std::string::npos) << rate;
  }
}

TEST(LoadPlan, ArrivalsComeAtTheRate) {
  constexpr std::int32_t kCount = 20000;
  const LoadPlan plan = plan_load(resolved({.rate = 4.0, .requests = kCount}));
  ASSERT_EQ(plan.requests.size(), static_cast<std::size_t>(kCount));
  double before = 0.0;
  double squares = 0.0;
  std::int32_t short_gaps = 0;
  for (const PlannedRequest& request : plan.requests) {
    const double gap = request.arrival - before;
    EXPECT_GE(gap, 0.0);
    squares += gap * gap;
    if (gap < 0.25) ++short_gaps;
    before = request.arrival;
  }
  // The mean of the gaps, their second moment 2/R², and the share 1 - 1/e below the mean: an exponential law's. Each
  // bound is five deviations or more of its estimate.
  EXPECT_NEAR(before / kCount, 0.25, 0.25 * 5 / std::sqrt(kCount));
  EXPECT_NEAR(squares / kCount, 2.0 / 16.0, 2.0 / 16.0 * 0.1);
  EXPECT_NEAR(static_cast<double>(short_gaps) / kCount, 1.0 - std::exp(-1.0), 0.02);
}

TEST(LoadPlan, ClientsHaveNoArrivals) {
  for (const PlannedRequest& request : plan_load(resolved({})).requests) EXPECT_EQ(request.arrival, 0.0);
}

TEST(LoadPlan, LengthsFillTheirRangeEvenly) {
  constexpr std::int32_t kCount = 12000;
  const LoadPlan plan =
      plan_load(resolved({.requests = kCount, .prompt = {.least = 5, .most = 10}, .output = {.least = 1, .most = 2}}));
  std::vector<std::int32_t> prompts(11);
  std::int32_t ones = 0;
  std::int32_t both_short = 0;
  for (const PlannedRequest& request : plan.requests) {
    ASSERT_GE(request.prompt, 5);
    ASSERT_LE(request.prompt, 10);
    ASSERT_GE(request.output, 1);
    ASSERT_LE(request.output, 2);
    ++prompts[static_cast<std::size_t>(request.prompt)];
    ones += request.output == 1 ? 1 : 0;
    both_short += request.output == 1 && request.prompt <= 7 ? 1 : 0;
  }
  for (std::size_t length = 5; length <= 10; ++length) EXPECT_NEAR(prompts[length], kCount / 6, 220) << length;
  EXPECT_NEAR(ones, kCount / 2, 300);
  EXPECT_NEAR(both_short, kCount / 4, 300);  // the two lengths know nothing of each other
}

TEST(LoadPlan, TheSeedDecidesAll) {
  LoadSettings settings = resolved({.rate = 3.0, .prompt = {.least = 1, .most = 1000}, .seed = 7});
  const LoadPlan plan = plan_load(settings);
  const LoadPlan again = plan_load(settings);
  settings.seed = 8;
  const LoadPlan other = plan_load(settings);
  std::size_t same = 0;
  for (std::size_t i = 0; i < plan.requests.size(); ++i) {
    EXPECT_EQ(plan.requests[i].arrival, again.requests[i].arrival);
    EXPECT_EQ(plan.requests[i].prompt, again.requests[i].prompt);
    same += plan.requests[i].prompt == other.requests[i].prompt ? 1u : 0u;
  }
  EXPECT_LT(same, 5u);
  EXPECT_NE(load_prompt(settings, other, 0, 1000), load_prompt({.seed = 7}, other, 0, 1000));
}

TEST(LoadPlan, TheLongPromptComesOnTop) {
  const LoadSettings settings = resolved({.clients = 4, .output = {.least = 2, .most = 9}, .long_prompt = 3000});
  const LoadPlan plan = plan_load(settings);
  EXPECT_EQ(plan.ordinary, 16u);
  ASSERT_EQ(plan.requests.size(), 17u);
  EXPECT_EQ(plan.requests.back().prompt, 3000);
  EXPECT_EQ(plan.requests.back().output, 9);
  EXPECT_EQ(plan.long_after, 4u);
  EXPECT_EQ(longest_text(settings), 3009);
  EXPECT_EQ(longest_ordinary_text(settings), 137);
}

TEST(LoadPrompt, SharesItsPrefixAndNothingElse) {
  const LoadSettings settings =
      resolved({.prompt = {.least = 40, .most = 60}, .shared_prefix = 24, .long_prompt = 100});
  const LoadPlan plan = plan_load(settings);
  const auto first = load_prompt(settings, plan, 0, 50000);
  std::set<TokenId> next;
  for (std::size_t i = 0; i < plan.ordinary; ++i) {
    const auto prompt = load_prompt(settings, plan, i, 50000);
    ASSERT_EQ(prompt.size(), static_cast<std::size_t>(plan.requests[i].prompt));
    EXPECT_TRUE(std::equal(prompt.begin(), prompt.begin() + 24, first.begin()));
    next.insert(prompt[24]);
  }
  EXPECT_GE(next.size(), plan.ordinary - 1);
  const auto its_own = load_prompt(settings, plan, plan.ordinary, 50000);
  EXPECT_EQ(its_own.size(), 100u);
  EXPECT_NE(its_own[0], first[0]);
}

TEST(LoadPrompt, IdsAreInTheVocabularyAndFillIt) {
  const LoadSettings settings = resolved({.prompt = {.least = 500, .most = 500}});
  const LoadPlan plan = plan_load(settings);
  const auto prompt = load_prompt(settings, plan, 3, 7);
  const std::set<TokenId> seen(prompt.begin(), prompt.end());
  EXPECT_EQ(seen.size(), 7u);
  EXPECT_EQ(*seen.begin(), 0);
  EXPECT_EQ(*seen.rbegin(), 6);
}

}  // namespace
}  // namespace quarrel
