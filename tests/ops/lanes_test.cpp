// Lanes: what sampling remembers from step to step lies in the backend, and what a lane begins with brings all of it
// back.
#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/chain_fixture.h"
#include "support/late_device.h"

namespace quarrel::test {
namespace {

constexpr std::int32_t kVocabulary = 40;

// A model of one product with random weights: what follows depends on the token, and is not certain.
struct DiceFixture {
  OpFixture fixture;
  Activation x, selected;
  Weight weight;
  Floats head = random_matrix(kVocabulary, 32, 31, 2.0);
  Floats table = random_matrix(kVocabulary, 32, 30, 1.0);

  explicit DiceFixture(const DeviceUnderTest& device) : fixture(device, {.activations = ActivationPrecision::f32}) {
    x = fixture.input(table);
    selected = fixture.activation(32, RowSet::outputs);
    weight = fixture.matrix(head);
  }
  Ticket submit(const StepPlan& plan) {
    return fixture.submit(plan, [this](Backend& b, const StepShape&) {
      b.select_rows({.in = x, .out = selected});
      b.head({.in = selected, .weight = weight});
      b.sample({.slice = 0, .vocabulary = kVocabulary});
    });
  }
  StepResults run(const StepPlan& plan) { return fixture.backend().wait(submit(plan)); }
};

std::vector<SamplingParams> all_params() {
  return {{.temperature = 1.0f, .seed = 1},
          {.temperature = 0.8f, .repeat_penalty = 1.3f, .penalty_window = 5, .seed = 2},
          {.temperature = 1.2f, .presence_penalty = 0.4f, .frequency_penalty = 0.2f, .seed = 3},
          {.temperature = 1.0f,
           .frequency_penalty = 0.3f,
           .penalty_scope = PenaltyScope::recent,
           .penalty_window = 9,
           .seed = 4},
          {.temperature = 1.0f, .mirostat = true, .mirostat_tau = 3.0f, .seed = 5}};
}

// What each lane's answer is by sample_row alone, from the logits that the step hands out.
class ByHand {
 public:
  ByHand(const SamplingParams& params, std::vector<TokenId> prompt)
      : params_(params), text_(std::move(prompt)), prompt_(text_.size()) {}
  const std::vector<TokenId>& text() const { return text_; }
  std::size_t prompt() const { return prompt_; }
  std::uint64_t draws() const { return text_.size() - prompt_; }
  float mu() const { return mu_; }

  SampleResult next(std::span<const float> logits) {
    SampleRequest request{.params = params_, .draw = draws(), .mirostat_mu = mu_};
    std::vector<TokenCount> seen(kVocabulary);
    for (TokenId id = 0; id < kVocabulary; ++id) seen[as_size(id)].id = id;
    for (std::size_t i = 0; i < text_.size(); ++i) {
      const auto behind = static_cast<std::int64_t>(text_.size() - i);
      if (params_.penalty_window < 0 || behind <= params_.penalty_window) ++seen[as_size(text_[i])].recent;
      if (i >= prompt_) ++seen[as_size(text_[i])].answered;
    }
    request.seen = seen;
    const SampleResult result = sample_row(logits, request);
    mu_ = result.mirostat_mu;
    text_.push_back(result.id);
    return result;
  }

 private:
  SamplingParams params_;
  std::vector<TokenId> text_;
  std::size_t prompt_;
  float mu_ = 0.0f;
};

TEST(Lanes, KeepWhatSamplingNeeds) {
  for_each_device([](const DeviceUnderTest& device) {
    DiceFixture dice(device);
    const std::vector<SamplingParams> params = all_params();
    std::vector<ByHand> expected;
    for (std::size_t i = 0; i < params.size(); ++i) {
      expected.emplace_back(params[i], std::vector<TokenId>{3, 7, 7, static_cast<TokenId>(i)});
    }
    for (std::int32_t step = 0; step < 60; ++step) {
      StepPlan plan;
      for (std::size_t i = 0; i < params.size(); ++i) {
        const auto lane = static_cast<std::int32_t>((i + as_size(step / 20)) % 8);
        plan.add(step, 1, {}, expected[i].text().back() - step);
        plan.outputs.push_back({.row = static_cast<std::int32_t>(i), .logits = true, .lane = lane});
        // Every so often a lane is another one, which begins with what there is of the text: a preemption.
        if (step % 20 != 0) continue;
        plan.lane_starts.push_back({.lane = lane,
                                    .sampling = &params[i],
                                    .draw = expected[i].draws(),
                                    .mirostat_mu = expected[i].mu(),
                                    .text = expected[i].text(),
                                    .prompt_tokens = static_cast<std::int32_t>(expected[i].prompt())});
      }
      plan.generated_rows = static_cast<std::int32_t>(params.size());
      const StepResults results = dice.run(plan);
      for (std::size_t i = 0; i < params.size(); ++i) {
        const SampleResult by_hand = expected[i].next(results.logits.subspan(i * kVocabulary, kVocabulary));
        ASSERT_EQ(results.samples[i].id, by_hand.id) << "step " << step << ", lane " << i;
        // Kernels may differ in the last bits of a double.
        ASSERT_NEAR(results.samples[i].mirostat_mu, by_hand.mirostat_mu, 1e-5);
      }
    }
  });
}

// A step that fails has sampled nothing: the same one again draws the same tokens.
TEST(Lanes, AStepThatFailsLeavesThem) {
  for_each_device([](const DeviceUnderTest& device) {
    const SamplingParams params{.temperature = 1.0f, .frequency_penalty = 0.5f, .seed = 8};
    const auto answer = [&](bool failing) {
      DiceFixture dice(device);
      std::vector<TokenId> tokens = {1};
      for (std::int32_t step = 0; step < 12; ++step) {
        StepPlan plan = StepPlan().add(step, 1, {}, tokens.back() - step);
        if (step == 0) plan.lane_starts = {{.lane = 0, .sampling = &params}};
        plan.outputs = {{.row = 0, .lane = 0}};
        if (failing && step % 3 == 1) {
          const Ticket ticket = [&] {
            try {
              return dice.fixture.submit(plan, [&](Backend& b, const StepShape&) {
                b.select_rows({.in = dice.x, .out = dice.selected});
                b.head({.in = dice.selected, .weight = dice.weight});
                b.sample({.slice = 0, .vocabulary = kVocabulary});
                fail(ErrorKind::internal, "on purpose");
              });
            } catch (const Error&) {
              return Ticket{0};
            }
          }();
          if (ticket != 0) {
            EXPECT_THROW(dice.fixture.backend().wait(ticket), Error);
          }
        }
        tokens.push_back(dice.run(plan).samples[0].id);
      }
      return tokens;
    };
    EXPECT_EQ(answer(true), answer(false));
  });
}

// Behind a step that fails nothing may go on: its tokens and its cache are not there.
TEST(Lanes, StepsBehindOneThatFailsFailToo) {
  Ticket bad = 0;
  const auto late = make_late_device({.backend = "reference", .threads = 1}, {.before_step = [&](Ticket ticket) {
                                       if (ticket == bad) fail(ErrorKind::out_of_memory, "on purpose");
                                     }});
  DiceFixture dice({.device = *late, .epsilon = 1e-6, .quantised_epsilon = 1e-6});
  const SamplingParams greedy;
  StepPlan plan = StepPlan().add(0, 1, {});
  plan.lane_starts = {{.lane = 0, .sampling = &greedy}};
  plan.outputs = {{.row = 0, .lane = 0}};
  const TokenId right = dice.run(plan).samples[0].id;
  bad = 2;
  const Ticket failing = dice.submit(plan);
  StepPlan behind = plan;
  behind.rows[0].token = ~0;
  const Ticket next = dice.submit(behind);
  Backend& backend = dice.fixture.backend();
  EXPECT_THROW(backend.wait(failing), Error);
  EXPECT_THROW(backend.wait(next), Error);
  EXPECT_THROW(dice.submit(behind), Error) << "there is no token to name";
  EXPECT_EQ(dice.run(plan).samples[0].id, right);
}

}  // namespace
}  // namespace quarrel::test
