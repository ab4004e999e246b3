// Models exchanged for others while they are used: beside the old one, or in its place.
#include <gtest/gtest.h>

#include <fstream>

#include "session/registry_fixture.h"

namespace quarrel::test {
namespace {

class RegistryExchangeTest : public RegistryTest {
 protected:
  // The exchange waits until the old model's leases have ended, and so does who asks for the model from now on.
  static void wait_until_blocked(const ModelRegistry& models) {
    while (models.list().size() < 2) std::this_thread::yield();
  }
  // Clients ask without end while the model is exchanged again and again.
  void swap_under_load(ModelRegistry& models);
};

TEST_F(RegistryExchangeTest, AnExchangeDropsNoRequest) {
  const auto models = registry();
  Lease old = models->acquire_and_wait("llama");
  const Answer before = ask(old->engine(), request());
  const Engine::Submission running = old->engine().submit(text_request({1, 2, 3, 4, 5}, 80));
  models->exchange_and_wait("llama", file("qwen3"));
  const Lease now = models->acquire_and_wait("llama");
  EXPECT_EQ(now->path(), file("qwen3"));
  EXPECT_NE(now, old);
  EXPECT_EQ(read_answers(*running.stream).front().tokens.size(), 80u);
  EXPECT_EQ(models->bytes_used(), bytes_of("llama") + bytes_of("qwen3"));
  old.reset();
  wait_for(Kind::unloaded);
  EXPECT_EQ(models->bytes_used(), bytes_of("qwen3"));
  EXPECT_NE(ask(now->engine(), request()).tokens, before.tokens);
}

TEST_F(RegistryExchangeTest, TheOldOneServesUntilTheNewOneIsReady) {
  const auto models = registry();
  models->acquire_and_wait("llama");
  Gate gate;
  hold(gate, Kind::loading, "llama");
  Outcome exchanged;
  models->exchange("llama", file("qwen3"), exchanged.exchanged());
  gate.wait_until_reached();
  EXPECT_EQ(models->acquire_and_wait("llama")->path(), file("llama"));
  // Nor does it expire meanwhile.
  advance(*models, std::chrono::hours(1));
  settle(*models);
  EXPECT_EQ(models->acquire_and_wait("llama")->path(), file("llama"));
  gate.open();
  EXPECT_EQ(exchanged.wait().error(), std::nullopt);
  EXPECT_EQ(models->acquire_and_wait("llama")->path(), file("qwen3"));
}

TEST_F(RegistryExchangeTest, OneThatFailsLeavesTheOldOne) {
  const auto models = registry();
  const Lease old = models->acquire_and_wait("llama");
  std::ofstream(file("broken")) << "no model at all";
  EXPECT_EQ(kind_of([&] { models->exchange_and_wait("llama", file("broken")); }), ErrorKind::bad_file);
  EXPECT_EQ(kind_of([&] { models->exchange_and_wait("llama", {}); }), ErrorKind::not_found);
  EXPECT_EQ(kind_of([&] { models->exchange_and_wait("llama", write_mute()); }), ErrorKind::bad_file);
  EXPECT_EQ(models->acquire_and_wait("llama"), old);
  EXPECT_EQ(ask(old->engine(), request()).tokens.size(), 8u);
  EXPECT_EQ(models->bytes_used(), bytes_of("llama"));
}

TEST_F(RegistryExchangeTest, ARenewedOneIsWhatItsNameStandsForNow) {
  const auto models = registry();
  Lease old = models->acquire_and_wait("llama");
  const std::vector<TokenId> before = ask(old->engine(), request()).tokens;
  const Engine::Submission running = old->engine().submit(text_request({1, 2, 3, 4, 5}, 80));
  std::filesystem::rename(file("qwen3"), file("llama"));
  Outcome renewed;
  models->renew("llama", renewed.exchanged());
  EXPECT_EQ(renewed.wait().error(), std::nullopt);
  const Lease now = models->acquire_and_wait("llama");
  EXPECT_NE(now, old);
  EXPECT_EQ(now->path(), file("llama"));
  EXPECT_NE(ask(now->engine(), request()).tokens, before);
  EXPECT_EQ(read_answers(*running.stream).front().tokens.size(), 80u);

  std::ofstream(file("llama")) << "no model at all";
  Outcome failed;
  models->renew("llama", failed.exchanged());
  EXPECT_EQ(failed.wait().error(), ErrorKind::bad_file);
  EXPECT_EQ(models->acquire_and_wait("llama"), now);
}

// The old model is nobody's but those who hold it; their requests end with everybody else's.
TEST_F(RegistryExchangeTest, TheOldOnesRequestsAreToldOfTheEnd) {
  const auto models = registry();
  const Lease old = models->acquire_and_wait("llama");
  old->engine().pause();
  const Engine::Submission running = old->engine().submit(request());
  models->exchange_and_wait("llama", file("qwen3"));
  settle(*models);
  models->end_requests("it is late");
  ASSERT_EQ(old->engine().submit(request()).result.status, SubmitStatus::draining);
  std::string why;
  while (const auto event = running.stream->next()) why = event->error;
  EXPECT_EQ(why, "it is late");
}

TEST_F(RegistryExchangeTest, ACacheIsClearedOfAModelThatIsThere) {
  const auto models = registry();
  EXPECT_FALSE(models->clear_cache("llama"));
  const Lease model = models->acquire_and_wait("llama");
  const EngineRequest long_prompt = text_request(std::vector<TokenId>(64, 5), 1);
  ask(model->engine(), long_prompt);
  ask(model->engine(), long_prompt);
  const std::uint64_t hits = model->engine().counters().scheduler.cache_hit_tokens;
  EXPECT_GT(hits, 0u);
  EXPECT_TRUE(models->clear_cache("llama"));
  ask(model->engine(), long_prompt);
  EXPECT_EQ(model->engine().counters().scheduler.cache_hit_tokens, hits);
}

TEST_F(RegistryExchangeTest, ANameThatIsNotLoadedIsRemembered) {
  const auto models = registry();
  models->exchange_and_wait("llama", file("qwen3"));
  EXPECT_EQ(count(Kind::loading), 0);
  EXPECT_TRUE(models->list().empty());
  EXPECT_EQ(models->acquire_and_wait("llama")->path(), file("qwen3"));
  EXPECT_TRUE(models->unload_and_wait("llama"));
  EXPECT_EQ(models->acquire_and_wait("llama")->path(), file("qwen3"));
}

TEST_F(RegistryExchangeTest, SeveralComeInTheirOrder) {
  const auto models = registry();
  Gate gate;
  hold(gate, Kind::loading, "llama");
  Outcome acquired, first, second;
  models->acquire("llama", acquired.acquired());
  gate.wait_until_reached();
  models->exchange("llama", file("qwen3"), first.exchanged());
  models->exchange("llama", file("granite"), second.exchanged());
  gate.open();
  EXPECT_EQ(acquired.wait().take()->path(), file("llama"));
  EXPECT_EQ(first.wait().error(), std::nullopt);
  EXPECT_EQ(second.wait().error(), std::nullopt);
  EXPECT_EQ(models->acquire_and_wait("llama")->path(), file("granite"));
  EXPECT_EQ(count(Kind::ready), 3);
}

TEST_F(RegistryExchangeTest, UnusedModelsGoForIt) {
  const auto models = registry(2 * std::max(room_for_one(), bytes_of("granite")));
  const Lease old = models->acquire_and_wait("llama");
  models->acquire_and_wait("granite");
  models->exchange_and_wait("llama", file("qwen3"));
  EXPECT_EQ(models->acquire_and_wait("llama")->path(), file("qwen3"));
  EXPECT_EQ(names(*models), (Names{"llama", "llama"}));
}

TEST_F(RegistryExchangeTest, WithoutRoomForBothTheQueueWaits) {
  const auto models = registry(room_for_one());
  Lease old = models->acquire_and_wait("llama");
  Outcome exchanged, waiting;
  models->exchange("llama", file("qwen3"), exchanged.exchanged());
  wait_until_blocked(*models);
  models->acquire("llama", waiting.acquired());
  // Another exchange that comes to nothing does not change that.
  Outcome other;
  models->exchange("llama", file("granite"), other.exchanged()).cancel();
  EXPECT_EQ(other.wait().error(), ErrorKind::cancelled);
  settle(*models);
  EXPECT_FALSE(waiting.done());
  EXPECT_EQ(ask(old->engine(), request()).tokens.size(), 8u);
  old.reset();
  EXPECT_EQ(exchanged.wait().error(), std::nullopt);
  const Lease next = waiting.wait().take();
  EXPECT_EQ(next->path(), file("qwen3"));
  EXPECT_EQ(ask(next->engine(), request()).tokens.size(), 8u);
}

TEST_F(RegistryExchangeTest, ButNotForEver) {
  const auto models = registry(room_for_one());
  const Lease old = models->acquire_and_wait("llama");
  Outcome exchanged, waiting;
  models->exchange("llama", file("qwen3"), exchanged.exchanged());
  wait_until_blocked(*models);
  models->acquire("llama", waiting.acquired());
  run_out_of_patience(*models, exchanged);
  EXPECT_EQ(exchanged.error(), ErrorKind::out_of_memory);
  EXPECT_EQ(waiting.wait().take(), old);
  EXPECT_EQ(models->acquire_and_wait("llama"), old);
}

TEST_F(RegistryExchangeTest, InItsPlaceOneThatFailsBringsTheOldOneBack) {
  const auto models = registry(bytes_of("llama"));
  models->acquire_and_wait("llama", {.keep_alive = std::chrono::minutes(3)});
  Outcome waiting;
  Gate gate;
  hold(gate, Kind::loading, "llama");
  Outcome exchanged;
  models->exchange("llama", write_mute(), exchanged.exchanged());
  gate.wait_until_reached();
  models->acquire("llama", waiting.acquired());
  gate.open();
  EXPECT_EQ(exchanged.wait().error(), ErrorKind::bad_file);
  EXPECT_NE(exchanged.message().find("not finite"), std::string::npos) << exchanged.message();
  Lease back = waiting.wait().take();
  EXPECT_EQ(back->path(), file("llama"));
  EXPECT_EQ(ask(back->engine(), request()).tokens.size(), 8u);
  back.reset();
  EXPECT_EQ(models->list().at(0).expires, now() + std::chrono::minutes(3));
}

TEST_F(RegistryExchangeTest, AndIfThatFailsTooWhoWaitsIsTold) {
  const auto models = registry(bytes_of("llama"));
  models->acquire_and_wait("llama");
  const std::filesystem::path mute = write_mute();
  Gate gate;
  hold(gate, Kind::loading, "llama");
  Outcome exchanged, waiting;
  models->exchange("llama", mute, exchanged.exchanged());
  gate.wait_until_reached();
  models->acquire("llama", waiting.acquired());
  std::filesystem::remove(file("llama"));
  gate.open();
  EXPECT_EQ(exchanged.wait().error(), ErrorKind::bad_file);
  EXPECT_EQ(waiting.wait().error(), ErrorKind::not_found);
  EXPECT_TRUE(models->list().empty());
  EXPECT_EQ(models->bytes_used(), 0u);
}

TEST_F(RegistryExchangeTest, ACancelledOneChangesNothing) {
  for (const std::uint64_t budget : {std::uint64_t{0}, room_for_one()}) {
    const auto models = registry(budget);
    models->acquire_and_wait("llama");
    Gate gate;
    hold(gate, Kind::loading, "llama");
    Outcome exchanged;
    const ModelRegistry::Ticket ticket = models->exchange("llama", file("qwen3"), exchanged.exchanged());
    gate.wait_until_reached();
    ticket.cancel();
    gate.open();
    EXPECT_EQ(exchanged.wait().error(), ErrorKind::cancelled);
    EXPECT_EQ(models->acquire_and_wait("llama")->path(), file("llama"));
    ticket.cancel();  // it is over
    EXPECT_EQ(exchanged.calls(), 1);
    set_on_event({});
  }
}

TEST_F(RegistryExchangeTest, UnloadingEndsIt) {
  for (const std::uint64_t budget : {std::uint64_t{0}, room_for_one()}) {
    const auto models = registry(budget);
    models->acquire_and_wait("llama");
    Gate gate;
    hold(gate, Kind::loading, "llama");
    Outcome exchanged, unloaded;
    models->exchange("llama", file("qwen3"), exchanged.exchanged());
    gate.wait_until_reached();
    models->unload("llama", unloaded.unloaded());
    gate.open();
    EXPECT_EQ(exchanged.wait().error(), ErrorKind::cancelled);
    unloaded.wait();
    settle(*models);
    EXPECT_TRUE(models->list().empty());
    set_on_event({});
    EXPECT_EQ(models->acquire_and_wait("llama")->path(), file("llama"));
  }
}

void RegistryExchangeTest::swap_under_load(ModelRegistry& models) {
  const auto expected = [&](const std::string& name) {
    const auto model = LoadedModel::load(file(name), device_, load_options(), log_);
    return ask(model->engine(), request());
  };
  const Answer llama = expected("llama"), qwen3 = expected("qwen3");
  ASSERT_FALSE(llama == qwen3);
  std::atomic<bool> over = false;
  std::atomic<int> answered = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < 6; ++i) {
    clients.emplace_back([&] {
      while (!over) {
        const Lease lease = models.acquire_and_wait("llama");
        const Answer answer = ask(lease->engine(), request());
        EXPECT_EQ(answer.endings, 1) << answer.error;
        EXPECT_EQ(answer, lease->path() == file("llama") ? llama : qwen3) << answer.error;
        ++answered;
      }
    });
  }
  for (int turn = 0; turn < 6; ++turn) {
    const int before = answered;
    while (answered < before + 6) std::this_thread::yield();
    models.exchange_and_wait("llama", file(turn % 2 == 0 ? "qwen3" : "llama"));
  }
  over = true;
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(count(Kind::ready), 7);
  wait_for(Kind::unloaded, 6);
  EXPECT_EQ(names(models), Names{"llama"});
}

TEST_F(RegistryExchangeTest, ManyStreamsLoseNothing) { swap_under_load(*registry()); }
TEST_F(RegistryExchangeTest, NorWithoutRoomForBoth) { swap_under_load(*registry(room_for_one())); }

}  // namespace
}  // namespace quarrel::test
