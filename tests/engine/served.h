// A model behind an engine, the ways tests want it, and requests of all sorts to it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "backend/create.h"
#include "engine/answers.h"
#include "support/late_device.h"

namespace quarrel::test {

struct Setting {
  std::int32_t sequences = 24;
  std::int64_t cache_tokens = 0;
  std::int32_t chunk = 0;
  bool prefix_cache = true;
  std::int32_t steps_in_flight = 1;
  std::chrono::microseconds deadline_check = EngineOptions{}.deadline_check;
  bool late = false;          // on a device that answers late
  LateOptions lateness = {};  // and how
  const char* backend = "cpu";
  bool deterministic = false;  // asked of the backend
};

class Served {
 public:
  Served(const std::filesystem::path& model, std::int32_t context, std::int32_t batch_rows, const Setting& setting)
      : device_(setting.late ? make_late_device({.backend = "cpu", .threads = 2}, setting.lateness)
                             : make_device({.backend = setting.backend, .threads = 2})),
        engine_(std::make_unique<Executor>(GgufFile::open(model), *device_,
                                           ExecutorOptions{.context = context,
                                                           .sequences = setting.sequences,
                                                           .cache_tokens = setting.cache_tokens,
                                                           .snapshots = 16,
                                                           .batch_rows = batch_rows,
                                                           .deterministic = setting.deterministic}),
                {.prefix_cache = setting.prefix_cache,
                 .chunk = setting.chunk,
                 .steps_in_flight = setting.steps_in_flight,
                 .deadline_check = setting.deadline_check}) {}
  Engine& engine() { return engine_; }
  std::int32_t vocabulary() const { return engine_.executor().spec().vocabulary; }

 private:
  std::unique_ptr<Device> device_;
  Engine engine_;
};

// Requests of many lengths, some sharing a beginning, greedy and drawn, with penalties.
inline std::vector<EngineRequest> many_requests(std::int32_t vocabulary, std::size_t count) {
  const std::vector<TokenId> shared = random_tokens(70, vocabulary, 1);
  std::vector<EngineRequest> requests;
  for (std::size_t i = 0; i < count; ++i) {
    EngineRequest& request = requests.emplace_back();
    if (i % 2 == 0) request.prompt = shared;
    const std::vector<TokenId> own = random_tokens(3 + 7 * i % 60, vocabulary, static_cast<std::uint32_t>(100 + i));
    request.prompt.insert(request.prompt.end(), own.begin(), own.end());
    request.max_tokens = static_cast<std::int32_t>(4 + i % 13 * 6);
    request.sampling.seed = i;
    if (i % 3 == 1) request.sampling.temperature = 0.8f;
    if (i % 5 == 2) request.sampling.repeat_penalty = 1.2f;
    request.prompt_outputs = i % 7 == 3 ? PromptOutputs::scores : PromptOutputs::none;
    request.top = i % 4 == 0 ? 5 : 0;
  }
  return requests;
}

using MakeRequests = std::vector<EngineRequest> (*)(std::int32_t vocabulary);

// Every request alone, then all of them together under each setting: the same bits, nothing left behind. Where blocks
// are scarce somebody must have been preempted, and one setting must have found something in the cache.
inline void expect_a_crowd_changes_nothing(
    const std::filesystem::path& model, std::int32_t context, std::int32_t batch_rows,
    const std::vector<Setting>& settings,
    MakeRequests make = [](std::int32_t vocabulary) { return many_requests(vocabulary, 64); }) {
  std::vector<Answer> alone;
  std::vector<EngineRequest> requests;
  {
    Served served(model, context, batch_rows,
                  {.sequences = 1,
                   .prefix_cache = false,
                   .backend = settings.front().backend,
                   .deterministic = settings.front().deterministic});
    requests = make(served.vocabulary());
    alone.reserve(requests.size());
    for (const EngineRequest& request : requests) alone.push_back(ask(served.engine(), request));
  }
  for (std::size_t i = 0; i < alone.size(); ++i) {
    ASSERT_EQ(alone[i].endings, 1);
    ASSERT_EQ(alone[i].reason, FinishReason::length);
    ASSERT_EQ(std::ssize(alone[i].tokens), requests[i].max_tokens);
    if (requests[i].prompt_outputs == PromptOutputs::scores) {
      ASSERT_EQ(alone[i].prompt_logprobs.size(), requests[i].prompt.size() - 1);
    }
  }
  std::uint64_t preemptions = 0;
  std::uint64_t hits = 0;
  for (const Setting& setting : settings) {
    SCOPED_TRACE(testing::Message() << setting.sequences << " sequences, chunks of " << setting.chunk << ", "
                                    << setting.steps_in_flight << " steps in flight, cache " << setting.prefix_cache
                                    << " of " << setting.cache_tokens);
    Served served(model, context, batch_rows, setting);
    const bool scarce = setting.cache_tokens > 0;
    const std::vector<Answer> together =
        scarce ? ask_in_two_waves(served.engine(), requests) : ask_together(served.engine(), requests);
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
  if (std::ranges::any_of(settings, [](const Setting& setting) { return setting.cache_tokens > 0; })) {
    EXPECT_GT(preemptions, 0u);
  }
  EXPECT_GT(hits, 0u);
}

// A conversation whose turns begin with all that was said: with and without what is cached of it.
inline void expect_turns_to_share(const std::filesystem::path& model, std::int32_t context, Setting setting = {}) {
  setting.sequences = 2;
  Served cached(model, context, 128, setting);
  setting.prefix_cache = false;
  Served fresh(model, context, 128, setting);
  // From the second turn on the cache has a block at least.
  const std::int32_t block = cached.engine().executor().backend().block_tokens();
  std::vector<TokenId> text = random_tokens(static_cast<std::size_t>(block) + 17, cached.vocabulary(), 3);
  for (std::uint32_t turn = 0; turn < 10; ++turn) {
    EngineRequest request = text_request(text, 6);
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

}  // namespace quarrel::test
