// A storm of requests from four threads, every one of them cancelled, at once or branch by branch: while it waits,
// while it runs, or just after its end.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdio>
#include <memory>
#include <random>
#include <thread>

#include "engine/served.h"
#include "support/temp_dir.h"
#include "support/toy_model.h"

namespace quarrel::test::storm {

inline constexpr std::size_t kClients = 4;
inline constexpr std::size_t kWindow = 24;  // of a client's requests that are not cancelled yet

enum Stage : int { waiting, running, ended };

// What a client and the engine know of a request.
struct Ticket {
  RequestId id = 0;
  std::atomic<int> stage = waiting;
  std::int32_t branches = 1;
  std::uint32_t finished = 0;  // a bit a branch; the engine's thread alone looks at it

  void reach(Stage next) {
    stage = next;
    stage.notify_all();
  }
  void wait_for(Stage wanted) const {
    for (int now = stage; now < wanted; now = stage) stage.wait(now);
  }
};

class Client {
 public:
  Client(Engine& engine, std::int32_t vocabulary, std::uint32_t seed)
      : engine_(engine), vocabulary_(vocabulary), random_(seed), shared_(random_tokens(17, vocabulary, 1)) {}

  // Cancels each request at once; for an engine that starts none.
  void change_its_mind(std::size_t requests) {
    for (std::size_t i = 0; i < requests; ++i) {
      submit(static_cast<std::uint32_t>(i));
      if (!open_.empty()) cancel(0, waiting);
    }
  }

  void run(std::size_t requests) {
    for (std::size_t i = 0; i < requests; ++i) {
      submit(static_cast<std::uint32_t>(i));
      while (open_.size() >= kWindow || (below(2) == 0 && !open_.empty())) cancel_one();
    }
    while (!open_.empty()) cancel_one();
  }

  std::array<std::atomic<std::size_t>, 3> cancelled_at = {};  // [stage]
  std::atomic<std::size_t> endings = 0;                       // of requests
  std::atomic<std::size_t> wrong = 0;                         // events after an end, and refusals

 private:
  std::size_t below(std::size_t limit) { return random_() % limit; }

  void submit(std::uint32_t seed) {
    EngineRequest request = text_request(random_tokens(1 + below(20), vocabulary_, seed),
                                         static_cast<std::int32_t>(1 + below(5)), below(8) == 0 ? 3 : 1);
    request.priority = below(4) == 0 ? Priority::interactive : Priority::normal;
    request.use_cache = below(8) != 0;
    if (below(2) == 0) request.prompt.insert(request.prompt.begin(), shared_.begin(), shared_.end());
    if (below(4) == 0) request.sampling.repeat_penalty = 1.1f;
    const bool rash = below(8) == 0;  // cancelled by its own sink as soon as it runs
    const auto ticket = std::make_shared<Ticket>();
    ticket->branches = request.branches;
    const SubmitResult result =
        engine_.submit(std::move(request), calling([this, ticket, rash](const TokenEvent& event) {
                         const std::uint32_t branch = 1u << static_cast<std::uint32_t>(event.branch);
                         if ((ticket->finished & branch) != 0) ++wrong;
                         if (event.kind == TokenEvent::Kind::started) {
                           ticket->reach(running);
                           if (rash) {
                             ++cancelled_at[running];
                             engine_.cancel(event.request);
                           }
                         }
                         if (event.kind != TokenEvent::Kind::finished) return;
                         ticket->finished |= branch;
                         if (std::popcount(ticket->finished) < ticket->branches) return;
                         ++endings;
                         ticket->reach(ended);
                       }));
    if (result.status != SubmitStatus::accepted) {
      ++wrong;
      ++endings;
      return;
    }
    ticket->id = result.id;
    open_.push_back(ticket);
  }

  // At once, or when it has come as far as chance will have it.
  void cancel_one() {
    const std::size_t place = below(open_.size());
    cancel(place, static_cast<Stage>(below(4) == 0 ? 1 + below(2) : 0));
  }

  void cancel(std::size_t place, Stage stage) {
    std::swap(open_[place], open_.back());
    const std::shared_ptr<Ticket> ticket = open_.back();
    open_.pop_back();
    ticket->wait_for(stage);
    ++cancelled_at[static_cast<std::size_t>(ticket->stage)];
    if (below(2) == 0) {
      engine_.cancel(ticket->id);
      return;
    }
    const auto first = static_cast<std::int32_t>(below(static_cast<std::size_t>(ticket->branches)));
    for (std::int32_t i = 0; i < ticket->branches; ++i) {
      engine_.cancel_branch(ticket->id, (first + i) % ticket->branches);
    }
  }

  Engine& engine_;
  const std::int32_t vocabulary_;
  std::mt19937 random_;
  const std::vector<TokenId> shared_;
  std::vector<std::shared_ptr<Ticket>> open_;
};

// Nothing of them may stay behind, and nobody after them may notice.
inline void expect_a_storm_to_pass(const char* toy, std::size_t each, const Setting& setting) {
  const TempDir folder;
  const auto model = write_toy(toy, folder.path(), {.layers = 1, .feed_forward = 64, .context = 96});
  Served served(model, 96, 64, setting);
  Engine& engine = served.engine();
  EngineRequest request = text_request(random_tokens(45, served.vocabulary(), 1), 20);
  request.sampling.temperature = 1.0f;
  const Answer before = ask(engine, request);
  ASSERT_EQ(before.tokens.size(), 20u);

  std::vector<std::unique_ptr<Client>> clients;
  clients.reserve(kClients);
  engine.pause();
  for (std::size_t i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<Client>(engine, served.vocabulary(), static_cast<std::uint32_t>(i)));
    clients.back()->change_its_mind(each / 10);
  }
  engine.resume();
  std::vector<std::thread> threads;
  threads.reserve(kClients);
  for (const auto& client : clients) threads.emplace_back([&client, each] { client->run(each - each / 10); });
  for (std::thread& thread : threads) thread.join();
  std::array<std::size_t, 3> cancelled_at = {};
  for (const auto& client : clients) {
    while (client->endings < each) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(client->wrong, 0u);
    for (std::size_t stage = 0; stage < 3; ++stage) cancelled_at[stage] += client->cancelled_at[stage];
  }
  std::printf("%s: cancelled %zu times of one that waited, %zu of one that ran, %zu of one that had ended\n", toy,
              cancelled_at[waiting], cancelled_at[running], cancelled_at[ended]);
  for (const std::size_t count : cancelled_at) EXPECT_GT(count, 0u);

  EXPECT_EQ(ask(engine, request), before);
  SchedulerCounters counters = engine.counters().scheduler;
  EXPECT_EQ(counters.accepted, kClients * each + 2);
  EXPECT_EQ(counters.finished, counters.accepted);
  EXPECT_EQ(counters.running + counters.waiting + counters.returning, 0);
  EXPECT_EQ(counters.waiting_tokens, 0);
  EXPECT_EQ(engine.counters().failed_steps, 0u);
  for (const GroupCounters& group : counters.groups) EXPECT_EQ(group.used, 0);
  engine.clear_cache();
  counters = engine.counters().scheduler;
  for (const GroupCounters& group : counters.groups) EXPECT_EQ(group.free, group.total);
  EXPECT_EQ(counters.slots_used, 0);
  EXPECT_EQ(ask(engine, request), before);
}

}  // namespace quarrel::test::storm
