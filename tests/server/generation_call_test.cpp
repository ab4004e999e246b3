// A client that leaves: its work ends at once, however busy the threads for texts are.
#include "server/generation_call.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>

#include "backend/create.h"
#include "session/session_support.h"

namespace quarrel {
namespace {

// Says when the first token has come.
class Watching final : public AnswerWriter {
 public:
  explicit Watching(std::shared_ptr<std::promise<void>> first) : first_(std::move(first)) {}
  void begin(const LoadedModel&, const Generations&) override {}
  void take(std::span<GenerationEvent> events) override {
    for (const GenerationEvent& event : events) {
      if (event.kind == GenerationEvent::Kind::piece && !std::exchange(seen_, true)) first_->set_value();
    }
  }
  void end(const Usage&) override {}
  void fail(const ApiError&) override {}
  void abandon() override {}

 private:
  const std::shared_ptr<std::promise<void>> first_;
  bool seen_ = false;
};

class Leaving : public testing::Test {
 protected:
  Leaving() {
    service_.poster()->set([](const std::function<void()>& task) { task(); });
    exchange_ =
        std::make_shared<http::Exchange>(http::Request{.record = service_.new_record({})}, std::size_t{1} << 20, [] {});
  }

  // An answer that never ends by itself.
  static Ask endless(const LoadedModel&) {
    Ask ask{.prompt = std::string("Hello there"), .seed = 7, .overflow = Overflow::shift};
    ask.stop_tokens.emplace();
    return ask;
  }

  void serve(MakeAsk make_ask) {
    serve_generation(service_, exchange_, service_.find("", {}), std::move(make_ask),
                     std::make_unique<Watching>(first_));
  }

  EngineCounters counters() {
    const auto watched = service_.registry().watch();
    return watched.empty() ? EngineCounters{} : watched.front().counters;
  }

  test::TempDir folder_;
  test::KeptLog log_;
  Service service_{{.models = {test::write_toy_chat(folder_.path(), {.context = 512}).string()}, .text_threads = 1},
                   make_device({.backend = "cpu", .threads = 2}),
                   ModelStore(StorePaths{.quarrel = folder_.path() / "store", .ollama = {}}),
                   log_};
  std::shared_ptr<std::promise<void>> first_ = std::make_shared<std::promise<void>>();
  std::shared_ptr<http::Exchange> exchange_;
};

TEST_F(Leaving, EndsAnAnswerWhileTheThreadsForTextsAreBusy) {
  serve(endless);
  first_->get_future().wait();
  std::promise<void> busy, free;
  service_.run_text_work([&] {
    busy.set_value();
    free.get_future().wait();
  });
  busy.get_future().wait();
  EXPECT_LT(counters().scheduler.finished, counters().scheduler.accepted);
  exchange_->close();
  EXPECT_TRUE(test::eventually([&] { return counters().scheduler.finished == counters().scheduler.accepted; }));
  free.set_value();
}

// It is noticed by a thread that others wait for: that one does not wait, and the engine never hears of the request.
TEST_F(Leaving, BeforeThePromptIsReadLeavesTheEngineAlone) {
  std::promise<void> reading, go_on;
  std::promise<std::uint64_t> before;
  serve([&](const LoadedModel& model) {
    before.set_value(counters().scheduler.accepted);
    reading.set_value();
    go_on.get_future().wait();
    return endless(model);
  });
  reading.get_future().wait();
  exchange_->close();
  go_on.set_value();
  std::promise<void> over;  // the one thread for texts takes its tasks in turn
  service_.run_text_work([&] { over.set_value(); });
  over.get_future().wait();
  EXPECT_EQ(counters().scheduler.accepted, before.get_future().get());
}

}  // namespace
}  // namespace quarrel
