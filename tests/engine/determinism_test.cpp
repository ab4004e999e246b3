// The answer to a request is its own: the same bits alone and in a crowd, with and without the prefix cache, whatever
// the chunks, after preemptions, and in the tenth turn of a conversation.
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "engine/served.h"
#include "support/one_sequence.h"
#include "support/sanitized.h"
#include "support/temp_dir.h"
#include "support/toy_model.h"

namespace quarrel::test {
namespace {

constexpr std::int32_t kContext = 256;
constexpr std::int32_t kRows = 128;

// Dense, hybrid with experts, experts with a window and sinks.
constexpr std::array kToys = {"llama", "granitehybrid", "gpt-oss"};

class Toys : public testing::TestWithParam<const char*> {
 protected:
  std::filesystem::path model() const {
    return write_toy(GetParam(), folder_.path(), {.type = QuantType::q8_0, .context = kContext});
  }
  TempDir folder_;
};
INSTANTIATE_TEST_SUITE_P(All, Toys, testing::ValuesIn(kToys), [](const auto& toy) {
  std::string name = toy.param;
  std::erase(name, '-');
  return name;
});

TEST_P(Toys, ACrowdChangesNothing) {
  std::vector<Setting> crowds = {
      {.sequences = 64}, {.sequences = 8, .cache_tokens = 256}, {.sequences = 64, .steps_in_flight = 2, .late = true}};
  if (!kSanitized) {
    crowds.insert(crowds.end(), {{.sequences = 64, .prefix_cache = false},
                                 {.chunk = 32},
                                 {.sequences = 64, .steps_in_flight = 2},
                                 {.sequences = 8, .cache_tokens = 256, .steps_in_flight = 2, .late = true}});
  }
  expect_a_crowd_changes_nothing(model(), kContext, kRows, crowds);
}

TEST_P(Toys, TheSameAsOneSequenceAlone) {
  Served served(model(), kContext, kRows, {});
  const auto device = make_device({.backend = "cpu", .threads = 1});
  Executor executor(GgufFile::open(model()), *device, {.context = kContext, .batch_rows = 128});
  for (const float temperature : {0.0f, 1.0f}) {
    EngineRequest request = text_request(random_tokens(41, served.vocabulary(), 9), 20);
    request.sampling.temperature = temperature;
    request.sampling.seed = 5;
    request.sampling.presence_penalty = 0.5f;
    const LoneAnswer expected = answer_alone(executor, request.prompt, request.sampling, 20);
    const Answer answer = ask(served.engine(), request);
    EXPECT_EQ(answer.tokens, expected.tokens);
    EXPECT_EQ(answer.logprobs, expected.logprobs);
  }
}

TEST_P(Toys, TenTurnsWithACachedPrefix) { expect_turns_to_share(model(), kContext); }

TEST_P(Toys, BranchesForkOnePrompt) {
  Served served(model(), kContext, kRows, {});
  EngineRequest request = text_request(random_tokens(37, served.vocabulary(), 4), 12, 5);
  request.sampling.temperature = 1.5f;
  request.sampling.seed = 77;
  const Engine::Submission submission = served.engine().submit(request);
  ASSERT_NE(submission.stream, nullptr);
  const std::vector<Answer> branches = read_answers(*submission.stream, 5);
  EngineRequest single = request;
  single.branches = 1;
  EXPECT_EQ(branches[0], ask(served.engine(), single));
  for (const Answer& branch : branches) EXPECT_EQ(branch.endings, 1);
  EXPECT_NE(branches[1].tokens, branches[0].tokens);
  EXPECT_NE(branches[2].tokens, branches[1].tokens);
  single.sampling.seed = branch_seed(request.sampling.seed, 3);
  EXPECT_EQ(branches[3], ask(served.engine(), single));
}

}  // namespace
}  // namespace quarrel::test
