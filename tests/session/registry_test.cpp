// Models that come and go: within a budget, by age, for as long as somebody holds them.
#include <gtest/gtest.h>

#include <fstream>

#include "session/refusal.h"
#include "session/registry_fixture.h"
#include "support/other_device.h"

namespace quarrel::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

// A device that says how much memory is free.
class MeasuredDevice final : public Device {
 public:
  MeasuredDevice(std::shared_ptr<Device> inner, std::size_t available)
      : inner_(std::move(inner)), available_(available) {}
  std::string_view name() const noexcept override { return inner_->name(); }
  std::string description() const override { return inner_->description(); }
  KvType default_kv_type() const noexcept override { return inner_->default_kv_type(); }
  bool supports(ActivationPrecision activations) const noexcept override { return inner_->supports(activations); }
  std::size_t memory_available() const override { return available_; }
  std::size_t memory_total() const override { return available_; }
  std::unique_ptr<Backend> make_backend(const BackendOptions& options) override {
    return inner_->make_backend(options);
  }
  std::int32_t batch_rows() const noexcept override { return inner_->batch_rows(); }

 private:
  const std::shared_ptr<Device> inner_;
  const std::size_t available_;
};

TEST_F(RegistryTest, LoadsOnceAndReportsHowFarItIs) {
  const auto models = registry();
  const Lease first = models->acquire_and_wait("llama");
  EXPECT_EQ(models->acquire_and_wait("llama"), first);
  EXPECT_EQ(ask(first->engine(), request()).tokens.size(), 8u);
  EXPECT_EQ(count(Kind::loading), 1);
  EXPECT_EQ(count(Kind::ready), 1);
  EXPECT_EQ(models->bytes_used(), bytes_of("llama"));
  const std::vector<ModelRegistry::Status> all = models->list();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].path, file("llama"));
  EXPECT_EQ(all[0].bytes, bytes_of("llama"));
  EXPECT_EQ(all[0].state, State::ready);
  EXPECT_TRUE(all[0].in_use);
  EXPECT_EQ(all[0].expires, std::nullopt);
}

TEST_F(RegistryTest, TheOldestGoesWhenAnotherNeedsTheRoom) {
  const std::uint64_t two = bytes_of("llama") + std::max(bytes_of("qwen3"), bytes_of("granite"));
  const auto models = registry(two);
  models->acquire_and_wait("llama");
  models->acquire_and_wait("qwen3");
  models->acquire_and_wait("llama");
  models->acquire_and_wait("granite");
  EXPECT_EQ(names(*models), (Names{"granite", "llama"}));
  EXPECT_LE(models->bytes_used(), two);
  // One in use stays, whatever its age.
  const Lease held = models->acquire_and_wait("llama");
  models->acquire_and_wait("granite");
  models->acquire_and_wait("qwen3");
  EXPECT_EQ(names(*models), (Names{"llama", "qwen3"}));
}

// A model that its GPU has no room for is loaded elsewhere, within what that has.
TEST_F(RegistryTest, WhatIsTooLargeForTheDeviceGoesWhereThatFallsBackTo) {
  const auto device = std::make_shared<MeasuredDevice>(device_, 100'000);
  device->set_fallback([this] { return device_; });
  ModelRegistry models(device, options(), log_);
  const Lease lease = models.acquire_and_wait("llama");
  EXPECT_EQ(&lease->device(), device_.get());
  EXPECT_EQ(ask(lease->engine(), request()).tokens.size(), 8u);
  EXPECT_EQ(models.bytes_used(), bytes_of("llama"));
  EXPECT_NE(log_.text().find("'llama': the model runs on the cpu, not on"), std::string::npos) << log_.text();
}

// They go for each other there, and never for those on the device.
TEST_F(RegistryTest, WhereItFallsBackToThereIsABudgetToo) {
  const auto other = std::make_shared<MeasuredDevice>(device_, (room_for_one() + 2000) / 9 * 10);
  const auto device = std::make_shared<OtherDevice>(OtherLimits{.activations = {ActivationPrecision::int8_split}});
  device->set_fallback([other] { return other; });
  RegistryOptions with = options();
  with.models["llama"] = {.load = load_options()};
  with.models["llama"].load.executor.activations = ActivationPrecision::f32;
  with.models["qwen3"] = with.models["llama"];
  ModelRegistry models(device, std::move(with), log_);
  Lease first = models.acquire_and_wait("granite");
  EXPECT_EQ(&first->device(), device.get());
  first.reset();
  Lease second = models.acquire_and_wait("llama");
  EXPECT_EQ(&second->device(), other.get());
  const std::uint64_t both = models.bytes_used();
  Outcome third;
  models.acquire("qwen3", third.acquired());
  settle(models);
  EXPECT_FALSE(third.done()) << "the second is in use";
  second.reset();
  EXPECT_EQ(&third.wait().take()->device(), other.get());
  EXPECT_EQ(names(models), (Names{"granite", "qwen3"}));
  EXPECT_LE(models.bytes_used(), both + bytes_of("qwen3") - bytes_of("llama"));
}

// What is exchanged for a model of the other device waits for room there: the old one would make none.
TEST_F(RegistryTest, AnExchangeForTheOtherDeviceKeepsTheOldModelServing) {
  const auto other = std::make_shared<MeasuredDevice>(device_, (room_for_one() + 2000) / 9 * 10);
  const auto device = std::make_shared<OtherDevice>(OtherLimits{.activations = {ActivationPrecision::int8_split}});
  device->set_fallback([other] { return other; });
  ModelSettings exact{.load = load_options()};
  exact.load.executor.activations = ActivationPrecision::f32;
  RegistryOptions with = options();
  with.models["qwen3"] = exact;
  ModelRegistry models(device, std::move(with), log_);
  models.acquire_and_wait("llama");
  Lease held = models.acquire_and_wait("qwen3");
  EXPECT_EQ(&held->device(), other.get());
  models.configure("llama", exact);
  Outcome exchanged;
  models.exchange("llama", file("llama"), exchanged.exchanged());
  settle(models);
  EXPECT_FALSE(exchanged.done());
  EXPECT_EQ(&models.acquire_and_wait("llama", {.patience = minutes(1)})->device(), device.get());
  held.reset();
  exchanged.wait();
  EXPECT_EQ(&models.acquire_and_wait("llama")->device(), other.get());
}

TEST_F(RegistryTest, WaitsForRoomWithoutAThread) {
  const auto models = registry(room_for_one());
  Lease held = models->acquire_and_wait("llama");
  Outcome waiting;
  models->acquire("qwen3", waiting.acquired());
  settle(*models);
  EXPECT_FALSE(waiting.done());
  // Who has a model is not kept waiting by those who wait.
  EXPECT_EQ(models->acquire_and_wait("llama"), held);
  held.reset();
  EXPECT_EQ(waiting.wait().take()->path(), file("qwen3"));
  EXPECT_EQ(names(*models), Names{"qwen3"});
}

TEST_F(RegistryTest, OrSaysThatThereIsNone) {
  const auto models = registry(room_for_one());
  const Lease held = models->acquire_and_wait("llama");
  Outcome waiting;
  models->acquire("qwen3", waiting.acquired());
  run_out_of_patience(*models, waiting);
  EXPECT_EQ(waiting.error(), ErrorKind::out_of_memory);
  EXPECT_NE(waiting.message().find("MiB"), std::string::npos) << waiting.message();
  EXPECT_EQ(names(*models), Names{"llama"});
  EXPECT_EQ(models->acquire_and_wait("llama"), held);
  // It does not fit even alone.
  const auto tiny = registry(4096);
  EXPECT_EQ(kind_of([&] { tiny->acquire_and_wait("llama"); }), ErrorKind::out_of_memory);
  EXPECT_TRUE(tiny->list().empty());
}

// Who waits too long is told so; the load goes on, and the next one finds the model.
TEST_F(RegistryTest, ACallHasItsOwnPatience) {
  const Gate gate;
  const auto models = registry();
  hold(gate, Kind::loading, "llama");
  Outcome patient, impatient;
  models->acquire("llama", impatient.acquired(), {.patience = std::chrono::seconds(5)});
  models->acquire("llama", patient.acquired());
  gate.wait_until_reached();
  advance(*models, std::chrono::seconds(4));
  settle(*models);
  EXPECT_FALSE(impatient.done());
  advance(*models, std::chrono::seconds(1));
  EXPECT_EQ(impatient.wait().error(), ErrorKind::busy);
  EXPECT_NE(impatient.message().find("'llama'"), std::string::npos) << impatient.message();
  EXPECT_FALSE(patient.done());
  gate.open();
  EXPECT_EQ(patient.wait().take()->path(), file("llama"));
  EXPECT_EQ(impatient.calls(), 1);
}

TEST_F(RegistryTest, ALoadThatNobodyWaitsForAnyMoreIsFinished) {
  const Gate gate;
  const auto models = registry();
  hold(gate, Kind::loading, "llama");
  Outcome impatient;
  models->acquire("llama", impatient.acquired(), {.patience = std::chrono::seconds(5)});
  gate.wait_until_reached();
  advance(*models, std::chrono::seconds(5));
  EXPECT_EQ(impatient.wait().error(), ErrorKind::busy);
  gate.open();
  wait_for(Kind::ready);
  EXPECT_EQ(count(Kind::failed), 0);
}

// As many wait for a load as may wait in the queue of the model that it brings.
TEST_F(RegistryTest, SoManyMayWaitForALoad) {
  RegistryOptions all = options();
  all.load.engine.queue_limit = 3;
  all.load.engine.key_queue_limit = 2;
  all.models["qwen3"] = {.load = load_options()};
  all.models["qwen3"].load.engine.queue_limit = 1;
  all.models["granite"] = {.load = load_options()};
  all.models["granite"].load.engine.queue_limit = 0;
  std::chrono::microseconds retry_after{};
  const Gate gate;
  const auto models = registry(std::move(all));
  hold(gate, Kind::loading, "llama");
  Outcome first, second, other;
  models->acquire("llama", first.acquired(), {.key = 1});
  gate.wait_until_reached();
  const ModelRegistry::Ticket ticket = models->acquire("llama", second.acquired(), {.key = 1});
  Outcome too_many_of_key;
  models->acquire("llama", too_many_of_key.acquired(), {.key = 1});
  EXPECT_TRUE(too_many_of_key.done()) << "at once";
  EXPECT_EQ(too_many_of_key.error(), ErrorKind::busy);
  EXPECT_NE(too_many_of_key.message().find("'llama'"), std::string::npos) << too_many_of_key.message();
  models->acquire("llama", other.acquired(), {.key = 2});
  EXPECT_FALSE(other.done());
  models->acquire("llama",
                  [&](const Lease& model, const std::exception_ptr& error) {
                    EXPECT_EQ(model, nullptr);
                    try {
                      if (error) std::rethrow_exception(error);
                    } catch (const BusyError& busy) {
                      retry_after = busy.retry_after();
                    }
                  },
                  {.key = 3});
  EXPECT_GT(retry_after.count(), 0);
  // Who waits no longer makes room.
  ticket.cancel();
  EXPECT_EQ(second.wait().error(), ErrorKind::cancelled);
  Outcome third;
  models->acquire("llama", third.acquired(), {.key = 1});
  EXPECT_FALSE(third.done());
  // Other models have queues of their own.
  Outcome one, two;
  models->acquire("qwen3", one.acquired());
  models->acquire("qwen3", two.acquired());
  EXPECT_TRUE(two.done());
  std::vector<Outcome> many(8);
  for (Outcome& each : many) models->acquire("granite", each.acquired());
  EXPECT_TRUE(std::ranges::none_of(many, &Outcome::done)) << "it has no limit";
  gate.open();
  for (Outcome* each : {&first, &other, &third, &one}) EXPECT_NE(each->wait().take(), nullptr) << each->message();
  for (Outcome& each : many) EXPECT_NE(each.wait().take(), nullptr) << each.message();
  EXPECT_EQ(two.error(), ErrorKind::busy);
  EXPECT_NE(models->acquire_and_wait("llama", {.key = 1}), nullptr);
}

// An old model ends what it has begun, and no more wait for the new one than may.
TEST_F(RegistryTest, SoManyMayWaitForAnExchange) {
  RegistryOptions all = options(room_for_one());
  all.load.engine.queue_limit = 1;
  const auto models = registry(std::move(all));
  Lease old = models->acquire_and_wait("llama");
  Outcome exchanged, waiting, refused;
  models->exchange("llama", file("qwen3"), exchanged.exchanged());
  while (models->list().size() < 2) std::this_thread::yield();
  models->acquire("llama", waiting.acquired());
  models->acquire("llama", refused.acquired());
  EXPECT_TRUE(refused.done()) << "at once";
  EXPECT_FALSE(waiting.done());
  old.reset();
  EXPECT_EQ(refused.wait().error(), ErrorKind::busy);
  EXPECT_EQ(exchanged.wait().error(), std::nullopt);
  EXPECT_EQ(waiting.wait().take()->path(), file("qwen3"));
}

TEST_F(RegistryTest, NobodyGoesForNothing) {
  LoadOptions large = load_options();
  large.executor.cache_tokens = 20000;
  RegistryOptions all = options(bytes_of("granite", large));
  all.models["granite"] = {.load = large};
  const auto models = registry(std::move(all));
  ASSERT_LE(bytes_of("llama") + bytes_of("qwen3"), models->budget());
  Lease held = models->acquire_and_wait("llama");
  models->acquire_and_wait("qwen3");
  Outcome waiting;
  models->acquire("granite", waiting.acquired());
  settle(*models);
  // Without the one in use there would be no room, so the unused one stays too; and a small one passes a large one.
  EXPECT_EQ(count(Kind::unloaded), 0);
  EXPECT_EQ(models->acquire_and_wait("qwen3")->path(), file("qwen3"));
  EXPECT_TRUE(models->unload_and_wait("qwen3"));
  EXPECT_EQ(models->acquire_and_wait("qwen3")->path(), file("qwen3"));
  EXPECT_FALSE(waiting.done());
  held.reset();
  EXPECT_EQ(waiting.wait().take()->path(), file("granite"));
  EXPECT_EQ(names(*models), Names{"granite"});
}

TEST_F(RegistryTest, AtTheEndAllRequestsAreTold) {
  const auto models = registry(room_for_one());
  const Lease held = models->acquire_and_wait("llama");
  Outcome waiting;
  models->acquire("qwen3", waiting.acquired());
  held->engine().pause();
  const auto running = held->engine().submit(request());
  models->end_requests("it is late");
  EXPECT_EQ(waiting.wait().error(), ErrorKind::cancelled);
  EXPECT_EQ(waiting.message(), "it is late");
  std::string why;
  while (const auto event = running.stream->next()) why = event->error;
  EXPECT_EQ(why, "it is late");
  EXPECT_EQ(held->engine().submit(request()).result.status, SubmitStatus::draining);
}

TEST_F(RegistryTest, EachModelHasItsSettings) {
  RegistryOptions all = options();
  all.models["qwen3"] = {.load = load_options(), .keep_alive = minutes(7)};
  all.models["qwen3"].load.executor.context = 64;
  const auto models = registry(std::move(all));
  EXPECT_EQ(models->acquire_and_wait("llama")->context(), 96);
  EXPECT_EQ(models->acquire_and_wait("qwen3")->context(), 64);
  const std::vector<ModelRegistry::Status> listed = models->list();
  ASSERT_EQ(listed.size(), 2u);
  EXPECT_EQ(listed[0].expires, now() + minutes(1));
  EXPECT_EQ(listed[1].expires, now() + minutes(7));
  EXPECT_EQ(listed[0].keep_alive, minutes(1));
  EXPECT_EQ(listed[1].keep_alive, minutes(7));
  EXPECT_EQ(listed[0].context_limit, "");
  EXPECT_EQ(listed[1].context_limit, "its setting ctx = 64");
  ModelSettings shorter{.load = load_options()};
  shorter.load.executor.context = 32;
  models->configure("qwen3", shorter);
  EXPECT_EQ(models->acquire_and_wait("qwen3")->context(), 64);
  models->exchange_and_wait("qwen3", file("qwen3"));
  EXPECT_EQ(models->acquire_and_wait("qwen3")->context(), 32);
}

// Only who has set a budget is told of one.
TEST_F(RegistryTest, WhatShortensAContextIsNamed) {
  const auto of_context = [](std::int32_t context) {
    LoadOptions load = load_options();
    load.executor.context = context;
    return load;
  };
  const std::uint64_t half = bytes_of("llama", of_context(48));
  const auto limit_of = [&](std::uint64_t available, std::uint64_t budget, std::optional<std::uint64_t> own) {
    RegistryOptions all = options(budget);
    all.load = of_context(0);
    all.load.executor.memory_budget = own;
    ModelRegistry models(std::make_shared<MeasuredDevice>(device_, available), std::move(all), log_);
    EXPECT_LT(models.acquire_and_wait("llama")->context(), 96);
    return models.list().at(0).context_limit;
  };
  const std::string set = fmt::format("the memory budget of {:.0f} MiB", mebibytes(half));
  const std::uint64_t little = (half / 9 + 1) * 10;  // nine tenths of it are used
  const std::uint64_t plenty = std::uint64_t{1} << 40;
  EXPECT_EQ(limit_of(little, 0, std::nullopt), "the machine's free memory");
  EXPECT_EQ(limit_of(little, 0, plenty), "the machine's free memory");
  EXPECT_EQ(limit_of(plenty, 0, half), set);
  EXPECT_EQ(limit_of(plenty, half, std::nullopt), set);
  EXPECT_EQ(limit_of(plenty, half, plenty), set);
}

TEST_F(RegistryTest, UnusedModelsExpireByThemselves) {
  const auto models = registry();
  models->acquire_and_wait("qwen3");
  Lease held = models->acquire_and_wait("llama");
  advance(*models, seconds(59));
  settle(*models);
  EXPECT_EQ(names(*models), (Names{"llama", "qwen3"}));
  advance(*models, seconds(1));
  wait_for(Kind::unloaded);
  EXPECT_EQ(names(*models), Names{"llama"});
  EXPECT_FALSE(models->unload_and_wait("qwen3"));
  // Its time begins when nobody holds it any more.
  advance(*models, minutes(10));
  settle(*models);
  held.reset();
  EXPECT_EQ(models->list().at(0).expires, now() + minutes(1));
  advance(*models, minutes(1));
  wait_for(Kind::unloaded, 2);
  EXPECT_TRUE(models->list().empty());
}

TEST_F(RegistryTest, WatchingAModelIsNoUseOfIt) {
  const auto models = registry();
  EXPECT_TRUE(models->watch().empty());
  models->acquire_and_wait("llama");
  advance(*models, std::chrono::seconds(30));
  const auto expires = models->list().at(0).expires;
  const std::vector<ModelRegistry::Watched> watched = models->watch();
  ASSERT_EQ(watched.size(), 1u);
  EXPECT_EQ(watched[0].name, "llama");
  EXPECT_EQ(watched[0].bytes, bytes_of("llama"));
  EXPECT_GT(watched[0].observations.steps, 0u) << "it was warmed up";
  EXPECT_GT(watched[0].counters.scheduler.steps, 0u);
  EXPECT_EQ(models->list().at(0).expires, expires);
  EXPECT_FALSE(models->list().at(0).in_use);
  advance(*models, minutes(1));
  wait_for(Kind::unloaded);
  EXPECT_TRUE(models->watch().empty());
}

// The warm-up has been timed, whatever the model does: nobody has asked for anything yet.
TEST_F(RegistryTest, ExpertsAndScansHaveTimesFromTheBeginning) {
  for (const char* toy : {"mixtral", "mamba2", "granitehybrid"}) write_toy(toy, folder_.path(), {.context = 96});
  for (const bool generates : {true, false}) {
    RegistryOptions all = options();
    all.load.executor.logits = generates;
    const auto models = registry(std::move(all));
    for (const char* toy : {"mixtral", "mamba2", "granitehybrid"}) models->acquire_and_wait(toy);
    const std::vector<ModelRegistry::Watched> watched = models->watch();
    ASSERT_EQ(watched.size(), 3u);
    for (const ModelRegistry::Watched& each : watched) {
      const Observations& seen = each.observations;
      EXPECT_EQ(seen.moe_layers.calls > 0, each.name != "mamba2") << each.name << ", generates: " << generates;
      EXPECT_EQ(seen.moe_routing.calls > 0, each.name != "mamba2") << each.name << ", generates: " << generates;
      EXPECT_EQ(seen.ssm_scans.calls > 0, each.name != "mixtral") << each.name << ", generates: " << generates;
      EXPECT_EQ(seen.ssm_convolutions.calls > 0, each.name != "mixtral") << each.name << ", generates: " << generates;
    }
  }
}

TEST_F(RegistryTest, ARequestSaysHowLongAModelStays) {
  const auto models = registry();
  models->acquire_and_wait("llama", {.keep_alive = milliseconds(-1)});
  EXPECT_EQ(models->list().at(0).expires, std::nullopt);
  models->acquire_and_wait("llama");  // it says nothing, so nothing changes
  EXPECT_EQ(models->list().at(0).expires, std::nullopt);
  models->acquire_and_wait("llama", {.keep_alive = milliseconds::max()});  // as good as for ever
  EXPECT_EQ(models->list().at(0).expires, std::nullopt);
  models->acquire_and_wait("llama", {.keep_alive = minutes(2)});
  EXPECT_EQ(models->list().at(0).expires, now() + minutes(2));
  // An exchange does not change it.
  models->exchange_and_wait("llama", file("llama"));
  wait_for(Kind::unloaded);
  EXPECT_EQ(models->list().at(0).expires, now() + minutes(2));
  {
    const Lease last = models->acquire_and_wait("llama", {.keep_alive = milliseconds(0)});
    settle(*models);
    EXPECT_EQ(count(Kind::unloaded), 1);
  }
  wait_for(Kind::unloaded, 2);
  EXPECT_TRUE(models->list().empty());
  // It is forgotten with the model.
  models->acquire_and_wait("llama");
  EXPECT_EQ(models->list().at(0).expires, now() + minutes(1));
}

TEST_F(RegistryTest, AFailedLoadIsReportedAndForgotten) {
  const auto models = registry();
  EXPECT_EQ(kind_of([&] { models->acquire_and_wait("nothing"); }), ErrorKind::not_found);
  std::ofstream(file("broken")) << "no model at all";
  EXPECT_EQ(kind_of([&] { models->acquire_and_wait("broken"); }), ErrorKind::bad_file);
  EXPECT_TRUE(models->list().empty());
  std::filesystem::copy_file(file("llama"), file("broken"), std::filesystem::copy_options::overwrite_existing);
  EXPECT_NE(models->acquire_and_wait("broken"), nullptr);
}

TEST_F(RegistryTest, AModelHasAnsweredBeforeItIsReady) {
  const auto models = registry();
  const Lease model = models->acquire_and_wait("llama");
  std::vector<Kind> kinds;
  for (const LoadEvent& event : events()) {
    EXPECT_EQ(event.path, file("llama"));
    if (kinds.empty() || kinds.back() != event.kind) kinds.push_back(event.kind);
  }
  EXPECT_EQ(kinds, (std::vector<Kind>{Kind::loading, Kind::progress, Kind::warming, Kind::ready}));
  const SchedulerCounters counters = model->engine().counters().scheduler;
  EXPECT_EQ(counters.finished, 1u);
  EXPECT_EQ(counters.prompt_rows, 2u);
  for (const GroupCounters& group : counters.groups) EXPECT_EQ(group.free, group.total);
  // Nobody's answer knows of it.
  const auto cold = LoadedModel::load(file("llama"), device_, load_options(), log_);
  EXPECT_EQ(ask(model->engine(), request()), ask(cold->engine(), request()));
}

TEST_F(RegistryTest, AModelThatCannotAnswerIsNotLoaded) {
  write_mute();
  const auto models = registry();
  EXPECT_EQ(kind_of([&] { models->acquire_and_wait("mute"); }), ErrorKind::bad_file);
  EXPECT_TRUE(models->list().empty());
  EXPECT_EQ(models->bytes_used(), 0u);
  EXPECT_EQ(count(Kind::ready), 0);
  EXPECT_EQ(count(Kind::failed), 1);
  const LoadEvent last = events().back();
  EXPECT_NE(last.error.find("not finite"), std::string::npos) << last.error;
  for (const char* advice : {"`quarrel list --verify`", "`quarrel pull NAME`"}) {
    EXPECT_NE(last.error.find(advice), std::string::npos) << last.error;
  }
}

TEST_F(RegistryTest, ModelsThatOnlyEmbedAreWarmedUpToo) {
  write_toy("bert", folder_.path(), {.context = 96});
  RegistryOptions all = options();
  all.load.executor.logits = false;
  const auto models = registry(std::move(all));
  for (const char* name : {"llama", "bert"}) {
    const Lease model = models->acquire_and_wait(name);
    EXPECT_FALSE(model->generates());
    EXPECT_EQ(model->engine().counters().scheduler.finished, 1u) << name;
  }
  EXPECT_EQ(models->list().at(0).bytes, bytes_of("bert"));
}

TEST_F(RegistryTest, AListenerCanEndALoad) {
  const auto models = registry();
  for (const Kind kind : {Kind::loading, Kind::progress, Kind::warming}) {
    set_on_event([kind](const LoadEvent& event) {
      if (event.kind == kind) fail(ErrorKind::cancelled, "no more");
    });
    EXPECT_EQ(kind_of([&] { models->acquire_and_wait("llama"); }), ErrorKind::cancelled);
    EXPECT_TRUE(models->list().empty());
  }
  EXPECT_EQ(count(Kind::failed), 3);
  EXPECT_EQ(models->bytes_used(), 0u);
  set_on_event({});
  EXPECT_NE(models->acquire_and_wait("llama"), nullptr);
}

// It used to leave a model for ever that was neither there nor gone.
TEST_F(RegistryTest, AListenerThatThrowsDoesNoHarm) {
  write_mute();
  const auto models = registry();
  set_on_event([](const LoadEvent& event) {
    if (event.kind == Kind::ready || event.kind == Kind::failed || event.kind == Kind::unloaded) {
      fail(ErrorKind::internal, "not my day");
    }
  });
  EXPECT_NE(models->acquire_and_wait("llama"), nullptr);
  EXPECT_TRUE(models->unload_and_wait("llama"));
  EXPECT_EQ(kind_of([&] { models->acquire_and_wait("mute"); }), ErrorKind::bad_file);
  EXPECT_TRUE(models->list().empty());
  EXPECT_NE(models->acquire_and_wait("llama", {.keep_alive = milliseconds(0)}), nullptr);
  wait_for(Kind::unloaded, 2);
  EXPECT_NE(models->acquire_and_wait("llama"), nullptr);
  EXPECT_NE(log_.text().find("not my day"), std::string::npos);
}

TEST_F(RegistryTest, UnloadingLeavesAModelToThoseWhoHoldIt) {
  const auto models = registry();
  EXPECT_FALSE(models->unload_and_wait("llama"));
  Lease held = models->acquire_and_wait("llama");
  Outcome unloaded;
  models->unload("llama", unloaded.unloaded());
  const std::vector<ModelRegistry::Status> listed = models->list();
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0].state, State::unloading);
  EXPECT_TRUE(listed[0].in_use);
  EXPECT_EQ(ask(held->engine(), request()).tokens.size(), 8u);
  // Nobody else gets it.
  const Lease other = models->acquire_and_wait("llama");
  EXPECT_NE(other, held);
  EXPECT_EQ(models->bytes_used(), 2 * bytes_of("llama"));
  EXPECT_FALSE(unloaded.done());
  held.reset();
  EXPECT_TRUE(unloaded.wait().found());
  EXPECT_EQ(models->bytes_used(), bytes_of("llama"));
  EXPECT_EQ(count(Kind::unloaded), 1);
}

TEST_F(RegistryTest, UnloadingEndsALoad) {
  const auto models = registry();
  const Gate gate;
  hold(gate, Kind::loading, "llama");
  Outcome acquired, unloaded;
  models->acquire("llama", acquired.acquired());
  gate.wait_until_reached();
  models->unload("llama", unloaded.unloaded());
  EXPECT_EQ(acquired.wait().error(), ErrorKind::cancelled);
  EXPECT_FALSE(unloaded.done());
  gate.open();
  EXPECT_TRUE(unloaded.wait().found());
  EXPECT_TRUE(models->list().empty());
  EXPECT_EQ(count(Kind::ready), 0);
}

}  // namespace
}  // namespace quarrel::test
