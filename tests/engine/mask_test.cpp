// Masks: which tokens may come is asked between steps, off the engine's lock; a branch that is left with none ends
// alone, and nobody else notices.
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <stdexcept>

#include "engine/served.h"
#include "support/temp_dir.h"
#include "support/toy_model.h"

namespace quarrel::test {
namespace {

using Allow = std::function<void(std::span<const TokenId> answer, std::span<std::uint64_t> allowed)>;

class CallingMask final : public TokenMask {
 public:
  explicit CallingMask(Allow allow) : allow_(std::move(allow)) {}
  void allow(std::span<const TokenId> answer, std::span<std::uint64_t> allowed) override { allow_(answer, allowed); }

 private:
  Allow allow_;
};

void permit(std::span<std::uint64_t> allowed, TokenId token) {
  allowed[static_cast<std::size_t>(token) / 64] |= std::uint64_t{1} << (static_cast<std::size_t>(token) % 64);
}

void permit_all(std::span<std::uint64_t> allowed) { std::ranges::fill(allowed, ~std::uint64_t{0}); }

// One step at a time, and two in flight on a device that answers late.
class Mask : public testing::TestWithParam<std::int32_t> {
 protected:
  Mask()
      : served_(write_toy("llama", folder_.path(), {.context = 256}), 256, 64,
                {.sequences = 6, .steps_in_flight = GetParam(), .late = GetParam() == 2}) {}
  Engine& engine() { return served_.engine(); }
  EngineRequest request(std::int32_t tokens, std::int32_t branches = 1) const {
    EngineRequest made = text_request(random_tokens(20, served_.vocabulary(), 1), tokens, branches);
    made.sampling.temperature = 1.0f;
    return made;
  }
  std::vector<Answer> ask_all(EngineRequest asked) {
    const std::int32_t branches = asked.branches;
    const Engine::Submission submission = engine().submit(std::move(asked));
    return read_answers(*submission.stream, branches);
  }

  TempDir folder_;
  Served served_;
};
INSTANTIATE_TEST_SUITE_P(StepsInFlight, Mask, testing::Values(1, 2));

TEST_P(Mask, OnlyWhatIsAllowedComes) {
  std::vector<std::size_t> lengths;
  EngineRequest masked = request(12);
  masked.mask = [&](std::int32_t) {
    return std::make_unique<CallingMask>([&](std::span<const TokenId> answer, std::span<std::uint64_t> allowed) {
      lengths.push_back(answer.size());
      // It would wait for ever if the engine's lock were held.
      EXPECT_EQ(engine().counters().scheduler.running, 1);
      // What comes next depends on what came before.
      permit(allowed, answer.empty() ? 7 : answer.back() + 3);
      permit(allowed, answer.empty() ? 7 : answer.back() + 5);
    });
  };
  const Answer answer = ask_all(masked).front();
  ASSERT_EQ(answer.tokens.size(), 12u);
  EXPECT_EQ(answer.tokens[0], 7);
  for (std::size_t i = 1; i < answer.tokens.size(); ++i) {
    const TokenId step = answer.tokens[i] - answer.tokens[i - 1];
    EXPECT_TRUE(step == 3 || step == 5) << i;
  }
  ASSERT_EQ(lengths.size(), 12u);
  for (std::size_t i = 0; i < lengths.size(); ++i) EXPECT_EQ(lengths[i], i);
}

TEST_P(Mask, OneThatAllowsEverythingChangesNothing) {
  const std::vector<Answer> plain = ask_all(request(15, 3));
  EngineRequest masked = request(15, 3);
  masked.mask = [](std::int32_t) {
    return std::make_unique<CallingMask>([](auto, std::span<std::uint64_t> allowed) { permit_all(allowed); });
  };
  EXPECT_EQ(ask_all(masked), plain);
}

TEST_P(Mask, ABranchWithoutAnyTokenEndsAlone) {
  const std::vector<Answer> plain = ask_all(request(15, 3));
  EngineRequest masked = request(15, 3);
  masked.mask = [](std::int32_t branch) {
    return std::make_unique<CallingMask>([branch](std::span<const TokenId> answer, std::span<std::uint64_t> allowed) {
      if (branch != 1 || answer.size() < 4) permit_all(allowed);
    });
  };
  const std::vector<Answer> answers = ask_all(masked);
  EXPECT_EQ(answers[0], plain[0]);
  EXPECT_EQ(answers[2], plain[2]);
  EXPECT_EQ(answers[1].reason, FinishReason::no_token);
  EXPECT_EQ(answers[1].tokens, std::vector<TokenId>(plain[1].tokens.begin(), plain[1].tokens.begin() + 4));
}

TEST_P(Mask, OneThatThrowsFailsItsBranchAlone) {
  const std::vector<Answer> plain = ask_all(request(15, 3));
  EngineRequest masked = request(15, 3);
  masked.mask = [](std::int32_t branch) {
    return std::make_unique<CallingMask>([branch](std::span<const TokenId> answer, std::span<std::uint64_t> allowed) {
      if (branch == 2 && answer.size() == 3) throw std::runtime_error("the grammar has no such rule");
      permit_all(allowed);
    });
  };
  const std::vector<Answer> answers = ask_all(masked);
  EXPECT_EQ(answers[0], plain[0]);
  EXPECT_EQ(answers[1], plain[1]);
  EXPECT_EQ(answers[2].reason, FinishReason::failed);
  EXPECT_EQ(answers[2].error, "the grammar has no such rule");
  EXPECT_EQ(answers[2].tokens.size(), 3u);
}

// Whatever it throws.
TEST_P(Mask, OneThatThrowsNoExceptionFailsItsBranchToo) {
  EngineRequest masked = request(15);
  masked.mask = [](std::int32_t) {
    return std::make_unique<CallingMask>([](auto, std::span<std::uint64_t>) { throw 7; });
  };
  const Answer answer = ask_all(masked).front();
  EXPECT_EQ(answer.reason, FinishReason::failed);
  EXPECT_FALSE(answer.error.empty());
  EXPECT_EQ(ask_all(request(5)).front().tokens.size(), 5u);
}

// A bias that forbids every token is the caller's doing: no damaged file, and nobody else's end.
TEST_P(Mask, ABiasMayLeaveNoTokenEither) {
  EngineRequest biased = request(5, 2);
  for (TokenId token = 0; token < served_.vocabulary(); ++token) {
    biased.sampling.logit_bias.emplace_back(token, -std::numeric_limits<float>::infinity());
  }
  for (const Answer& answer : ask_all(biased)) {
    EXPECT_EQ(answer.reason, FinishReason::no_token);
    EXPECT_TRUE(answer.tokens.empty());
    EXPECT_EQ(answer.error, "");
  }
  EXPECT_EQ(ask_all(request(5)).front().tokens.size(), 5u);
}

// Those without a mask go on, two steps in flight or not, and get the same bits.
TEST_P(Mask, OthersDoNotWaitForIt) {
  std::vector<EngineRequest> requests;
  for (std::uint32_t i = 0; i < 4; ++i) {
    requests.push_back(text_request(random_tokens(9 + i, served_.vocabulary(), 10 + i), 30));
    requests.back().sampling.temperature = 0.8f;
    requests.back().sampling.repeat_penalty = 1.2f;
  }
  std::vector<Answer> alone;
  for (const EngineRequest& each : requests) alone.push_back(ask(engine(), each));
  std::atomic<int> asked{0};
  requests.push_back(request(25));
  requests.back().mask = [&](std::int32_t) {
    return std::make_unique<CallingMask>([&](auto, std::span<std::uint64_t> allowed) {
      ++asked;
      permit_all(allowed);
    });
  };
  const std::vector<Answer> together = ask_together(engine(), requests);
  for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_EQ(together[i], alone[i]) << i;
  EXPECT_EQ(together.back().tokens.size(), 25u);
  EXPECT_EQ(asked, 25);
}

}  // namespace
}  // namespace quarrel::test
