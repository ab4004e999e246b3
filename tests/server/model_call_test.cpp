// Requests that need a model for a moment: nobody is left to wait, whatever fails. And how many of any kind may wait
// for a load.
#include "server/model_call.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <new>
#include <vector>

#include "server/openai_api.h"
#include "server/served_toy.h"
#include "server/text_api.h"

namespace quarrel {
namespace {

class ModelCallTest : public test::ServedToy {
 protected:
  // Its connection cannot be woken the first so many times.
  std::shared_ptr<http::Exchange> deaf(int times) {
    return std::make_shared<http::Exchange>(http::Request{.record = service_->new_record({.route = "POST /test"})},
                                            std::size_t{1} << 20, [this, times] {
                                              if (++calls_ <= times) throw std::bad_alloc();
                                            });
  }
  unsigned status_of(const std::shared_ptr<http::Exchange>& exchange, ModelWork work) {
    start_model_call(*service_, exchange, service_->find("", {}), std::move(work));
    service_->registry().acquire_and_wait(service_->find("", {}).name);
    finish_text_work();
    return exchange->take().head.status;
  }

  std::atomic<int> calls_ = 0;
};

TEST_F(ModelCallTest, AConnectionThatCouldNotBeWokenIsWokenForTheError) {
  EXPECT_EQ(status_of(deaf(1), [](const LoadedModel&) { return http::Response{.status = 201}; }), 201u);
  EXPECT_EQ(calls_, 2);
}

TEST_F(ModelCallTest, OneThatCannotBeToldTheErrorIsToldThatThereIsAnEnd) {
  EXPECT_EQ(status_of(deaf(1), [](const LoadedModel&) -> http::Response { throw invalid_field("a", "wrong"); }), 400u);
  EXPECT_EQ(calls_, 2);
}

class HeldLoad : public test::ServedToy {
 protected:
  HeldLoad() : ServedToy({.load = {.engine = {.key_queue_limit = 1}}}) {}

  using Handler = void (*)(Service&, const std::shared_ptr<http::Exchange>&);
  struct Kind {
    Handler handler;
    const char* body;
  };
  static constexpr std::array<Kind, 3> kKinds = {{{tokenize, R"({"content": "a"})"},
                                                  {openai_embeddings, R"({"input": "a"})"},
                                                  {openai_completion, R"({"prompt": "a", "max_tokens": 1})"}}};

  // Whoever is refused at once has been told.
  std::shared_ptr<http::Exchange> ask(const Kind& kind, std::uint64_t key) {
    auto caller = std::make_shared<const Caller>(Caller{.key = key});
    auto asked = std::make_shared<http::Exchange>(
        http::Request{.body = kind.body,
                      .record = service_->new_record({.route = "POST /test", .caller = std::move(caller)})},
        std::size_t{1} << 20, [] {});
    kind.handler(*service_, asked);
    finish_text_work();
    return asked;
  }
};

// A model's queue is as long while it is loaded, and each key has its share of it.
TEST_F(HeldLoad, NoMoreOfAKeyWaitForItThanForTheModel) {
  const test::Gate loading;
  const auto watching = service_->loads().watch(service_->find("", {}).name, [loading](const LoadEvent& event) {
    if (event.kind == LoadEvent::Kind::loading) loading.pass();
  });
  std::vector<std::shared_ptr<http::Exchange>> waiting = {ask(kKinds[0], 1)};
  loading.wait_until_reached();
  const auto says_when = [](const auto& header) { return header.first == "Retry-After"; };
  std::uint64_t others = 1;
  for (const Kind& kind : kKinds) {
    const http::Exchange::Output refused = ask(kind, 1)->take();
    EXPECT_EQ(refused.head.status, 503u) << kind.body;
    EXPECT_NE(refused.head.body.find("queue_full"), std::string::npos) << refused.head.body;
    EXPECT_TRUE(std::ranges::any_of(refused.head.headers, says_when));
    waiting.push_back(ask(kind, ++others));
    EXPECT_FALSE(waiting.back()->take().has_head) << kind.body;
  }
  loading.open();
  for (const auto& each : waiting) {
    http::Exchange::Output answer;
    write_until([&] { return (answer = each->take()).has_head; });
    EXPECT_EQ(answer.head.status, 200u) << answer.head.body;
  }
}

}  // namespace
}  // namespace quarrel
