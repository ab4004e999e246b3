// Branches of one request, of which one ends before the others: by a stop string, which its text alone can tell, or
// because nobody reads on. It has no row more, and no bit of the others changes.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <future>

#include "base/log.h"
#include "engine/served.h"
#include "support/temp_dir.h"
#include "support/toy_model.h"
#include "text/text_stream.h"

namespace quarrel::test {
namespace {

struct Reported {
  std::vector<Answer> answers = {};
  std::uint64_t generated_rows = 0;
};

// A row for each token but the first, which the prompt's last row gives.
std::uint64_t rows_for(const std::vector<Answer>& answers) {
  std::uint64_t rows = 0;
  for (const Answer& answer : answers) rows += answer.tokens.empty() ? 0 : answer.tokens.size() - 1;
  return rows;
}

// A branch is cancelled, for FinishReason::stop, with the token for which `ends` says so.
using Ends = std::function<bool(std::int32_t branch, TokenId token)>;
Reported ask_until(Engine& engine, const EngineRequest& request, const Ends& ends) {
  Reported reported{.answers = std::vector<Answer>(static_cast<std::size_t>(request.branches))};
  const std::uint64_t before = engine.counters().scheduler.generated_rows;
  // The sink keeps it, since the engine's thread may still be at it when this one goes on.
  const auto done = std::make_shared<std::promise<void>>();
  std::int32_t open = request.branches;
  // The engine's thread calls it between two steps, so that the next one is planned without the branch.
  const SubmitResult result =
      engine.submit(request, calling([&, done](const TokenEvent& event) {
                      Answer& answer = reported.answers.at(static_cast<std::size_t>(event.branch));
                      EXPECT_EQ(answer.endings, 0);
                      if (event.kind == TokenEvent::Kind::token) {
                        answer.tokens.push_back(event.sample.id);
                        answer.logprobs.push_back(event.sample.logprob);
                        if (ends(event.branch, event.sample.id)) {
                          // It may have come to its own end with this token.
                          const bool last = std::ssize(answer.tokens) == request.max_tokens;
                          EXPECT_EQ(engine.cancel_branch(event.request, event.branch, FinishReason::stop), !last);
                          EXPECT_FALSE(engine.cancel_branch(event.request, event.branch));
                        }
                      }
                      if (event.kind != TokenEvent::Kind::finished) return;
                      answer.reason = event.reason;
                      ++answer.endings;
                      if (--open == 0) done->set_value();
                    }));
  EXPECT_EQ(result.status, SubmitStatus::accepted);
  if (result.status == SubmitStatus::accepted) done->get_future().wait();
  reported.generated_rows = engine.counters().scheduler.generated_rows - before;
  return reported;
}

Reported ask_whole(Engine& engine, const EngineRequest& request) {
  return ask_until(engine, request, [](std::int32_t, TokenId) { return false; });
}

// What `reported` has of the branch is the beginning of what `whole` has.
void expect_beginning(const Answer& reported, const Answer& whole) {
  ASSERT_LE(reported.tokens.size(), whole.tokens.size());
  EXPECT_TRUE(std::equal(reported.tokens.begin(), reported.tokens.end(), whole.tokens.begin()));
  EXPECT_TRUE(std::equal(reported.logprobs.begin(), reported.logprobs.end(), whole.logprobs.begin()));
}

std::string text_of(const Tokenizer& tokenizer, const std::vector<TokenId>& tokens) {
  TextStream stream(tokenizer, std::vector<std::string>{}, true);
  std::string text;
  for (const TokenId token : tokens) text += stream.push(token);
  return text;
}

// Three plain letters of one text that the others do not have, from its middle.
std::string stop_of(const std::vector<std::string>& texts, std::size_t whose) {
  const std::string& own = texts[whose];
  for (std::size_t begin = own.size() / 4; begin + 3 < own.size(); ++begin) {
    const std::string part = own.substr(begin, 3);
    const bool plain = std::ranges::all_of(part, [](char c) { return static_cast<unsigned char>(c) < 0x80u; });
    const auto holders = std::ranges::count_if(texts, [&](const auto& text) { return text.find(part) != text.npos; });
    if (plain && holders == 1) return part;
  }
  return "";
}

TEST(EngineBranches, AStopStringEndsOneAndChangesNoBitOfTheOthers) {
  const TempDir folder;
  const auto model = write_toy_chat(folder.path(), {.context = 256});
  MemoryLog log;
  const auto tokenizer = Tokenizer::load(GgufFile::open(model), log);
  Served served(model, 256, 64, {.sequences = 4});
  EngineRequest request = text_request(tokenizer->encode("Hello world, what is", {}), 60, 4);
  request.sampling.temperature = 1.2f;
  request.sampling.seed = 3;
  const Reported whole = ask_whole(served.engine(), request);
  EXPECT_EQ(whole.generated_rows, rows_for(whole.answers));
  std::vector<std::string> texts;
  texts.reserve(whole.answers.size());
  for (const Answer& answer : whole.answers) texts.push_back(text_of(*tokenizer, answer.tokens));
  for (std::size_t stopped = 0; stopped < 4; ++stopped) {
    SCOPED_TRACE(stopped);
    const std::string stop = stop_of(texts, stopped);
    ASSERT_FALSE(stop.empty());
    std::vector<TextStream> streams(4, TextStream(*tokenizer, {stop}, true));
    const Reported reported = ask_until(served.engine(), request, [&](std::int32_t branch, TokenId token) {
      TextStream& stream = streams[static_cast<std::size_t>(branch)];
      stream.push(token);
      return stream.stopped();
    });
    for (std::size_t branch = 0; branch < 4; ++branch) {
      if (branch != stopped) {
        EXPECT_EQ(reported.answers[branch], whole.answers[branch]) << branch;
      }
    }
    EXPECT_EQ(reported.answers[stopped].reason, FinishReason::stop);
    EXPECT_LT(reported.answers[stopped].tokens.size(), 60u);
    expect_beginning(reported.answers[stopped], whole.answers[stopped]);
    EXPECT_EQ(reported.generated_rows, rows_for(reported.answers));
    EXPECT_LT(reported.generated_rows, whole.generated_rows);
  }
}

// Each at its own place, in every order, with blocks for all of them and for half of them.
class EngineBranchesEnd : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Toys, EngineBranchesEnd, testing::Values("llama", "granitehybrid"));

TEST_P(EngineBranchesEnd, WhereverTheyLikeInAnyOrder) {
  const TempDir folder;
  const auto model = write_toy(GetParam(), folder.path(), {.context = 128});
  std::vector<Answer> expected;
  for (const std::int64_t cache_tokens : {0, 80}) {
    Served served(model, 128, 64, {.sequences = 3, .cache_tokens = cache_tokens});
    EngineRequest request = text_request(random_tokens(21, served.vocabulary(), 4), 40, 3);
    request.sampling.temperature = 1.0f;
    request.sampling.repeat_penalty = 1.1f;
    const Reported whole = ask_whole(served.engine(), request);
    if (expected.empty()) expected = whole.answers;
    EXPECT_EQ(whole.answers, expected);
    std::vector<std::size_t> lengths = {1, 9, 40};
    do {
      std::vector<std::size_t> told_of(3);
      const Reported reported = ask_until(served.engine(), request, [&](std::int32_t branch, TokenId) {
        const auto place = static_cast<std::size_t>(branch);
        return ++told_of[place] == lengths[place];
      });
      for (std::size_t branch = 0; branch < 3; ++branch) {
        EXPECT_EQ(reported.answers[branch].tokens.size(), lengths[branch]);
        EXPECT_EQ(reported.answers[branch].reason, lengths[branch] < 40 ? FinishReason::stop : FinishReason::length);
        expect_beginning(reported.answers[branch], expected[branch]);
      }
      if (cache_tokens == 0) {
        EXPECT_EQ(reported.generated_rows, rows_for(reported.answers));
      }
    } while (std::ranges::next_permutation(lengths).found);
    const SchedulerCounters counters = served.engine().counters().scheduler;
    EXPECT_EQ(counters.preemptions > 0, cache_tokens > 0);
    EXPECT_EQ(counters.running + counters.returning, 0);
    for (const GroupCounters& group : counters.groups) EXPECT_EQ(group.used, 0);
  }
}

TEST(EngineBranches, OneThatWaitsIsEndedToo) {
  const TempDir folder;
  Served served(write_toy("llama", folder.path(), {.context = 96}), 96, 64, {.sequences = 3});
  Engine& engine = served.engine();
  EngineRequest request = text_request(random_tokens(9, served.vocabulary(), 2), 5, 3);
  request.prompt_outputs = PromptOutputs::scores;
  engine.pause();
  const Engine::Submission submission = engine.submit(request);
  ASSERT_NE(submission.stream, nullptr);
  EXPECT_FALSE(engine.cancel_branch(submission.result.id, 3));
  EXPECT_FALSE(engine.cancel_branch(submission.result.id, -1));
  EXPECT_FALSE(engine.cancel_branch(submission.result.id + 1, 0));
  EXPECT_TRUE(engine.cancel_branch(submission.result.id, 0));
  engine.resume();
  const std::vector<Answer> answers = read_answers(*submission.stream, 3);
  EXPECT_EQ(answers[0].reason, FinishReason::cancelled);
  EXPECT_TRUE(answers[0].tokens.empty() && answers[0].prompt_logprobs.empty());
  EXPECT_EQ(answers[1].prompt_logprobs.size(), 8u);  // it computes the prompt instead
  for (const Answer& answer : answers) EXPECT_EQ(answer.endings, 1);
  for (const std::size_t branch : {1u, 2u}) EXPECT_EQ(answers[branch].tokens.size(), 5u);
}

}  // namespace
}  // namespace quarrel::test
