// What becomes of an answer that runs when somebody else has something to say about it.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <optional>
#include <vector>

#include "server/embedding_call.h"
#include "server/model_api.h"
#include "server/model_call.h"
#include "server/native_writer.h"
#include "server/resumable.h"
#include "server/retrieval.h"
#include "server/served_toy.h"
#include "server/silence.h"
#include "support/late_device.h"

namespace quarrel {
namespace {

class Counting final : public AnswerReceiver {
 public:
  void accepted(const ResumePoint&) override {}
  bool take(std::span<const AnswerEvent> events, const ResumePoint&) override {
    events_ += events.size();
    if (!events.empty() && events.back().end != nullptr) end_ = events.back().end;
    return true;
  }
  void replaced() override {}

  std::size_t events_ = 0;
  std::shared_ptr<const AnswerEnd> end_;
};

class RunningCallTest : public test::ServedToy {
 protected:
  // An answer to `ask` that is read by `reader_`.
  std::shared_ptr<GenerationCall> start(MakeAsk ask) {
    return start_generation(*service_, record_, service_->find("", {}), std::move(ask),
                            std::make_unique<EventWriter>(reader_, EventWriter::Options{.stopped = stopped_}));
  }
  static MakeAsk answers(std::int32_t count, std::int32_t best_of, std::int32_t tokens) {
    return [=](const LoadedModel& model) {
      Ask ask = endless(model);
      ask.answers = count;
      ask.best_of = best_of;
      ask.max_tokens = tokens;
      return ask;
    };
  }

  const std::shared_ptr<Counting> reader_ = std::make_shared<Counting>();
  const std::shared_ptr<std::atomic<bool>> stopped_ = std::make_shared<std::atomic<bool>>(false);
  std::shared_ptr<RequestRecord> record_ = service_->new_record({.route = "POST /test"});
};

TEST_F(RunningCallTest, AWantedStopIsNoFailure) {
  const auto call = start(endless);
  write_until([&] { return reader_->events_ > 2; });
  *stopped_ = true;
  call->cancel();
  write_until([&] { return reader_->end_ != nullptr; });
  EXPECT_FALSE(reader_->end_->error);
  EXPECT_EQ(record_->facts().error, "");
  EXPECT_EQ(record_->facts().finish_reason, "cancelled");
}

// Tokens and the end may come in one batch.
TEST_F(RunningCallTest, WhatCameBeforeAStopIsAnswered) {
  const auto call = start(endless);
  write_until([&] { return reader_->events_ > 2; });
  const std::size_t told = reader_->events_;
  const std::uint64_t steps = counters().scheduler.steps;
  EXPECT_TRUE(test::eventually([&] { return counters().scheduler.steps > steps + 20; }));
  *stopped_ = true;
  call->cancel();
  EXPECT_TRUE(test::eventually([&] { return counters().scheduler.finished == counters().scheduler.accepted; }));
  write_until([&] { return reader_->end_ != nullptr; });
  EXPECT_GT(reader_->events_, told + 5);
}

class EveryToken final : public TokenMask {
 public:
  void allow(std::span<const TokenId>, std::span<std::uint64_t> allowed) override {
    std::ranges::fill(allowed, ~std::uint64_t{0});
  }
};

// Whoever cancels may be one that others wait for, or the one that writes.
TEST_F(RunningCallTest, ACancelWaitsForNobody) {
  const test::Gate submitting;
  const auto call = start([submitting](const LoadedModel& model) {
    Ask ask = endless(model);
    ask.mask = [submitting](std::int32_t) {
      submitting.pass();
      return std::make_unique<EveryToken>();
    };
    return ask;
  });
  submitting.wait_until_reached();
  call->cancel();  // the request is on its way to the engine
  submitting.open();
  write_until([&] { return reader_->end_ != nullptr; });
  ASSERT_TRUE(reader_->end_->error);
  EXPECT_EQ(reader_->end_->error->code, "cancelled");
}

TEST_F(RunningCallTest, AReaderThatIsGoneIsNoFailureEither) {
  const auto call = start(endless);
  write_until([&] { return reader_->events_ > 2; });
  call->cancel();
  write_until([&] { return reader_->end_ != nullptr; });
  ASSERT_TRUE(reader_->end_->error);
  EXPECT_EQ(reader_->end_->error->code, "cancelled") << "whoever takes its place is told";
  EXPECT_EQ(record_->facts().error, "");
  EXPECT_EQ(record_->facts().finish_reason, "cancelled");
}

TEST_F(RunningCallTest, AfterACancelOnlyTheStepsUnderWayAreComputed) {
  const auto call = start(endless);
  write_until([&] { return reader_->events_ > 2; });
  call->cancel();
  const std::uint64_t steps = counters().scheduler.steps;
  write_until([&] { return reader_->end_ != nullptr; });
  EXPECT_LE(counters().scheduler.steps, steps + 2);
}

TEST_F(RunningCallTest, ACancelWithAReasonIsOne) {
  const auto call = start(endless);
  write_until([&] { return reader_->events_ > 2; });
  call->end({503, "unavailable_error", "timeout", "it took too long"});
  write_until([&] { return reader_->end_ != nullptr; });
  EXPECT_EQ(record_->facts().error, "unavailable_error");
  EXPECT_EQ(record_->facts().code, "timeout");
}

// The call is there until its client has read the answer; a client that does not read keeps no model.
TEST_F(RunningCallTest, AnAnswerThatIsOverKeepsNoModel) {
  const auto call = start(answers(1, 0, 3));
  write_until([&] { return reader_->end_ != nullptr; });
  EXPECT_TRUE(test::eventually(
      [&] { return std::ranges::none_of(service_->registry().list(), &ModelRegistry::Status::in_use); }));
}

TEST_F(RunningCallTest, TheBestOfSeveralCostWhatAllOfThemDo) {
  const auto call = start(answers(1, 3, 4));
  write_until([&] { return reader_->end_ != nullptr; });
  EXPECT_EQ(record_->facts().generated_tokens, 12u);
}

TEST_F(RunningCallTest, SoDoThoseThatNobodyWaitsFor) {
  const auto call = start(answers(1, 3, -1));
  write_until([&] { return record_->facts().started.has_value(); });
  write_until([begun = written_, this] { return written_ > begun + 4; });
  call->cancel();
  EXPECT_GT(record_->facts().generated_tokens, 0u);
}

// A key is revoked or expires while an answer to it runs.
TEST_F(RunningCallTest, AKeyThatEndsTakesItsAnswersWithIt) {
  const auto good = std::make_shared<std::atomic<bool>>(true);
  service_->set_accepts([good](const Caller&) { return good->load(); });
  const auto call = start(endless);
  write_until([&] { return reader_->events_ > 2; });
  *good = false;
  write_until([&] { return reader_->end_ != nullptr; });
  ASSERT_TRUE(reader_->end_->error);
  EXPECT_EQ(reader_->end_->error->status, 401u);
  EXPECT_EQ(record_->facts().error, "authentication_error");
}

TEST_F(RunningCallTest, AndItsLoads) {
  const auto good = std::make_shared<std::atomic<bool>>(true);
  service_->set_accepts([good](const Caller&) { return good->load(); });
  const std::string name = service_->find("", {}).name;
  const test::Gate loading;
  const auto watching = service_->loads().watch(name, [loading](const LoadEvent& event) {
    if (event.kind == LoadEvent::Kind::loading) loading.pass();
  });
  const auto asked = std::make_shared<http::Exchange>(
      http::Request{.method = "POST", .path = "/api/models/" + name + "/load", .record = record_}, std::size_t{1} << 20,
      [] {});
  load_model(*service_, asked);
  loading.wait_until_reached();
  *good = false;
  http::Exchange::Output output;
  EXPECT_TRUE(test::eventually([&] { return (output = asked->take()).has_head; }));
  EXPECT_EQ(output.head.status, 401u);
  EXPECT_EQ(record_->facts().error, "authentication_error");
  loading.open();
  EXPECT_TRUE(test::eventually([&] { return service_->registry().list().empty(); })) << "nobody wants it any more";
}

// What the server's end cuts off is told so, in words and by its code, whatever waited.
TEST_F(RunningCallTest, WhoWaitsForALoadIsToldOfTheServersEnd) {
  const std::string name = service_->find("", {}).name;
  for (const bool reload : {false, true}) {
    if (reload) service_->registry().acquire_and_wait(name);
    const test::Gate loading;
    const auto watching = service_->loads().watch(name, [loading](const LoadEvent& event) {
      if (event.kind == LoadEvent::Kind::loading) loading.pass();
    });
    const auto load =
        std::make_shared<http::Exchange>(http::Request{.method = "POST",
                                                       .path = "/api/models/" + name + "/load",
                                                       .body = reload ? R"({"reload": true})" : "",
                                                       .record = service_->new_record({.route = "POST /test"})},
                                         std::size_t{1} << 20, [] {});
    load_model(*service_, load);
    loading.wait_until_reached();
    std::vector<std::shared_ptr<http::Exchange>> waiting = {load};
    if (!reload) {  // else the old model serves
      waiting.push_back(exchange());
      start_model_call(*service_, waiting.back(), service_->find("", {}),
                       [](const LoadedModel&) { return http::Response{}; });
    }
    service_->begin_drain();
    service_->end_requests("the server is about to end");
    loading.open();
    for (const auto& each : waiting) {
      http::Exchange::Output output;
      EXPECT_TRUE(test::eventually([&] { return (output = each->take()).has_head; }));
      EXPECT_EQ(output.head.status, 503u);
      EXPECT_EQ(output.head.body, R"({"error":"the server is about to end","code":"draining"})");
    }
    EXPECT_TRUE(test::eventually([&] {
      return std::ranges::none_of(service_->registry().list(), [](const ModelRegistry::Status& status) {
        return status.state == ModelRegistry::State::loading;
      });
    }));
  }
}

TEST(RunningCalls, EndThoseWhoseCallersMayNotAskAnyMore) {
  struct Call final : RunningCall {
    void end(const ApiError& why) override { status = why.status; }
    unsigned status = 0;
  };
  RunningCalls calls;
  const auto first = std::make_shared<Call>(), second = std::make_shared<Call>();
  calls.add(first, std::make_shared<const Caller>(Caller{.name = "good"}));
  calls.add(second, std::make_shared<const Caller>(Caller{.name = "bad"}));
  calls.add(std::make_shared<Call>(), std::make_shared<const Caller>(Caller{.name = "bad"}));
  calls.look([](const Caller& caller) { return caller.name == "good"; }, Clock::now());
  EXPECT_EQ(calls.size(), 2u) << "what is over is forgotten";
  EXPECT_EQ(first->status, 0u);
  EXPECT_EQ(second->status, 401u);
}

// Nothing is heard of the best of several until all have ended, however well they are.
TEST_F(RunningCallTest, TheBestOfSeveralAreNotTakenForSilent) {
  const auto call = start(answers(1, 3, -1));
  write_until([&] { return record_->facts().started.has_value(); });
  const auto later = [this](int times) { return Clock::now() + times * longest_silence(service_->patience()); };
  for (int times = 1; times < 4; ++times) {
    const std::uint64_t steps = counters().scheduler.steps;
    write_until([&] { return counters().scheduler.steps > steps + 4; });
    call->end_if_silent(later(times));
    EXPECT_EQ(reader_->end_, nullptr);
  }
  call->cancel();
  write_until([&] { return reader_->end_ != nullptr; });
}

class HangingEngine : public test::ServedToy {
 protected:
  // Steps wait while the gate is closed.
  explicit HangingEngine(const test::Gate& gate = test::Gate(true))
      : ServedToy(
            {.patience = std::chrono::milliseconds(50)},
            test::make_late_device({.backend = "cpu", .threads = 2}, {.before_step = [gate](Ticket) { gate.pass(); }})),
        gate_(gate) {}
  void TearDown() override {
    gate_.open();
    ServedToy::TearDown();
  }

  // In a step of somebody else's.
  void hang() {
    ModelRegistry::Lease lease = service_->registry().acquire_and_wait(service_->find("", {}).name);
    gate_.close();
    EngineRequest request;
    request.prompt = {1, 2, 3};
    request.max_tokens = 1;
    hanging_.emplace(lease->engine().submit(request));
    lease.reset();
    gate_.wait_until_reached();
  }

  const test::Gate gate_;
  std::optional<Engine::Submission> hanging_;
};

TEST_F(HangingEngine, KeepsNobodyWaitingForVectors) {
  hang();
  const auto asked = exchange();
  start_embedding_call(*service_, asked, service_->find("", {}), {.inputs = {std::string("a")}},
                       {.respond = [](auto, double) { return http::Response{}; }, .fail = plain_error});
  http::Exchange::Output output;
  ASSERT_TRUE(test::eventually([&] { return (output = asked->take()).has_head; }));
  EXPECT_EQ(output.head.status, 503u);
  EXPECT_EQ(asked->request().record->facts().code, "timeout");
  gate_.open();
  finish_text_work();  // what comes in the end is not answered a second time
  EXPECT_FALSE(asked->take().has_head);
}

// A device that does not come back keeps its engine's thread; whoever asked is told all the same.
class EndReader final : public AnswerReceiver {
 public:
  void accepted(const ResumePoint&) override {}
  bool take(std::span<const AnswerEvent> events, const ResumePoint&) override {
    if (events.back().end != nullptr) end_.set_value(events.back().end);
    return true;
  }
  void expect_timeout() {
    auto end = end_.get_future();
    ASSERT_EQ(end.wait_for(std::chrono::minutes(1)), std::future_status::ready);
    const std::shared_ptr<const AnswerEnd> told = end.get();
    ASSERT_TRUE(told->error);
    EXPECT_EQ(told->error->status, 503u);
    EXPECT_EQ(told->error->code, "timeout");
  }

 private:
  std::promise<std::shared_ptr<const AnswerEnd>> end_;
};

TEST_F(HangingEngine, IsWaitedForNoLongerThanAnyOther) {
  hang();
  const auto reader = std::make_shared<EndReader>();
  const auto record = service_->new_record({.route = "POST /test"});
  const auto call = start_generation(*service_, record, service_->find("", {}), endless,
                                     std::make_unique<EventWriter>(reader, EventWriter::Options{}));
  reader->expect_timeout();
  EXPECT_EQ(record->facts().error, "unavailable_error");
}

TEST_F(HangingEngine, KeepsNoQuestionWaitingForItsTexts) {
  hang();
  const auto reader = std::make_shared<EndReader>();
  RetrievalRequest request;
  request.search.query = "the fox";
  const auto retrieval = std::make_shared<Retrieval>(*service_, request, LongbowAddress{}, service_->find("", {}));
  const auto call =
      start_generation(*service_, service_->new_record({.route = "POST /test"}), service_->find("", {}), endless,
                       std::make_unique<EventWriter>(reader, EventWriter::Options{}), {.before = retrieval});
  reader->expect_timeout();
}

class LostDevice : public test::ServedToy {
 protected:
  explicit LostDevice(const std::shared_ptr<std::atomic<bool>>& lost = std::make_shared<std::atomic<bool>>(false))
      : ServedToy({}, test::make_late_device({.backend = "cpu", .threads = 2},
                                             {.before_step =
                                                  [lost](Ticket) {
                                                    if (*lost)
                                                      fail(ErrorKind::device_lost, "the device has fallen off the bus");
                                                  }})),
        lost_(lost) {}

  const std::shared_ptr<std::atomic<bool>> lost_;
};

// Nobody is sent here any more, and who runs the server knows that it has to be started again.
TEST_F(LostDevice, EndsAnswersWithTheReasonAndMakesTheServerUnready) {
  const auto reader = std::make_shared<Counting>();
  const auto record = service_->new_record({.route = "POST /test"});
  const auto call = start_generation(*service_, record, service_->find("", {}), endless,
                                     std::make_unique<EventWriter>(reader, EventWriter::Options{}));
  write_until([&] { return reader->events_ > 2; });
  EXPECT_TRUE(service_->ready());
  *lost_ = true;
  write_until([&] { return reader->end_ != nullptr; });
  ASSERT_TRUE(reader->end_->error);
  EXPECT_EQ(reader->end_->error->what(), std::string("the device has fallen off the bus"));
  EXPECT_FALSE(service_->ready());
  EXPECT_TRUE(service_->device_lost());
}

class SmallStore : public test::ServedToy {
 protected:
  SmallStore() : ServedToy({.sockets = {.resume = {.bytes = 2000}}}) {}
};

// Of an answer that nobody reads more comes than is kept: it is given up by the thread that writes it, in the middle of
// doing so.
TEST_F(SmallStore, AnAnswerThatOutgrowsItEnds) {
  const auto reader = std::make_shared<Counting>();
  auto answer = service_->sockets().answers().create(std::make_shared<const Caller>(), reader);
  std::weak_ptr<RequestRecord> record;
  {
    auto made = service_->new_record({.route = "POST /test"});
    record = made;
    const auto call = start_generation(
        *service_, std::move(made), service_->find("", {}), endless,
        std::make_unique<EventWriter>(std::make_shared<ResumableReceiver>(answer), EventWriter::Options{}));
    answer->set_cancel([call] { call->cancel(); });
  }
  write_until([&] { return reader->events_ > 2; });
  answer->detach(reader.get());
  write_until([&] { return record.expired(); });
  EXPECT_TRUE(answer->ended());
  EXPECT_TRUE(test::eventually([&] { return counters().scheduler.finished == counters().scheduler.accepted; }));
}

}  // namespace
}  // namespace quarrel
