// Who runs where: calls that do not wait, calls that are taken back, leases that end on an engine's own thread or after
// the registry, and its end in the middle of everything.
#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <future>

#include "session/registry_fixture.h"

namespace quarrel::test {
namespace {

using RegistryThreadsTest = RegistryTest;

TEST_F(RegistryThreadsTest, AModelThatIsThereComesAtOnceWhileAnotherIsLoaded) {
  const auto models = registry();
  models->acquire_and_wait("llama");
  const Gate gate;
  hold(gate, Kind::progress, "qwen3");
  Outcome slow, quick, later;
  models->acquire("qwen3", slow.acquired());
  gate.wait_until_reached();
  models->acquire("llama", quick.acquired());
  EXPECT_EQ(quick.calls(), 1);
  EXPECT_EQ(quick.thread(), std::this_thread::get_id());
  EXPECT_EQ(quick.take()->path(), file("llama"));
  // A name that nobody has is refused meanwhile, too, and another load waits.
  EXPECT_EQ(kind_of([&] { models->acquire_and_wait("nothing"); }), ErrorKind::not_found);
  models->acquire("granite", later.acquired());
  settle(*models);
  const std::vector<ModelRegistry::Status> listed = models->list();
  ASSERT_EQ(listed.size(), 3u);
  EXPECT_EQ(listed[0].state, State::loading);
  EXPECT_EQ(listed[0].total, 0u);
  EXPECT_EQ(listed[1].state, State::ready);
  EXPECT_EQ(listed[2].state, State::loading);
  EXPECT_GT(listed[2].total, 0u);
  EXPECT_FALSE(slow.done());
  gate.open();
  EXPECT_EQ(slow.wait().take()->path(), file("qwen3"));
  EXPECT_NE(slow.thread(), std::this_thread::get_id());
  EXPECT_EQ(later.wait().take()->path(), file("granite"));
}

TEST_F(RegistryThreadsTest, LoadsComeInTheOrderOfTheCalls) {
  const auto models = registry();
  const Gate gate;
  Outcome first, second;
  models->acquire("llama", [gate](const Lease&, const std::exception_ptr&) { gate.pass(); });
  gate.wait_until_reached();
  models->acquire("qwen3", first.acquired());
  models->acquire("granite", second.acquired());
  gate.open();
  first.wait();
  second.wait();
  Names loaded;
  for (const LoadEvent& event : events()) {
    if (event.kind == Kind::loading) loaded.push_back(event.name);
  }
  EXPECT_EQ(loaded, (Names{"llama", "qwen3", "granite"}));
}

TEST_F(RegistryThreadsTest, ManyThreadsShareOneLoad) {
  const auto models = registry();
  std::barrier together(8);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (int turn = 0; turn < 5; ++turn) {
        together.arrive_and_wait();
        const Lease lease = models->acquire_and_wait(i % 2 == 0 ? "llama" : "qwen3");
        EXPECT_EQ(ask(lease->engine(), request()).tokens.size(), 8u);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count(Kind::loading), 2);
  EXPECT_EQ(count(Kind::ready), 2);
  EXPECT_EQ(count(Kind::unloaded), 0);
}

// Everything at once: models that go as soon as they are free, room for one and a half, calls taken back.
TEST_F(RegistryThreadsTest, ManyThreadsComeAndGo) {
  const auto models = registry(bytes_of("llama") + bytes_of("qwen3"));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int turn = 0; turn < 12; ++turn) {
        const std::string name = std::array{"llama", "qwen3", "granite"}[static_cast<std::size_t>(i + turn) % 3];
        Outcome outcome;
        const ModelRegistry::Ticket ticket = models->acquire(
            name, outcome.acquired(), {.keep_alive = std::chrono::milliseconds(turn % 3 == 0 ? 0 : 1000)});
        if (turn % 4 == 3) ticket.cancel();
        if (turn % 5 == 4) models->unload(name);
        outcome.wait();
        EXPECT_EQ(outcome.calls(), 1);
        if (const Lease lease = outcome.take()) {
          EXPECT_EQ(ask(lease->engine(), request()).endings, 1);
        } else {
          EXPECT_EQ(outcome.error(), ErrorKind::cancelled) << outcome.message();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const char* name : {"llama", "qwen3", "granite"}) models->unload_and_wait(name);
  while (!models->list().empty()) std::this_thread::yield();
  EXPECT_EQ(models->bytes_used(), 0u);
  settle(*models);
  EXPECT_EQ(count(Kind::loading), count(Kind::ready) + count(Kind::failed));
  EXPECT_EQ(count(Kind::ready), count(Kind::unloaded));
}

TEST_F(RegistryThreadsTest, ACallCanBeTakenBack) {
  const auto models = registry();
  const Gate gate;
  hold(gate, Kind::loading, "llama");
  Outcome stays, leaves;
  models->acquire("llama", stays.acquired());
  const ModelRegistry::Ticket ticket = models->acquire("llama", leaves.acquired());
  gate.wait_until_reached();
  ticket.cancel();
  EXPECT_EQ(leaves.wait().error(), ErrorKind::cancelled);
  gate.open();
  EXPECT_NE(stays.wait().take(), nullptr);
  ticket.cancel();
  ModelRegistry::Ticket().cancel();
  settle(*models);
  EXPECT_EQ(leaves.calls(), 1);
  EXPECT_EQ(count(Kind::loading), 1);
}

TEST_F(RegistryThreadsTest, ALoadThatNobodyWaitsForIsEnded) {
  const auto models = registry();
  const Gate gate;
  hold(gate, Kind::loading, "llama");
  Outcome leaves, comes;
  const ModelRegistry::Ticket ticket = models->acquire("llama", leaves.acquired());
  gate.wait_until_reached();
  ticket.cancel();
  EXPECT_EQ(leaves.wait().error(), ErrorKind::cancelled);
  // Who comes before it has ended gets the next one.
  models->acquire("llama", comes.acquired());
  gate.open();
  EXPECT_NE(comes.wait().take(), nullptr);
  EXPECT_EQ(count(Kind::loading), 2);
  EXPECT_EQ(count(Kind::failed), 1);
  EXPECT_EQ(count(Kind::ready), 1);
}

TEST_F(RegistryThreadsTest, WhoWaitsForRoomCanLeave) {
  const auto models = registry(room_for_one());
  const Lease held = models->acquire_and_wait("llama");
  Outcome leaves;
  const ModelRegistry::Ticket ticket = models->acquire("qwen3", leaves.acquired());
  settle(*models);
  ticket.cancel();
  EXPECT_EQ(leaves.wait().error(), ErrorKind::cancelled);
  EXPECT_EQ(names(*models), Names{"llama"});
  EXPECT_EQ(count(Kind::loading), 1);
}

TEST_F(RegistryThreadsTest, ACallbackMayCallAndThrowButNotWait) {
  const auto models = registry();
  Outcome inner;
  std::promise<ErrorKind> waited;
  models->acquire("llama", [&](const Lease& model, const std::exception_ptr&) {
    EXPECT_EQ(model->path(), file("llama"));
    models->acquire("qwen3", inner.acquired());
    EXPECT_FALSE(models->list().empty());
    waited.set_value(kind_of([&] { models->acquire_and_wait("granite"); }));
    fail(ErrorKind::internal, "not my day");
  });
  EXPECT_EQ(waited.get_future().get(), ErrorKind::internal);
  EXPECT_EQ(inner.wait().take()->path(), file("qwen3"));
  settle(*models);
  EXPECT_NE(log_.text().find("not my day"), std::string::npos);
}

TEST_F(RegistryThreadsTest, ACallbackMayHoldTheLastLease) {
  const auto models = registry();
  const Gate gate;
  hold(gate, Kind::loading, "llama");
  auto kept = std::make_shared<Lease>();
  models->acquire("llama", [kept](Lease model, const std::exception_ptr&) { *kept = std::move(model); },
                  {.keep_alive = std::chrono::milliseconds(0)});
  kept.reset();
  gate.open();
  wait_for(Kind::unloaded);
  EXPECT_TRUE(models->list().empty());
}

// Holds a lease until its request has finished: it is dropped on the engine's thread.
class HoldingSink final : public EventSink {
 public:
  HoldingSink(ModelRegistry::Lease lease, const Gate& gate) : lease_(std::move(lease)), gate_(gate) {}
  void take(std::span<TokenEvent> events) override {
    gate_.pass();
    for (const TokenEvent& event : events) {
      if (event.kind == TokenEvent::Kind::finished) lease_.reset();
    }
  }

 private:
  ModelRegistry::Lease lease_;
  const Gate gate_;
};

// The engine's thread used to wait for itself.
TEST_F(RegistryThreadsTest, ASinkMayHoldTheLastLease) {
  const auto models = registry();
  const Gate gate;
  Lease lease = models->acquire_and_wait("llama");
  const SubmitResult result = lease->engine().submit(request(), std::make_shared<HoldingSink>(lease, gate));
  ASSERT_EQ(result.status, SubmitStatus::accepted);
  gate.wait_until_reached();
  models->exchange_and_wait("llama", file("qwen3"));
  lease.reset();
  EXPECT_EQ(models->bytes_used(), bytes_of("llama") + bytes_of("qwen3"));
  gate.open();
  wait_for(Kind::unloaded);
  EXPECT_EQ(events().back().path, file("llama"));
  EXPECT_EQ(models->bytes_used(), bytes_of("qwen3"));
}

TEST_F(RegistryThreadsTest, AndOutliveTheRegistryWithIt) {
  auto models = registry();
  const Gate gate;
  Lease lease = models->acquire_and_wait("llama");
  const SubmitResult result = lease->engine().submit(request(), std::make_shared<HoldingSink>(lease, gate));
  ASSERT_EQ(result.status, SubmitStatus::accepted);
  gate.wait_until_reached();
  models.reset();
  lease.reset();
  EXPECT_GT(device_.use_count(), 1);
  gate.open();
  while (device_.use_count() > 1) std::this_thread::yield();
}

TEST_F(RegistryThreadsTest, LeasesOutliveTheRegistry) {
  auto models = registry();
  Lease lease = models->acquire_and_wait("llama");
  models->acquire_and_wait("qwen3");
  models.reset();
  // What nobody holds has ended with it.
  EXPECT_EQ(device_.use_count(), 2);
  EXPECT_EQ(ask(lease->engine(), request()).tokens.size(), 8u);
  lease.reset();
  while (device_.use_count() > 1) std::this_thread::yield();
}

TEST_F(RegistryThreadsTest, ItsEndCompletesWhatWaits) {
  auto models = registry();
  Lease held = models->acquire_and_wait("granite");
  const Gate gate;
  hold(gate, Kind::loading, "llama");
  Outcome loading, queued, exchanged, unloaded;
  models->unload("granite", unloaded.unloaded());
  models->acquire("llama", loading.acquired());
  gate.wait_until_reached();
  models->acquire("qwen3", queued.acquired());
  models->exchange("llama", file("qwen3"), exchanged.exchanged());
  std::thread end([&] { models.reset(); });
  EXPECT_EQ(loading.wait().error(), ErrorKind::cancelled);
  EXPECT_EQ(queued.wait().error(), ErrorKind::cancelled);
  EXPECT_EQ(exchanged.wait().error(), ErrorKind::cancelled);
  EXPECT_TRUE(unloaded.wait().found());
  gate.open();
  end.join();
  for (const Outcome* outcome : {&loading, &queued, &exchanged, &unloaded}) EXPECT_EQ(outcome->calls(), 1);
  EXPECT_EQ(ask(held->engine(), request()).tokens.size(), 8u);
  held.reset();
  while (device_.use_count() > 1) std::this_thread::yield();
}

}  // namespace
}  // namespace quarrel::test
