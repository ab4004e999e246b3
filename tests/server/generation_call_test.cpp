// A client that leaves: its work ends at once, however busy the threads for texts are. One that comes when the queue is
// full: nobody reads what it asks.
#include "server/generation_call.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>

#include "backend/create.h"
#include "server/embedding_call.h"
#include "session/session_support.h"
#include "support/gate.h"

namespace quarrel {
namespace {

// Says when the first token has come, or the error.
class Watching final : public AnswerWriter {
 public:
  Watching(std::shared_ptr<std::promise<void>> first, std::shared_ptr<std::promise<ApiError>> failed)
      : first_(std::move(first)), failed_(std::move(failed)) {}
  void begin(const LoadedModel&, const Generations&) override {}
  void take(std::span<GenerationEvent> events) override {
    for (const GenerationEvent& event : events) {
      if (event.kind == GenerationEvent::Kind::piece && !std::exchange(seen_, true)) first_->set_value();
    }
  }
  void end(const Usage&) override {}
  void fail(const ApiError& error) override { failed_->set_value(error); }
  void abandon() override {}

 private:
  const std::shared_ptr<std::promise<void>> first_;
  const std::shared_ptr<std::promise<ApiError>> failed_;
  bool seen_ = false;
};

// A client of a server with the toy.
struct Client {
  std::shared_ptr<std::promise<void>> first = std::make_shared<std::promise<void>>();
  std::shared_ptr<std::promise<ApiError>> failed = std::make_shared<std::promise<ApiError>>();
  std::shared_ptr<http::Exchange> exchange = {};
};

class Calls : public testing::Test {
 protected:
  explicit Calls(LoadOptions load = {}) : load_(std::move(load)) {
    service_.poster()->set([](const std::function<void()>& task) { task(); });
  }

  // An answer that never ends by itself.
  static Ask endless(const LoadedModel&) {
    Ask ask{.prompt = std::string("Hello there"), .seed = 7, .overflow = Overflow::shift};
    ask.stop_tokens.emplace();
    return ask;
  }

  std::shared_ptr<http::Exchange> new_exchange() {
    return std::make_shared<http::Exchange>(http::Request{.record = service_.new_record({})}, std::size_t{1} << 20,
                                            [] {});
  }

  Client serve(MakeAsk make_ask) {
    Client client;
    client.exchange = new_exchange();
    serve_generation(service_, client.exchange, service_.find("", {}), std::move(make_ask),
                     std::make_unique<Watching>(client.first, client.failed));
    return client;
  }

  EngineCounters counters() {
    const auto watched = service_.registry().watch();
    return watched.empty() ? EngineCounters{} : watched.front().counters;
  }

  const LoadOptions load_;
  test::TempDir folder_;
  test::KeptLog log_;
  Service service_{
      {.models = {test::write_toy_chat(folder_.path(), {.context = 512}).string()}, .load = load_, .text_threads = 1},
      make_device({.backend = "cpu", .threads = 2}),
      ModelStore(StorePaths{.quarrel = folder_.path() / "store", .ollama = {}}),
      log_};
};

class Leaving : public Calls {};

class Crowded : public Calls {
 protected:
  Crowded() : Calls({.executor = {.sequences = 1}, .engine = {.queue_limit = 1}}) {}
};

TEST_F(Leaving, EndsAnAnswerWhileTheThreadsForTextsAreBusy) {
  const Client client = serve(endless);
  client.first->get_future().wait();
  const test::Gate texts;
  service_.run_text_work([texts] { texts.pass(); });
  texts.wait_until_reached();
  EXPECT_LT(counters().scheduler.finished, counters().scheduler.accepted);
  client.exchange->close();
  EXPECT_TRUE(test::eventually([&] { return counters().scheduler.finished == counters().scheduler.accepted; }));
  texts.open();
}

// It is noticed by a thread that others wait for: that one does not wait, and the engine never hears of the request.
TEST_F(Leaving, BeforeThePromptIsReadLeavesTheEngineAlone) {
  const test::Gate reading;
  std::promise<std::uint64_t> before;
  const Client client = serve([&](const LoadedModel& model) {
    before.set_value(counters().scheduler.accepted);
    reading.pass();
    return endless(model);
  });
  reading.wait_until_reached();
  client.exchange->close();
  reading.open();
  std::promise<void> over;  // the one thread for texts takes its tasks in turn
  service_.run_text_work([&] { over.set_value(); });
  over.get_future().wait();
  EXPECT_EQ(counters().scheduler.accepted, before.get_future().get());
}

// What is far too long is the request's own fault, which is known once it is tokenised.
TEST_F(Crowded, QueuesRefuseBeforeAPromptIsTokenised) {
  const auto too_long = [](const LoadedModel&) { return Ask{.prompt = std::vector<TokenId>(100'000, 5)}; };
  EXPECT_EQ(serve(too_long).failed->get_future().get().status, 400);
  const Client running = serve(endless);
  running.first->get_future().wait();
  const Client waiting = serve(endless);
  EXPECT_TRUE(test::eventually([&] { return counters().scheduler.waiting == 1; }));
  const ApiError refusal = serve(too_long).failed->get_future().get();
  EXPECT_EQ(refusal.status, 503);
  EXPECT_EQ(refusal.code, "queue_full");
  EXPECT_GT(refusal.retry_after.count(), 0);
}

TEST_F(Crowded, QueuesRefuseBeforeTextsForVectorsAreTokenised) {
  const auto status = [this] {
    const auto exchange = new_exchange();
    start_embedding_call(service_, exchange, service_.find("", {}), {.inputs = {std::string(100'000, 'a')}},
                         {.respond = [](auto, double) { return http::Response{}; }, .fail = plain_error});
    http::Exchange::Output output;
    EXPECT_TRUE(test::eventually([&] { return (output = exchange->take()).has_head; }));
    return output.head.status;
  };
  EXPECT_EQ(status(), 400u);
  const Client running = serve(endless);
  running.first->get_future().wait();
  const Client waiting = serve(endless);
  EXPECT_TRUE(test::eventually([&] { return counters().scheduler.waiting == 1; }));
  EXPECT_EQ(status(), 503u);
}

}  // namespace
}  // namespace quarrel
