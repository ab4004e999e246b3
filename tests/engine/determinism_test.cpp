// The answer to a request is its own: the same bits alone and in a crowd, with and without the prefix cache, whatever
// the chunks, after preemptions, and in the tenth turn of a conversation.
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "backend/create.h"
#include "engine/answers.h"
#include "engine/generate.h"
#include "support/temp_dir.h"
#include "support/toy_model.h"

namespace quarrel::test {
namespace {

constexpr std::int32_t kContext = 256;

// Dense, hybrid with experts, experts with a window and sinks.
constexpr std::array kToys = {"llama", "granitehybrid", "gpt-oss"};

struct Setting {
  std::int32_t sequences = 24;
  std::int64_t cache_tokens = 0;
  std::int32_t chunk = 0;
  bool prefix_cache = true;
};

class Served {
 public:
  Served(const std::string& toy, const Setting& setting)
      : device_(make_device({.backend = "cpu", .threads = 2})),
        executor_(GgufFile::open(write_toy(toy, folder_.path(), {.type = QuantType::q8_0, .context = kContext})),
                  *device_,
                  {.context = kContext,
                   .sequences = setting.sequences,
                   .cache_tokens = setting.cache_tokens,
                   .snapshots = 16,
                   .batch_rows = 128}),
        engine_(executor_, {.prefix_cache = setting.prefix_cache, .chunk = setting.chunk}) {}
  Engine& engine() { return engine_; }
  std::int32_t vocabulary() const { return executor_.spec().vocabulary; }

 private:
  TempDir folder_;
  std::unique_ptr<Device> device_;
  Executor executor_;
  Engine engine_;
};

// Requests of many lengths, some sharing a beginning, greedy and drawn, with penalties.
std::vector<GenerateRequest> many_requests(std::int32_t vocabulary, std::size_t count) {
  const std::vector<TokenId> shared = random_tokens(70, vocabulary, 1);
  std::vector<GenerateRequest> requests;
  for (std::size_t i = 0; i < count; ++i) {
    GenerateRequest& request = requests.emplace_back();
    if (i % 2 == 0) request.prompt = shared;
    const std::vector<TokenId> own = random_tokens(3 + 7 * i % 60, vocabulary, static_cast<std::uint32_t>(100 + i));
    request.prompt.insert(request.prompt.end(), own.begin(), own.end());
    request.max_tokens = static_cast<std::int32_t>(4 + i % 13 * 6);
    request.sampling.seed = i;
    if (i % 3 == 1) request.sampling.temperature = 0.8f;
    if (i % 5 == 2) request.sampling.repeat_penalty = 1.2f;
    request.score_prompt = i % 7 == 3;
    request.top = i % 4 == 0 ? 5 : 0;
  }
  return requests;
}

class Toys : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, Toys, testing::ValuesIn(kToys), [](const auto& toy) {
  std::string name = toy.param;
  std::erase(name, '-');
  return name;
});

TEST_P(Toys, ACrowdChangesNothing) {
  std::vector<Answer> alone;
  std::vector<GenerateRequest> requests;
  {
    Served served(GetParam(), {.sequences = 1, .prefix_cache = false});
    requests = many_requests(served.vocabulary(), 64);
    for (const GenerateRequest& request : requests) alone.push_back(ask(served.engine(), request));
  }
  for (std::size_t i = 0; i < alone.size(); ++i) {
    ASSERT_EQ(alone[i].endings, 1);
    ASSERT_EQ(alone[i].reason, EndReason::length);
    ASSERT_EQ(std::ssize(alone[i].tokens), requests[i].max_tokens);
    if (requests[i].score_prompt) {
      ASSERT_EQ(alone[i].prompt_logprobs.size(), requests[i].prompt.size() - 1);
    }
  }
  std::uint64_t preemptions = 0;
  std::uint64_t hits = 0;
  for (const Setting& setting : {Setting{.sequences = 64}, Setting{.sequences = 64, .prefix_cache = false},
                                 Setting{.chunk = 32}, Setting{.sequences = 8, .cache_tokens = 256}}) {
    SCOPED_TRACE(setting.sequences * 1000 + setting.chunk);
    Served served(GetParam(), setting);
    const std::vector<Answer> together = ask_together(served.engine(), requests);
    for (std::size_t i = 0; i < alone.size(); ++i) {
      EXPECT_EQ(together[i], alone[i]) << "request " << i;
      EXPECT_EQ(together[i].endings, 1);
    }
    const SchedulerCounters counters = served.engine().counters().scheduler;
    preemptions += counters.preemptions;
    hits += counters.cache_hit_tokens;
    if (!setting.prefix_cache) {
      EXPECT_EQ(counters.cache_hit_tokens, 0u);
    }
    EXPECT_EQ(counters.running, 0);
    for (const GroupCounters& group : counters.groups) EXPECT_EQ(group.used, 0);
  }
  EXPECT_GT(preemptions, 0u);
  EXPECT_GT(hits, 0u);
}

// What the command line's own loop writes.
TEST_P(Toys, TheSameAsOneSequenceAlone) {
  Served served(GetParam(), {});
  const TempDir folder;
  const auto device = make_device({.backend = "cpu", .threads = 1});
  Executor executor(
      GgufFile::open(write_toy(GetParam(), folder.path(), {.type = QuantType::q8_0, .context = kContext})), *device,
      {.context = kContext, .batch_rows = 128});
  for (const float temperature : {0.0f, 1.0f}) {
    GenerateRequest request{.prompt = random_tokens(41, served.vocabulary(), 9), .max_tokens = 20};
    request.sampling.temperature = temperature;
    request.sampling.seed = 5;
    request.sampling.presence_penalty = 0.5f;
    Sequence sequence = executor.make_sequence();
    std::vector<float> logprobs;
    const GenerateResult expected =
        generate(executor, sequence, {}, request.prompt, {.sampling = request.sampling, .max_tokens = 20},
                 [&](const SampleResult& sample) {
                   logprobs.push_back(sample.logprob);
                   return true;
                 });
    const Answer answer = ask(served.engine(), request);
    EXPECT_EQ(answer.tokens, expected.tokens);
    EXPECT_EQ(answer.logprobs, logprobs);
    executor.truncate(sequence, 0);
  }
}

TEST_P(Toys, TenTurnsWithACachedPrefix) {
  Served cached(GetParam(), {});
  Served fresh(GetParam(), {.prefix_cache = false});
  std::vector<TokenId> text = random_tokens(33, cached.vocabulary(), 3);
  for (std::uint32_t turn = 0; turn < 10; ++turn) {
    GenerateRequest request{.prompt = text, .max_tokens = 6};
    request.sampling.temperature = 0.7f;
    request.sampling.seed = turn;
    const Answer answer = ask(cached.engine(), request);
    ASSERT_EQ(answer, ask(fresh.engine(), request)) << "turn " << turn;
    if (turn > 0) {
      EXPECT_GT(answer.cached, 0) << "turn " << turn;
    }
    text.insert(text.end(), answer.tokens.begin(), answer.tokens.end());
    const std::vector<TokenId> question = random_tokens(9, cached.vocabulary(), 50 + turn);
    text.insert(text.end(), question.begin(), question.end());
  }
}

TEST_P(Toys, BranchesForkOnePrompt) {
  Served served(GetParam(), {});
  GenerateRequest request{.prompt = random_tokens(37, served.vocabulary(), 4), .max_tokens = 12, .branches = 5};
  request.sampling.temperature = 1.5f;
  request.sampling.seed = 77;
  const Engine::Submission submission = served.engine().submit(request);
  ASSERT_NE(submission.stream, nullptr);
  const std::vector<Answer> branches = read_answers(*submission.stream, 5);
  GenerateRequest single = request;
  single.branches = 1;
  EXPECT_EQ(branches[0], ask(served.engine(), single));
  for (const Answer& branch : branches) EXPECT_EQ(branch.endings, 1);
  EXPECT_NE(branches[1].tokens, branches[0].tokens);
  EXPECT_NE(branches[2].tokens, branches[1].tokens);
}

}  // namespace
}  // namespace quarrel::test
